"""Files beside the folders of the seeds: predictions and reports."""

import os
from pathlib import Path

from ..base.files import atomic_write, set_aside


def write_file(path, text, title):
    """Writes a file, and says where it is; an earlier file with other contents gets another name.

    The title says what the file is.
    """
    contents = text.encode()
    if os.path.exists(path) and Path(path).read_bytes() != contents:
        print(f"renamed the earlier {path} to {set_aside(path, '.earlier')}")
    with atomic_write(path, "wb") as stream:
        stream.write(contents)
    print(f"{title}: {path}")
