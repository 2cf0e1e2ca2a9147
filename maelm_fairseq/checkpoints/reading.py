"""What is read from checkpoint files: whole ones, and tensors and plain values alone. Nothing is executed."""

import os
import pickle
import zipfile

import torch

from ..base.errors import InstallationError, MissingFileError, UsageError, is_out_of_memory

if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
    raise InstallationError(
        f"torch {torch.__version__} executes code from some checkpoints, even when told to read weights only "
        "(CVE-2025-32434); this needs torch 2.6 or newer: pip install -c constraints.txt ."
    )


def damage(path):
    """What is wrong with a checkpoint file as a file, or None: not one that PyTorch writes, not whole, or changed.

    Reads the whole file once. PyTorch stores a CRC-32 of each tensor but does not look at it when it loads them.

    Raises OSError: it cannot be read
    """
    if not os.path.isfile(path):
        return "it is not a file"
    size = os.path.getsize(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if any(member.filename.endswith("/constants.pkl") for member in members):
                return "it is a program of TorchScript"
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                return "its members are compressed, unlike PyTorch's"
            if sum(member.file_size for member in members) > size:
                return "its members overlap"
            wrong = archive.testzip()
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError):
        return "its end is missing or overwritten" if size else "it is empty"
    return f"the checksum of {wrong} in it does not match" if wrong else None


def read_file(path, writer="fairseq-train", old=False):
    """Reads what torch.save wrote onto the CPU; nothing in it is executed.

    Args:
        path: of the file
        writer: the program that writes such files, for the error message
        old: read files from before PyTorch 1.6, too
    Returns: dicts, lists, tuples, sets, tensors, texts and numbers
    Raises:
        FileNotFoundError: there is no such file
        ValueError: it is damaged, or contains anything else
        OSError: it cannot be read; MemoryError, or PyTorch's own: it does not fit into memory
    """
    if not os.path.isfile(path):
        raise MissingFileError(f"{path}: not found, expected a checkpoint (a .pt file)")
    fix = f"expected a complete file of {writer}; copy it again, or use another"
    with open(path, "rb") as stream:
        is_old = old and stream.read(2) != b"PK"
    if not is_old:
        wrong = damage(path)
        if wrong:
            raise UsageError(f"{path}: damaged: {wrong}; {fix}")
    try:
        with open(path, "rb") as stream:
            return torch.load(stream, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except pickle.UnpicklingError:
        contents = "objects that are neither tensors nor plain values, which were not loaded"
        raise UsageError(f"{path}: cannot be read as a checkpoint: it contains {contents}; {fix}") from None
    except Exception as error:  # the type depends on the file's contents
        if is_out_of_memory(error):
            raise
        reason = (str(error).splitlines() or [""])[0][:200]
        raise UsageError(f"{path}: cannot be read as a checkpoint ({type(error).__name__}: {reason}); {fix}") from None
