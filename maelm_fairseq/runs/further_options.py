"""Options that a recipe passes on to fairseq-train: parsed as it does, and refused where the recipe
sets them itself."""

from ..base.command_line import shorten_argparse_errors
from ..base.errors import UsageError
from ..base.settings import option
from ..engine import options
from ..training.run_options import check_texts


def parsed(words):
    """What fairseq-train makes of options, without --user-dir: the plugin is imported already."""
    shorten_argparse_errors()
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    check_texts(args)
    return args


def refuse_own(names, ours, theirs):
    """Refuses further options that change what a recipe itself sets.

    Args:
        names: of what the recipe sets
        ours: parsed options, without the further ones
        theirs: all parsed options
    """
    for name in names:
        own = getattr(ours, name, None)
        if own != getattr(theirs, name, own):
            raise UsageError(f"{option(name)}: the recipe sets it, to {own}; leave it out")
