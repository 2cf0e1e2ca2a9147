"""Errors that are not the program's fault, reported in one line without a stack trace."""

import argparse
import contextlib
import logging
import os
import signal
import sys
import warnings

EXTRAS = {  # of packages that are imported when they are needed
    "matplotlib": "demo",
    **dict.fromkeys(["safetensors", "tokenizers"], "huggingface"),
    **dict.fromkeys(["pandas", "scipy", "seqeval", "sklearn"], "finetune"),
}
SHOW_TRACEBACK = "MAELM_TRACEBACK"  # set in the environment: stack traces, too


class UsageError(ValueError):
    """A one-line message that names the file or option, what was found, what was expected, and what to do."""


class MissingFileError(UsageError, FileNotFoundError):
    """A file or folder that does not exist."""


class InstallationError(UsageError, ImportError):
    """A package that is missing or does not work."""


class Store(argparse.Action):
    """Stores a value, or a list: one that is given in parts, as in `--train a --train b`, is joined."""

    def __call__(self, parser, namespace, values, option_string=None):
        before = getattr(namespace, self.dest, self.default)
        more = self.nargs == "+" and before is not self.default
        setattr(namespace, self.dest, [*before, *values] if more else values)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser of whole option names, whose errors are one line, and whose description stays as it is."""

    def __init__(self, *args, **options):
        more = {"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter}
        super().__init__(*args, **{**more, **options})
        self.register("action", None, Store)

    def parse_known_args(self, args=None, namespace=None):
        if "" in (sys.argv[1:] if args is None else args):  # such as of a variable that is not set
            self.error("found an empty value among the options, expected none")
        return super().parse_known_args(args, namespace)

    def error(self, message):
        message = message.replace("<lambda> ", "")  # the type of fairseq's numbers
        raise UsageError(f"{message} (--help lists the options)")


def shorten_argparse_errors():
    """Has all parsers of this process, also fairseq's, report errors in one line, without pages of usage."""
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
    """What the user is told of an error of the input, the operating system or the installation; None for others."""
    if isinstance(error, ModuleNotFoundError) and error.name.partition(".")[0] in EXTRAS:
        return f"{error}: {install(EXTRAS[error.name.partition('.')[0]])}"
    chain = error
    while chain is not None and not isinstance(chain, UsageError):
        chain = chain.__cause__ or chain.__context__
    if chain is not None:
        text = str(chain).strip()
        if "Original Traceback" in text:  # of a data loader's worker, before the message
            text = text.splitlines()[-1].partition("Error: ")[2]
        return " ".join(text.splitlines())
    if isinstance(error, OSError):
        paths = [os.fspath(path) for path in (error.filename, error.filename2) if isinstance(path, (str, bytes))]
        line = ": ".join([*dict.fromkeys(map(os.fsdecode, paths)), error.strerror or " ".join(str(error).split())])
        in_the_way = isinstance(error, (FileExistsError, NotADirectoryError))
        return line + "; expected a folder, or nothing yet; choose another path" * in_the_way
    if is_out_of_memory(error):
        return "out of memory: use a smaller batch or sample, or a machine with more"
    return None


def is_out_of_memory(error):
    """Whether there was not enough memory, by Python or by PyTorch, which has no error of its own for it on the CPU."""
    text = str(error)
    return isinstance(error, MemoryError) or "can't allocate memory" in text or "out of memory" in text


def run(main):
    """Runs the `main()` of one of this project's programs: quietly, with errors of `one_line` in one line.

    Ctrl-C ends it as a signal does, and so does a closed pipe, when what is half done has been removed. A
    program that is killed leaves it under a hidden name; the next run removes it.
    """
    logging.disable(logging.INFO)
    logging.raiseExceptions = False  # who reads what is printed may be gone: printing ends the program
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
        os._exit(1)  # sys.exit would wait for a pool of processes, which may never end after one was killed


def show_anything():
    """Lets this process print any text, also names of files that are not UTF-8, wherever its output goes."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # whoever started this has closed it
            setattr(sys, name, open(os.devnull, "w"))
        elif hasattr(stream, "reconfigure"):
            as_they_are = name == "stdout" and stream.encoding.lower() == "utf-8"
            stream.reconfigure(errors="surrogateescape" if as_they_are else "backslashreplace")


def print_error(line):
    """Prints an error on standard error."""
    print("error: " + line, file=sys.stderr, flush=True)


def end_by(number):
    """Ends this process as an unhandled signal would."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
