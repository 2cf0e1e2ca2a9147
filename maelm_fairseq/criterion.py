"""The loss of pretraining and its log."""

import math

import torch
import torch.nn.functional as F

from .fairseq_api import FairseqCriterion, FairseqDataclass, metrics, register_criterion, utils
from .precision import autocast


@register_criterion("mae_lm", dataclass=FairseqDataclass)
class MaeLmCriterion(FairseqCriterion):
    """Cross-entropy summed over predicted positions; its sample size is their number."""

    def forward(self, model, sample, reduce=True):
        """Returns the loss (a sum, in nats), the number of predicted tokens, and the log."""
        target = sample["target"]
        with autocast(self.task.cfg, target.device):
            logits = model(**sample["net_input"])
        logits, target = logits.flatten(0, 1), target.flatten()
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        loss = F.cross_entropy(logits, target, reduction="sum", ignore_index=self.padding_idx)
        best = logits.detach().max(-1).indices  # on the CPU several times as fast as argmax
        correct = best.eq(target) & target.ne(self.padding_idx)
        logged = {
            "loss": loss.detach(),
            "correct": correct.sum(),
            "sample_size": sample["npredicted"],
            "visible": sample["nvisible"],
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
        }
        return loss, sample["npredicted"], logged

    @staticmethod
    def reduce_metrics(logging_outputs):
        """Logs loss in bits, ppl, accuracy in percent, predicted and visible tokens per update."""

        def total(key):
            return sum(log.get(key, 0) for log in logging_outputs)

        predicted = total("sample_size")
        count = predicted or 1  # possibly nothing was selected
        bits = total("loss") / count / math.log(2)
        metrics.log_scalar("loss", bits, predicted, round=3)
        metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["loss"].avg))
        metrics.log_scalar("accuracy", 100 * total("correct") / count, predicted, round=2)
        metrics.log_scalar("predicted", predicted, priority=170, round=1)
        metrics.log_scalar("visible", total("visible"), priority=171, round=1)

    @staticmethod
    def logging_outputs_can_be_summed():
        return True
