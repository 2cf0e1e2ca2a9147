"""Files that get their name when they are complete."""

import contextlib
import json
import os


@contextlib.contextmanager
def complete_file(path):
    """Opens a file of text that gets the name `path` when the block ends well, and vanishes when it does not."""
    partial = f"{path}.{os.getpid()}.partial"
    try:
        with open(partial, "w", encoding="utf-8") as stream:
            yield stream
        os.replace(partial, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(partial)


def save_json(value, path):
    with complete_file(path) as stream:
        json.dump(value, stream, indent=1, ensure_ascii=False)
        stream.write("\n")
