"""Options that several recipes share: what their own may be, and those of fairseq-train."""

import argparse
import os

RECIPES = os.path.dirname(os.path.abspath(__file__))
PLUGIN = os.path.join(os.path.dirname(RECIPES), "maelm_fairseq")
ADAM = ["--optimizer", "torch_adamw", "--adam-betas", "(0.9, 0.98)", "--adam-eps", 1e-6, "--weight-decay", 0.01]


def at_least(least):
    """The type of an option that is a whole number."""

    def number(text):
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a whole number, at least {least}, found {text!r}")
        return int(text)

    return number
