"""Fetches data that packages contain: downloads with pip, and reads files without installing or importing anything."""

import os
import subprocess
import sys
import tarfile
import zipfile

from command_line import InputError


def fetch(package, folder):
    """Downloads a package.

    Args:
        package: `NAME==VERSION`
        folder: an empty folder to download into
    Returns:
        path of the wheel or source archive
    Raises:
        InputError: pip cannot download it
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    command += ["--dest", folder, package]
    result = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, universal_newlines=True)
    archives = os.listdir(folder)
    if result.returncode or not archives:
        lines = [line for line in result.stderr.splitlines() if line.startswith("ERROR")]
        raise InputError(
            f"pip could not download {package} ({lines[-1] if lines else 'no reason given'}); check the network and"
            " pip's index"
        )
    return os.path.join(folder, archives[0])


def read_member(archive, name):
    """The contents (bytes) of a file in a wheel or a gzipped source archive.

    Raises:
        InputError: there is no such file
    """
    try:
        if archive.endswith(".whl"):
            with zipfile.ZipFile(archive) as files:
                return files.read(name)
        with tarfile.open(archive) as files:
            return files.extractfile(name).read()
    except KeyError:
        raise InputError(f"{archive} contains no {name}; expected the package as its authors published it") from None
