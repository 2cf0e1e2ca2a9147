"""Parts of a model's weights, in state dicts."""

import logging

logger = logging.getLogger(__name__)

# How the names of weights begin: in fine-tuning heads, and in every model.
HEAD_PREFIX = "classification_heads."
ENCODER_PREFIXES = ("embed_tokens.", "encoder.")


def select_module(weights, name):
    """The weights of one module: {name within it: tensor}."""
    prefix = name + "."
    return {
        key.removeprefix(prefix): value for key, value in weights.items() if key.startswith(prefix)
    }


def has_lm_head(weights):
    """Whether a state dict has a language-model head; only models of pretraining have one."""
    return "lm_head.bias" in weights


def reset_mismatched_parts(weights, model_weights):
    """Adapts a checkpoint's weights, in place, to the parts that a model has.

    The parts are the decoder, the language-model head and fine-tuning heads. Those that the model
    lacks are dropped. Those that the checkpoint lacks, or has in other shapes, are taken from the
    model's own weights: they are newly initialised.

    Args:
        weights: state dict of the checkpoint
        model_weights: state dict of the model
    """
    keys = [key for key in {**model_weights, **weights} if not key.startswith(ENCODER_PREFIXES)]
    for name in dict.fromkeys(map(part_of_weight, keys)):
        saved_part = select_module(weights, name)
        model_part = select_module(model_weights, name)
        if weight_shapes(saved_part) == weight_shapes(model_part):
            continue
        for key in saved_part:
            del weights[f"{name}.{key}"]
        weights.update({f"{name}.{key}": value for key, value in model_part.items()})
        outcome = "is newly initialised" if model_part else "of the checkpoint is not used"
        logger.info(f"{name} {outcome}")


def part_of_weight(key):
    """The part that a weight belongs to; each head is one of its own."""
    depth = 2 if key.startswith(HEAD_PREFIX) else 1
    return ".".join(key.split(".")[:depth])


def weight_shapes(weights):
    """The shapes of weights, {name: tuple}."""
    return {name: tuple(weight.shape) for name, weight in weights.items()}
