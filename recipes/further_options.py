"""Options that a recipe hands on to fairseq-train: parsed as it does, and refused where the recipe sets them itself."""

import argparse

from maelm_fairseq.base.errors import Parser, UsageError
from maelm_fairseq.config import option
from maelm_fairseq.engine import options


def parsed(words):
    """What fairseq-train makes of options, without --user-dir: the plugin is imported already."""
    argparse.ArgumentParser.error = Parser.error  # without hundreds of lines of usage
    return options.parse_args_and_arch(options.get_training_parser(), words)


def refuse_own(names, ours, theirs):
    """Refuses further options that change what a recipe itself sets.

    Args:
        names: of what it sets
        ours, theirs: fairseq's options without the further ones, and with them
    """
    for name in names:
        if getattr(ours, name) != getattr(theirs, name):
            raise UsageError(f"{option(name)}: the recipe sets it, to {getattr(ours, name)}; leave it out")
