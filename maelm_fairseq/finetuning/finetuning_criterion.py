"""The loss of fine-tuning."""

import math

from ..fairseq_api import FairseqCriterion, metrics
from ..precision import autocast


class FineTuningCriterion(FairseqCriterion):
    """The loss of a `FineTuningTask`; its sample size is the number of targets."""

    def forward(self, model, sample, reduce=True):
        """Returns the loss (a sum), the number of targets, and the values to log."""
        return self.step(model, sample)[:3]

    def step(self, model, sample):
        """Returns what `forward` does, and the output of the head."""
        target = sample["target"]
        with autocast(self.task.cfg, target.device):
            output = self.task.compute_output(model, sample["net_input"])
        loss = self.task.compute_loss(output, target)
        ntargets = sample["ntargets"]
        unit = 1 if target.is_floating_point() else math.log(2)  # bits, of classes
        logged = {
            "loss": loss.detach() / unit,
            "sample_size": ntargets,
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
        }
        return loss, ntargets, logged, output

    @staticmethod
    def reduce_metrics(logging_outputs):
        """Logs the mean loss: in bits, or for numbers the squared error."""
        size = sum(log.get("sample_size", 0) for log in logging_outputs)
        loss = sum(log.get("loss", 0) for log in logging_outputs)
        metrics.log_scalar("loss", loss / max(size, 1), size, round=3)

    @staticmethod
    def logging_outputs_can_be_summed():
        return True
