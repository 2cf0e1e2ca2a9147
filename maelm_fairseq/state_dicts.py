"""Parts of a model's weights, in state dicts."""

import logging

logger = logging.getLogger(__name__)

HEADS = "classification_heads."  # what the names of the weights of fine-tuning heads begin with
ENCODER = ("embed_tokens.", "encoder.")  # and those of what every model has


def weights_of(weights, name):
    """The weights of one module: {name within it: tensor}."""
    return {key[len(name) + 1 :]: value for key, value in weights.items() if key.startswith(name + ".")}


def fit_parts(weights, own):
    """Gives a checkpoint's weights the parts of a model, in place: decoder, language-model head, fine-tuning heads.

    Parts that the model lacks are dropped. Those that the checkpoint lacks, or has in other shapes, are taken from the
    model's own: they are initialised anew. Both are state dicts.
    """
    keys = [key for key in {**own, **weights} if not key.startswith(ENCODER)]
    for name in dict.fromkeys(".".join(key.split(".")[: 2 if key.startswith(HEADS) else 1]) for key in keys):
        theirs, ours = weights_of(weights, name), weights_of(own, name)
        if {key: value.shape for key, value in theirs.items()} == {key: value.shape for key, value in ours.items()}:
            continue
        for key in theirs:
            del weights[f"{name}.{key}"]
        weights.update({f"{name}.{key}": value for key, value in ours.items()})
        logger.info("%s is newly initialised" if ours else "%s of the checkpoint is not used", name)
