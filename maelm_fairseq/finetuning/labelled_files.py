"""Where labelled files are: the splits of a task, and the files of each."""

import os

from ..base.errors import MissingFileError, UsageError


def is_test_split(split):
    """Whether a split is for the finished model: predicted, and scored once where it has labels."""
    return split.startswith("test")


def find_file(folder, split, names, required=True):
    """The path of a split's file in a folder, plain or `.gz`.

    Args:
        folder: folder with the labelled files
        split: whose file it is
        names: {split: possible names of its file}
        required: whether there must be a file
    Returns: the path; None if there is no file and none is required
    Raises:
        FileNotFoundError: there is no file, and one is required
        UsageError: there are several, or it is not a file
    """
    possible = names.get(split, [split])
    present = []
    for name in possible:
        for name_of_file in (name, name + ".gz"):
            if os.path.lexists(os.path.join(folder, name_of_file)):
                present.append(name_of_file)
    if len(present) > 1:
        raise UsageError(
            f"--labelled {folder}: found {' and '.join(present)}, expected one of them; "
            "move others away"
        )
    if present:
        path = os.path.join(folder, present[0])
        if not os.path.isfile(path):
            raise UsageError(f"{path}: not a regular file; replace it with one")
        return path
    if not required:
        return None
    found = "a file; give the folder that has it" if os.path.lexists(folder) else "no such folder"
    if os.path.isdir(folder):
        found = ", ".join(sorted(os.listdir(folder))) or "nothing"
    raise MissingFileError(f"--labelled {folder}: expected {' or '.join(possible)}, found: {found}")
