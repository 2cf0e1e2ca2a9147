"""Example of an objective of your own: replaced-token detection beside MAE-LM.

The folder is a plugin for `--user-dir`.

Letters in shapes: B sequences, T tokens of the context, which are seen and not predicted,
K predicted tokens, N vocabulary.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.models import register_model
from torch import nn

from maelm_fairseq.config import MaeLmConfig
from maelm_fairseq.criterion import MaeLmCriterion
from maelm_fairseq.model import MaeLmModel

REPLACED = 0.1  # share of the real tokens


@register_model("mae_lm_detection", dataclass=MaeLmConfig)
class Detection(MaeLmModel):
    """An MAE-LM with a linear head on the encoder's output that detects replaced tokens.

    In training, some real tokens are replaced by others from the batch.
    """

    def __init__(self, cfg, dictionary, needs_lm_head):
        super().__init__(cfg, dictionary, needs_lm_head)
        self.bos = dictionary.bos()
        if needs_lm_head:
            self.detection_head = nn.Linear(cfg.encoder_embed_dim, 1)

    def replace(self, tokens):
        """Replaces a share of the real tokens by others from the batch.

        Args:
            tokens: (B, T), perhaps padded

        Returns: the tokens, (B, T), and whether each differs from what it was, (B, T)
        """
        real = tokens.ne(self.pad) & tokens.ne(self.bos)
        pool = tokens[real]
        others = tokens
        if len(pool):
            others = pool[torch.randint(len(pool), tokens.shape, device=tokens.device)]
        chosen = real & (torch.rand(tokens.shape, device=tokens.device) < REPLACED)
        shown = torch.where(chosen, others, tokens)
        return shown, shown.ne(tokens)

    def forward(
        self,
        src_tokens,
        positions=None,
        masked_positions=None,
        num_predicted=None,
        has_padding=True,
        **fine_tuning,
    ):
        """The logits of the predicted tokens, (B, K, N).

        In training also the logits of detection for the context, (B, T), and what they should
        say: whether each token was replaced, (B, T). In fine-tuning, as MAE-LM.
        """
        if self.lm_head is None:
            return super().forward(src_tokens, positions, has_padding=has_padding, **fine_tuning)
        context = src_tokens.size(1) + masked_positions.size(1) - num_predicted
        replaced = None
        if self.training:
            shown, replaced = self.replace(src_tokens[:, :context])
            src_tokens = torch.cat([shown, src_tokens[:, context:]], dim=1)
        if self.decoder is None:
            rows = self.forward_encoder_with_masks(
                src_tokens, positions, masked_positions, None, has_padding
            )
            predicted = rows[:, rows.size(1) - num_predicted :]
        else:
            rows = self.forward_encoder(src_tokens, positions, has_padding)
            predicted = self.forward_decoder(
                rows, positions, masked_positions, num_predicted, has_padding
            )
        logits = self.lm_head(predicted, self.embed_tokens.weight)
        if replaced is None:
            return logits
        return logits, self.detection_head(rows[:, :context]).squeeze(-1), replaced


@dataclass
class DetectionConfig(FairseqDataclass):
    detection_weight: float = field(default=1.0, metadata={"help": "of the mean detection loss"})


@register_criterion("mae_lm_detection", dataclass=DetectionConfig)
class DetectionCriterion(MaeLmCriterion):
    """The pretraining loss plus the weighted mean loss of detecting replaced tokens.

    Only the pretraining loss is logged.
    """

    def __init__(self, task, detection_weight):
        super().__init__(task)
        self.weight = detection_weight

    def forward(self, model, sample, reduce=True):
        if not model.training:
            return super().forward(model, sample, reduce)
        outputs = {}

        def predict(**inputs):
            logits, outputs["detected"], outputs["replaced"] = model(**inputs)
            return logits

        loss, size, logged = super().forward(predict, sample, reduce)
        detected, replaced = outputs["detected"], outputs["replaced"]
        real = sample["net_input"]["src_tokens"][:, : detected.size(1)].ne(self.padding_idx)
        detection_loss = F.binary_cross_entropy_with_logits(
            detected[real].float(), replaced[real].float()
        )
        return loss + self.weight * size * detection_loss, size, logged
