"""Reads whole checkpoint files, with tensors and plain values alone. Nothing is executed."""

import os
import pickle
import zipfile
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import torch

from ..base.errors import InstallationError, UsageError
from ..base.opening import as_usage_error, open_to_read

if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
    raise InstallationError(
        f"torch {torch.__version__} executes code from some checkpoints, even when told to read "
        "weights only (CVE-2025-32434); this needs torch 2.6 or newer: "
        "pip install -c constraints.txt ."
    )

PLAIN_TYPES = {str, bytes, int, float, bool, type(None)}
PLAIN_DTYPES = {torch.float64, torch.float32, torch.float16, torch.bfloat16}
PLAIN_DTYPES |= {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool}


def read_torch_file(path, writer="fairseq-train", allow_old_format=False):
    """Reads what torch.save wrote onto the CPU; nothing in it is executed.

    Args:
        path: path of the file
        writer: the program that writes such files, for the error message
        allow_old_format: read files from before PyTorch 1.6, too
    Returns: dicts, lists, tuples, sets, dense tensors, strings and numbers, of these types, not of
        subclasses; keys are strings or integers
    Raises:
        FileNotFoundError: there is no such file
        UsageError: it is damaged, or contains anything else
        OSError: it cannot be read; MemoryError, or PyTorch's own: it does not fit into memory
    """
    expected = f"a complete file of {writer}"
    advice = "copy it again, or use another"
    with (
        open_to_read(path, "a checkpoint (a .pt file)") as stream,
        as_usage_error(path, expected, advice),
    ):
        try:
            if allow_old_format and stream.read(2) != b"PK":
                stream.seek(0)
                loaded = torch.load(stream, map_location="cpu", weights_only=True)
                size = stream.seek(0, os.SEEK_END)
                return Copier(size).copy(loaded)
            return read_archive(stream)
        except Damaged as error:
            raise UsageError(f"{path}: damaged: {error}; expected {expected}; {advice}") from None
        except pickle.UnpicklingError:  # PyTorch's message recommends loading it nevertheless
            raise ValueError(
                "objects that are neither tensors nor plain values, which were not loaded"
            ) from None


class Damaged(Exception):
    """A file is not one that PyTorch writes, is not whole, or was changed."""


def read_archive(stream):
    """What is in an open file of PyTorch's.

    The whole file is compared with its checksums while it is loaded: PyTorch stores a CRC-32 of
    each tensor, but does not look at it when it loads them.

    Raises Damaged; and whatever PyTorch raises
    """
    try:
        archive = zipfile.ZipFile(stream)
        size = os.fstat(stream.fileno()).st_size
        check_members(archive.infolist(), size)
        with ThreadPoolExecutor(1) as background:
            check = background.submit(archive.testzip)
            try:
                # The path need not be UTF-8, and may lead to another file by now.
                path = f"/dev/fd/{stream.fileno()}"
                loaded = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
                return Copier(size).copy(loaded)
            finally:
                # A wrong checksum is reported instead of the errors that follow from the damage.
                corrupt_member = check.result()
                if corrupt_member:
                    raise Damaged(f"the checksum of {corrupt_member} in it does not match")
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        size = stream.seek(0, os.SEEK_END)
        reason = f"its end is missing or overwritten ({error})" if size else "it is empty"
        raise Damaged(reason) from None


def check_members(members, size):
    """Refuses an archive that PyTorch has not written; `size` is the length of the file."""
    if any(member.filename.endswith("/constants.pkl") for member in members):
        raise Damaged("it is a program of TorchScript")
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise Damaged("its members are compressed, unlike PyTorch's")
    if sum(member.file_size for member in members) > size:
        raise Damaged("its members overlap")


class Copier:
    """Copies what was loaded, so that nothing depends on the file any longer.

    It refuses values of any type that `read_torch_file` does not return, and tensors that PyTorch
    loads although they are without numbers, or of one number that is repeated billions of times.
    """

    def __init__(self, size):
        # By the `id` of the original: a container in several places is one container in the copy.
        self._copies = {}
        # How many more bytes tensors of a file of this size may have. Those that share memory in it
        # do not share it in the copy.
        self._left = 4 * size

    def copy(self, value):
        """The copy of a value.

        Raises ValueError: it contains more than tensors, plain values, and containers of them
        """
        value_type = type(value)
        if value_type in PLAIN_TYPES:
            return value
        if value_type in (torch.Tensor, torch.nn.Parameter):
            return self._tensor(value.detach())
        if id(value) not in self._copies:
            self._copies[id(value)] = value, self._copy(value, value_type)
        return self._copies[id(value)][1]

    def _copy(self, value, value_type):
        if value_type in (dict, OrderedDict):
            for key in value:
                if type(key) not in (str, int):
                    raise ValueError(
                        f"a key of type {type(key).__name__}, expected a string or an integer"
                    )
            return {self.copy(key): self.copy(item) for key, item in value.items()}
        if value_type in (list, tuple, set):
            return value_type(map(self.copy, value))
        found = f"a value of type {value_type.__name__}"
        raise ValueError(f"{found}, expected tensors, numbers and texts")

    def _tensor(self, tensor):
        if (
            tensor.is_nested
            or tensor.layout != torch.strided
            or tensor.device.type != "cpu"
            or tensor.dtype not in PLAIN_DTYPES
        ):
            found = f"{tensor.layout}, {tensor.device.type}, {tensor.dtype}"
            raise ValueError(
                f"a tensor of another kind ({found}), expected a dense one with its numbers"
            )
        size = tensor.numel() * tensor.element_size()
        start = tensor.storage_offset() * tensor.element_size()
        if size > tensor.untyped_storage().nbytes() - start:
            raise ValueError(
                f"a tensor of the shape {tuple(tensor.shape)} with fewer numbers than that"
            )
        self._left -= size
        if self._left < 0:
            raise ValueError("tensors that share memory, and are far larger than the file")
        return tensor.clone(memory_format=torch.contiguous_format)
