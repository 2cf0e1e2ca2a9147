"""Compares an exported folder with the model, where transformers is installed."""

import importlib.util

import torch

from ..engine.errors import UsageError
from .weights import CODE

TOLERANCE = 1e-4  # of features in float32; rounding gives some 3e-6


@torch.no_grad()
def compare_with_transformers(folder, config, model, texts):
    """Loads an exported folder with transformers and compares the features of some texts, lists of tokens.

    Returns a sentence that says what was found, or why nothing was compared. Different features raise a ValueError.
    """
    if importlib.util.find_spec("transformers") is None:
        return "features not compared with transformers, which is not installed here"
    try:
        import transformers
        from transformers.utils import logging

        if config["model_type"] == CODE.model_type:
            from . import modeling_mae_lm as classes
        else:
            classes = transformers
        model_class = getattr(classes, config["architectures"][0])
    except Exception as error:  # an ImportError, or whatever a broken installation of one of its packages raises
        return f"features not compared: transformers cannot be imported ({' '.join(str(error).split())})"
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        loaded = model_class.from_pretrained(folder).eval().base_model
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
    longest = max(map(len, texts))
    tokens = torch.tensor([row + [model.pad] * (longest - len(row)) for row in texts])
    real = tokens.ne(model.pad)
    found = loaded(input_ids=tokens, attention_mask=real.long()).last_hidden_state
    difference = float((found - model.forward_encoder(tokens))[real].abs().max())
    if not difference < TOLERANCE:
        raise UsageError(
            f"transformers {transformers.__version__} computes other features from the export (difference "
            f"{difference:.2g}): please report this, with config.json and the version"
        )
    return (
        f"features of {len(texts)} lines of text: equal to {difference:.1g} in transformers {transformers.__version__}"
    )
