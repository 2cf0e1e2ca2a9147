"""Files of raw text: what they must be, and what identifies them."""

import hashlib
import os

from ..base.errors import MissingFileError, UsageError


def check_text_files(paths, option):
    """Raises UsageError unless every path is a file that is not empty."""
    for path in paths:
        if not os.path.exists(path):
            raise MissingFileError(
                f"{option}: file {path} does not exist; expected a text file; check the path"
            )
        if os.path.isdir(path):
            raise UsageError(
                f"{option}: {path} is a folder; give its files, such as {path.rstrip('/')}/*.txt"
            )
        if not os.path.isfile(path):
            raise UsageError(
                f"{option}: {path} is not a file; expected text in a file, which is read more than"
                " once"
            )
        if os.path.getsize(path) == 0:
            raise UsageError(
                f"{option}: file {path} is empty; expected UTF-8 text; leave it out or fill it"
            )


def file_fingerprint(path):
    """Name, size and a hash of 64 parts of a file, including the first and last.

    This is quick, and differs between corpora.
    """
    size = os.path.getsize(path)
    part = 1 << 16  # bytes
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for number in range(64):
            stream.seek(max(0, size - part) * number // 63)
            digest.update(stream.read(part))
            if size <= part:
                break
    return {"file": os.path.basename(path), "bytes": size, "sha256_of_samples": digest.hexdigest()}
