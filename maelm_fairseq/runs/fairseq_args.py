"""Options that a recipe passes on to fairseq-train: parsed as it does, and refused where the recipe
sets them itself."""

from ..base.command_line import shorten_argparse_errors, suggest_option
from ..base.errors import UsageError
from ..base.option_fields import option_name
from ..fairseq_api import options
from ..training.option_checks import check_no_interpolation


def parse_fairseq_args(argv):
    """What fairseq-train makes of options, without --user-dir: the plugin is imported already."""
    shorten_argparse_errors()
    args = options.parse_args_and_arch(options.get_training_parser(), argv)
    check_no_interpolation(args)
    return args


def refuse_stray_value(fairseq_args):
    """Refuses further options that begin with a value: an option took fewer than it was given."""
    if fairseq_args and not fairseq_args[0].startswith("-"):
        advice = "remove it, or write its option before it"
        raise UsageError(f"{fairseq_args[0]}: found a value that belongs to no option; {advice}")


def refuse_recipe_options(names, recipe, whole, fairseq_args):
    """Refuses further options that change what a recipe itself sets.

    Args:
        names: names of what the recipe sets
        recipe: parsed options of the recipe alone
        whole: all parsed options
        fairseq_args: the words of the further options
    """
    for name in names:
        own = getattr(recipe, name, None)
        if own != getattr(whole, name, own):
            given = as_given(name, fairseq_args)
            advice = "leave it out; --help lists the options of the recipe itself"
            raise UsageError(f"{given}: the recipe sets it; {suggest_option(given)}{advice}")


def as_given(name, fairseq_args):
    """How an option was written; some have two spellings, as --max-sentences for --batch-size."""
    actions = options.get_training_parser()._option_string_actions
    for word in fairseq_args:
        spelling = word.partition("=")[0]
        if spelling in actions and actions[spelling].dest == name:
            return spelling
    return option_name(name)
