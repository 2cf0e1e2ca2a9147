"""Options of fairseq-train that several recipes share."""

import os

from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.config import option

RECIPES = os.path.dirname(os.path.abspath(__file__))
PLUGIN = os.path.join(os.path.dirname(RECIPES), "maelm_fairseq")
ADAM = ["--optimizer", "torch_adamw", "--adam-betas", "(0.9, 0.98)", "--adam-eps", 1e-6, "--weight-decay", 0.01]


def refuse_own(names, ours, theirs):
    """Refuses further options that change what a recipe itself sets.

    Args:
        names: of what it sets
        ours, theirs: fairseq's options without the further ones, and with them
    """
    for name in names:
        if getattr(ours, name) != getattr(theirs, name):
            raise UsageError(f"{option(name)}: the recipe sets it, to {getattr(ours, name)}; leave it out")
