"""Command lines: a parser that reports errors in one line, and types of its options."""

import argparse
import contextlib
import difflib
import re
import sys

from .errors import UsageError


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that takes whole option names only, and reports errors in one line.

    Its description is shown as it is.
    """

    known_options = set()  # of all parsers that this process has used, for suggestions

    def __init__(self, *args, **options):
        defaults = {
            "allow_abbrev": False,
            "formatter_class": argparse.RawDescriptionHelpFormatter,
        }
        super().__init__(*args, **{**defaults, **options})

    def parse_known_args(self, args=None, namespace=None):
        for word in sys.argv[1:] if args is None else args:
            if re.fullmatch(r"(--[\w-]+=)?", word):  # such as of a variable that is not set
                value = f"value of {word}" if word else "value"
                self.error(f"found an empty {value}; give one, or leave it out")
        Parser.known_options.update(self._option_string_actions)
        return super().parse_known_args(args, namespace)

    def error(self, message):
        message = message.replace("<lambda> ", "")  # the type of fairseq's numbers
        Parser.known_options.update(self._option_string_actions)
        unknown = re.match(r"unrecognized arguments: (--[\w-]+)", message)
        hint = suggest_option(unknown[1]) if unknown else ""
        raise UsageError(f"{message} ({hint}--help lists the options)")


def suggest_option(name):
    """A question for a user who may have meant an option with a similar name; empty if none has.

    It begins with the same letter, and is not the opposite.
    """
    is_negative = name.startswith("--no-")
    others = []
    for other in sorted(Parser.known_options - {name}):
        if other[:3] == name[:3] and other.startswith("--no-") == is_negative:
            others.append(other)
    similar = difflib.get_close_matches(name, others, n=1, cutoff=0.8)
    return f"did you mean {similar[0]}? " if similar else ""


def script_and_options(scripts):
    """The arguments of a program that shell scripts call: what the script is, and its options.

    Args:
        scripts: what users call, by the first argument that each passes
    Raises:
        UsageError: a user called the program itself
    """
    script, *argv = sys.argv[1:] or [""]
    if script not in scripts:
        names = ", ".join(scripts.values())
        raise UsageError(
            f"{sys.argv[0]}: found {script or 'nothing'} as its first argument, which the scripts "
            f"that call it set; run one of {names}"
        )
    return script, argv


def shorten_argparse_errors():
    """Makes all parsers of this process, also fairseq's, report errors in one line."""
    argparse.ArgumentParser.error = Parser.error


def number_in_range(minimum, maximum=2**31 - 1, number_type=int):
    """The type of an option that is a number in a range."""

    def value(text):
        with contextlib.suppress(ValueError):
            if minimum <= number_type(text) <= maximum:
                return number_type(text)
        what = "an integer" if number_type is int else "a number"
        raise argparse.ArgumentTypeError(
            f"expected {what} from {minimum} to {maximum}, found {text!r}"
        )

    return value


def folder_name(text):
    """The name of a folder as fairseq can be given it: a type for argparse."""
    if text.startswith("-"):  # fairseq would take it for an option
        return "./" + text
    return text


def check_different_names(names, count):
    """Refuses `--names` that are not one for each of `count` checkpoints, all different."""
    if len(names) != count or len(set(names)) != count:
        raise UsageError(
            f"--names: found {' '.join(names)}, expected {count} different names, one for each "
            "checkpoint; the default is the names of the files"
        )
