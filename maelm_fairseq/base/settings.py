"""Fields of dataclasses that are options of fairseq."""

from dataclasses import field


def setting(default, help):
    """A field with a default, and with the text that --help shows of its option."""
    return field(default=default, metadata={"help": help})
