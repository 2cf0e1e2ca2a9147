"""Errors that are not the program's fault, and the line that users are told of each."""

import os

EXTRAS = {  # the extra that provides each optional package
    "matplotlib": "demo",
    **dict.fromkeys(["safetensors", "tokenizers"], "huggingface"),
    **dict.fromkeys(["pandas", "pycrfsuite", "scipy", "seqeval", "sklearn"], "finetune"),
}


class UsageError(ValueError):
    """A one-line message: the file or option, what was found, what was expected, what to do.

    It is a ValueError for programs that import this package.
    """


class MissingFileError(UsageError, FileNotFoundError):
    """A file or folder that does not exist."""


class InstallationError(UsageError, ImportError):
    """A package that is missing or does not work."""


def install_command(extra):
    """The command that installs one of this project's extras, into a clone that stays editable."""
    return f"pip install -c constraints.txt -e '.[{extra}]'"


def counted(number, noun):
    """A number of things, in words: `1 column`, `2 columns`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def one_line(error):
    """The line for the user about an error of the input, of the system or of the installation.

    Returns: the line; None for any other error
    """
    if isinstance(error, ModuleNotFoundError):
        package = error.name.partition(".")[0]
        if package in EXTRAS:
            return f"{error}: {install_command(EXTRAS[package])}"
    usage_error = error
    while usage_error is not None and not isinstance(usage_error, UsageError):
        usage_error = usage_error.__cause__ or usage_error.__context__
    if usage_error is not None:
        text = str(usage_error).strip()
        if "Original Traceback" in text:  # of a data loader's worker, before the message
            text = text.splitlines()[-1].partition("Error: ")[2]
        return " ".join(text.splitlines())
    if isinstance(error, OSError):
        return line_of_system(error)
    if is_out_of_memory(error):
        return "out of memory: reduce the size of the batch or sample, or get more memory"
    return None


def line_of_system(error):
    """The line for an error of the operating system: the paths, and what is wrong with them."""
    names = [error.filename, error.filename2]
    paths = [os.fsdecode(name) for name in names if isinstance(name, (str, bytes))]
    reason = error.strerror or " ".join(str(error).split())
    line = ": ".join([*dict.fromkeys(paths), reason])
    if isinstance(error, FileExistsError):
        line += "; expected a folder, or nothing yet; choose another path"
    elif isinstance(error, NotADirectoryError):
        line += "; there is a file where the path needs a folder; correct it, or choose another"
    return line


def is_out_of_memory(error):
    """Whether an error says that there was not enough memory.

    Python has an error of its own for it; PyTorch has none on the CPU.
    """
    if isinstance(error, MemoryError):
        return True
    text = str(error)
    return "can't allocate memory" in text or "out of memory" in text
