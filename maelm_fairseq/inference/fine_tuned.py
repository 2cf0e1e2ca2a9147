"""The head of a fine-tuned model, and its outputs for tokens.

Letters in shapes: T tokens of a text.
"""

import torch

from ..base.errors import UsageError
from ..heads import only_head_name


def head_of(mae_lm):
    """The head of fine-tuning of a `hub.MaeLm`; refuses a model without one."""
    heads = mae_lm.model.classification_heads
    name = only_head_name(heads)
    if name is None:
        raise UsageError("the checkpoint has no head: predictions need a fine-tuned model")
    return heads[name]


@torch.no_grad()
def logits_of_texts(mae_lm, head, sequences):
    """The float32 logits of n texts (T_i,) on the CPU.

    Returns: a list of n, (classes,) each, or (T_i, classes)
    """
    if not sequences:
        return []
    logits = [None] * len(sequences)
    for indices, padding, hidden_states in mae_lm.layers_of_batches(mae_lm.pad(sequences)):
        outputs = head(hidden_states[-1], padding=padding).float().cpu()
        for i, output, real in zip(indices.tolist(), outputs, ~padding.cpu()):
            logits[i] = output[real] if output.dim() == 2 else output
    return logits
