"""What is read from checkpoint files: whole ones, and tensors and plain values alone. Nothing is executed."""

import os
import pickle
import zipfile
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import torch

from ..base.errors import InstallationError, UsageError
from ..base.opening import opened, reading

if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
    raise InstallationError(
        f"torch {torch.__version__} executes code from some checkpoints, even when told to read weights only "
        "(CVE-2025-32434); this needs torch 2.6 or newer: pip install -c constraints.txt ."
    )

PLAIN = {str, bytes, int, float, bool, type(None)}
DTYPES = {torch.float64, torch.float32, torch.float16, torch.bfloat16}
DTYPES |= {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool}


def read_file(path, writer="fairseq-train", old=False):
    """Reads what torch.save wrote onto the CPU; nothing in it is executed.

    Args:
        path: of the file
        writer: the program that writes such files, for the error message
        old: read files from before PyTorch 1.6, too
    Returns: dicts, lists, tuples, sets, dense tensors, texts and numbers, of these exact types; keys are texts or whole
        numbers
    Raises:
        FileNotFoundError: there is no such file
        ValueError: it is damaged, or contains anything else
        OSError: it cannot be read; MemoryError, or PyTorch's own: it does not fit into memory
    """
    expected, fix = f"a complete file of {writer}", "copy it again, or use another"
    with opened(path, "a checkpoint (a .pt file)") as stream, reading(path, expected, fix):
        try:
            if old and stream.read(2) != b"PK":
                stream.seek(0)
                loaded = torch.load(stream, map_location="cpu", weights_only=True)
                return Copier(stream.seek(0, 2)).copy(loaded)
            return read_archive(stream)
        except Damaged as error:
            raise UsageError(f"{path}: damaged: {error}; expected {expected}; {fix}") from None
        except pickle.UnpicklingError:  # PyTorch's text recommends to load it nevertheless
            raise ValueError("objects that are neither tensors nor plain values, which were not loaded") from None


class Damaged(Exception):
    """A file is none that PyTorch writes, not whole, or changed."""


def read_archive(stream):
    """What is in an open file of PyTorch's.

    The whole file is compared with its checksums while it is loaded: PyTorch stores a CRC-32 of each tensor, but does
    not look at it when it loads them.

    Raises Damaged; and what PyTorch does
    """
    try:
        archive = zipfile.ZipFile(stream)
        members = archive.infolist()
        if any(member.filename.endswith("/constants.pkl") for member in members):
            raise Damaged("it is a program of TorchScript")
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise Damaged("its members are compressed, unlike PyTorch's")
        size = os.fstat(stream.fileno()).st_size
        if sum(member.file_size for member in members) > size:
            raise Damaged("its members overlap")
        with ThreadPoolExecutor(1) as background:
            checked = background.submit(archive.testzip)
            try:  # by its number: the path need not be UTF-8, and may lead to another file by now
                place = f"/dev/fd/{stream.fileno()}"
                loaded = torch.load(place, map_location="cpu", mmap=True, weights_only=True)
                return Copier(size).copy(loaded)
            finally:
                wrong = checked.result()  # rather than what follows from it
                if wrong:
                    raise Damaged(f"the checksum of {wrong} in it does not match")
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        is_empty = not stream.seek(0, 2)
        raise Damaged("it is empty" if is_empty else f"its end is missing or overwritten ({error})") from None


class Copier:
    """Copies what was loaded, so that nothing depends on the file any longer, and refuses what is not in PLAIN.

    PyTorch itself loads tensors without numbers, or of one number that is repeated billions of times, and more.
    """

    def __init__(self, size):
        self._copies = {}  # by the number of the original: containers that are in several places are so in the copy
        self._left = 4 * size  # bytes; tensors may share memory, but get their own

    def copy(self, value):
        """Raises ValueError: it contains something else than plain values, containers of them, and tensors."""
        kind = type(value)
        if kind in PLAIN:
            return value
        if kind in (torch.Tensor, torch.nn.Parameter):
            return self._tensor(value.detach())
        if id(value) not in self._copies:
            self._copies[id(value)] = value, self._copy(value, kind)
        return self._copies[id(value)][1]

    def _copy(self, value, kind):
        if kind in (dict, OrderedDict):
            for key in value:
                if type(key) not in (str, int):
                    raise ValueError(f"a key of type {type(key).__name__}, expected a text or a whole number")
            return {self.copy(key): self.copy(each) for key, each in value.items()}
        if kind in (list, tuple, set):
            return kind(map(self.copy, value))
        raise ValueError(f"a value of type {kind.__name__}, expected tensors, numbers and texts")

    def _tensor(self, tensor):
        if (
            tensor.is_nested
            or tensor.layout != torch.strided
            or tensor.device.type != "cpu"
            or tensor.dtype not in DTYPES
        ):
            kind = f"{tensor.layout}, {tensor.device.type}, {tensor.dtype}"
            raise ValueError(f"a tensor of another kind ({kind}), expected a dense one with its numbers")
        size, start = tensor.numel() * tensor.element_size(), tensor.storage_offset() * tensor.element_size()
        if size > tensor.untyped_storage().nbytes() - start:
            raise ValueError(f"a tensor of the shape {tuple(tensor.shape)} with fewer numbers than that")
        self._left -= size
        if self._left < 0:
            raise ValueError("tensors that share memory, and are far larger than the file")
        return tensor.clone(memory_format=torch.contiguous_format)
