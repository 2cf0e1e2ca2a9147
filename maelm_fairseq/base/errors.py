"""Errors that are not the program's fault, reported in one line without a stack trace."""

import argparse
import contextlib
import logging
import os
import signal
import sys
import warnings

EXTRAS = {  # which extra has each package that is imported only where it is needed
    "matplotlib": "demo",
    **dict.fromkeys(["safetensors", "tokenizers"], "huggingface"),
    **dict.fromkeys(["pandas", "scipy", "seqeval", "sklearn"], "finetune"),
}
SHOW_TRACEBACK = "MAELM_TRACEBACK"  # set in the environment, it shows stack traces, too


class UsageError(ValueError):
    """A one-line message: the file or option, what was found, what was expected, what to do."""


class MissingFileError(UsageError, FileNotFoundError):
    """A file or folder that does not exist."""


class InstallationError(UsageError, ImportError):
    """A package that is missing or does not work."""


class Store(argparse.Action):
    """Stores a value, or a list, which may be given in parts: `--train a --train b` is joined."""

    def __call__(self, parser, namespace, values, option_string=None):
        before = getattr(namespace, self.dest, self.default)
        is_continued = self.nargs == "+" and before is not self.default
        setattr(namespace, self.dest, [*before, *values] if is_continued else values)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that takes whole option names only, and reports errors in one line.

    Its description is shown as it is.
    """

    def __init__(self, *args, **options):
        defaults = {
            "allow_abbrev": False,
            "formatter_class": argparse.RawDescriptionHelpFormatter,
        }
        super().__init__(*args, **{**defaults, **options})
        self.register("action", None, Store)

    def parse_known_args(self, args=None, namespace=None):
        if "" in (sys.argv[1:] if args is None else args):  # such as of a variable that is not set
            self.error("found an empty value among the options, expected none")
        return super().parse_known_args(args, namespace)

    def error(self, message):
        message = message.replace("<lambda> ", "")  # the type of fairseq's numbers
        raise UsageError(f"{message} (--help lists the options)")


def shorten_argparse_errors():
    """Has all parsers of this process, also fairseq's, report errors in one line, without usage."""
    argparse.ArgumentParser.error = Parser.error


def within(least, most=2**31 - 1, kind=int):
    """The type of an option that is a number in a range."""

    def value(text):
        with contextlib.suppress(ValueError):
            if least <= kind(text) <= most:
                return kind(text)
        what = "a whole number" if kind is int else "a number"
        raise argparse.ArgumentTypeError(f"expected {what} from {least} to {most}, found {text!r}")

    return value


def install(extra):
    """The command that installs one of this project's extras, into a clone that stays editable."""
    return f"pip install -c constraints.txt -e '.[{extra}]'"


def one_line(error):
    """What the user is told of an error, if it is one of the input, the system or the installation.

    Returns: the line; None for any other error
    """
    if isinstance(error, ModuleNotFoundError):
        package = error.name.partition(".")[0]
        if package in EXTRAS:
            return f"{error}: {install(EXTRAS[package])}"
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
        return "out of memory: use a smaller batch or sample, or a machine with more"
    return None


def line_of_system(error):
    """The line for an error of the operating system: the paths, and what is wrong with them."""
    names = [error.filename, error.filename2]
    paths = [os.fsdecode(name) for name in names if isinstance(name, (str, bytes))]
    reason = error.strerror or " ".join(str(error).split())
    line = ": ".join([*dict.fromkeys(paths), reason])
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        line += "; expected a folder, or nothing yet; choose another path"
    return line


def is_out_of_memory(error):
    """Whether an error says that there was not enough memory.

    Python has an error of its own for it; PyTorch has none on the CPU.
    """
    if isinstance(error, MemoryError):
        return True
    text = str(error)
    return "can't allocate memory" in text or "out of memory" in text


def run(main):
    """Runs the `main()` of one of this project's programs: quietly, with errors in one line.

    Ctrl-C ends it as the signal would, and a closed pipe does, too, but only after half-written
    output has been removed. A program that is killed leaves such output under a hidden name; the
    next run removes it.
    """
    logging.disable(logging.INFO)
    # Whoever reads the output may be gone. Logging ignores that; the next print ends the program.
    logging.raiseExceptions = False
    warnings.simplefilter("ignore")
    show_anything()
    try:
        main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        end_by(signal.SIGINT)
    except BrokenPipeError:
        end_by(signal.SIGPIPE)
    except Exception as error:
        line = one_line(error)
        if line is None or SHOW_TRACEBACK in os.environ:
            raise
        with contextlib.suppress(OSError):  # which may be the error
            sys.stdout.flush()
        print_error(line)
        # sys.exit would wait for a pool of processes, which may never end after one was killed.
        os._exit(1)


def show_anything():
    """Lets this process print any text, wherever its output goes.

    That includes names of files that are not UTF-8.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # whoever started this has closed it
            setattr(sys, name, open(os.devnull, "w"))
        elif hasattr(stream, "reconfigure"):
            keeps_bytes = name == "stdout" and stream.encoding.lower() == "utf-8"
            stream.reconfigure(errors="surrogateescape" if keeps_bytes else "backslashreplace")


def print_error(line):
    """Prints an error on standard error."""
    print("error: " + line, file=sys.stderr, flush=True)


def end_by(number):
    """Ends this process as an unhandled signal would."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
