"""Compares an exported folder with the model, where transformers is installed."""

import os
import tempfile

import torch

from ..base.errors import UsageError
from .weights import CODE

TOLERANCE = 1e-4  # of features in float32; rounding gives some 3e-6


@torch.no_grad()
def compare_with_transformers(folder, config, model, texts):
    """Loads an exported folder with transformers and compares the features of some texts, lists of tokens.

    Returns a sentence that says what was found, or why nothing was compared. Different features raise a ValueError.
    """
    try:
        import transformers

        if config["model_type"] == CODE.model_type:
            from . import modeling_mae_lm as classes
        else:
            classes = transformers
        model_class = getattr(classes, config["architectures"][0])
    except Exception as error:  # it is not installed, or a broken installation of one of its packages raises another
        reason = " ".join(str(error).split())
        return f"features not compared: transformers cannot be imported ({reason}); pip install transformers"
    with tempfile.TemporaryDirectory() as place:  # safetensors opens no path that is not Unicode
        os.symlink(os.path.abspath(folder), os.path.join(place, "model"))
        loaded = model_class.from_pretrained(os.path.join(place, "model")).eval().base_model
    tokens = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in texts], True, model.pad)
    real = tokens.ne(model.pad)
    features = loaded(input_ids=tokens, attention_mask=real.long()).last_hidden_state
    difference = float((features - model.forward_encoder(tokens))[real].abs().max())
    which = f"transformers {transformers.__version__}"
    if not difference < TOLERANCE:
        raise UsageError(
            f"{which} computes other features from the export (difference {difference:.2g}): please report this, with "
            "config.json and the version"
        )
    return f"features of {len(texts)} lines of text: equal to {difference:.1g} in {which}"
