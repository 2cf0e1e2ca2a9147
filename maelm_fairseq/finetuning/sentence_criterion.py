"""fairseq's loss for fine-tuning on single texts and pairs, also in bfloat16."""

from dataclasses import dataclass

from ..engine import SentencePredictionConfig, SentencePredictionCriterion, register_criterion
from ..precision import PrecisionConfig, autocast, check_precision


@dataclass
class MaeLmSentencePredictionConfig(SentencePredictionConfig, PrecisionConfig):
    pass


@register_criterion("mae_lm_sentence_prediction", dataclass=MaeLmSentencePredictionConfig)
class MaeLmSentencePredictionCriterion(SentencePredictionCriterion):
    """fairseq's `sentence_prediction` with the option --bf16-autocast."""

    def __init__(self, cfg, task):
        check_precision(cfg)
        super().__init__(cfg, task)
        self.precision = cfg

    def forward(self, model, sample, reduce=True):
        """Returns the loss in nats (a sum), the number of examples, and the values to log."""
        with autocast(self.precision, sample["net_input"]["src_tokens"].device):
            return super().forward(model, sample, reduce)
