"""The head of a fine-tuned model, and its outputs for tokens.

Letters in shapes: T tokens of a text.
"""

import torch

from ..base.errors import UsageError
from ..heads import only_head_name
from .encoding import Encoding


class FineTuned(Encoding):
    """A model with a head."""

    def _head(self):
        """The head of fine-tuning; refuses a model without one."""
        heads = self.model.classification_heads
        name = only_head_name(heads)
        if name is None:
            raise UsageError("the checkpoint has no head: predictions need a fine-tuned model")
        return heads[name]

    @torch.no_grad()
    def _logits(self, head, sequences):
        """The float32 logits of n texts (T_i,) on the CPU.

        Returns: a list of n, (classes,) each, or (T_i, classes)
        """
        if not sequences:
            return []
        logits = [None] * len(sequences)
        for indices, padding, hidden_states in self._layers_of_batches(self._pad(sequences)):
            outputs = head(hidden_states[-1], padding=padding).float().cpu()
            for i, output, real in zip(indices.tolist(), outputs, ~padding.cpu()):
                logits[i] = output[real] if output.dim() == 2 else output
        return logits
