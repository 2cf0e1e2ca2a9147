"""Replaced-token detection beside MAE-LM: the example of CONTRIBUTING.md for an objective of your own.

    fairseq-train DATA --user-dir tests/replaced_tokens --arch mae_lm_detection --criterion mae_lm_detection ...

With --random-token-prob, the decoder also says of each visible position whether the encoder saw a replaced token there.

Letters in shapes: B sequences, V positions the encoder sees, K predicted, M of them masked.
"""

import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.models import register_model
from torch import nn

from maelm_fairseq.criterion import MaeLmCriterion
from maelm_fairseq.model import MaeLmConfig, MaeLmModel


@register_model("mae_lm_detection", dataclass=MaeLmConfig)
class DetectionModel(MaeLmModel):
    def __init__(self, cfg, dictionary, pretraining):
        super().__init__(cfg, dictionary, pretraining)
        if pretraining:  # fine-tuning and maelm_fairseq.hub leave the head out by themselves
            self.detection_head = nn.Linear(cfg.encoder_embed_dim, 1)

    def forward(self, src_tokens, positions, masked_positions, num_predicted, padded=True, **unused):
        """Logits of the predicted tokens (B, K, N), and of having been replaced for what the encoder saw (B, V)."""
        rows = src_tokens.size(1) + masked_positions.size(1)
        encoded = self.forward_encoder(src_tokens, positions, padded)
        decoded = self.forward_decoder(encoded, positions, masked_positions, rows, padded)
        logits = self.lm_head(decoded[:, rows - num_predicted :], self.embed_tokens.weight)
        return logits, self.detection_head(decoded[:, : src_tokens.size(1)]).squeeze(-1)


@register_criterion("mae_lm_detection", dataclass=FairseqDataclass)
class DetectionCriterion(MaeLmCriterion):
    def forward(self, model, sample, reduce=True):
        net_input, target = sample["net_input"], sample["target"]
        logits, replaced_logits = model(**net_input)
        loss = F.cross_entropy(
            logits.flatten(0, 1).float(), target.flatten(), reduction="sum", ignore_index=self.padding_idx
        )
        # The last K - M positions that the encoder sees are predicted; only they can differ from the original.
        seen, visible = net_input["src_tokens"], target.size(1) - net_input["masked_positions"].size(1)
        replaced = seen.new_zeros(seen.shape)
        replaced[:, seen.size(1) - visible :] = seen[:, seen.size(1) - visible :] != target[:, :visible]
        real = seen.ne(self.padding_idx)
        loss = loss + F.binary_cross_entropy_with_logits(
            replaced_logits[real].float(), replaced[real].float(), reduction="sum"
        )
        logged = {
            "loss": loss.detach(),
            "correct": (logits.argmax(-1).eq(target) & target.ne(self.padding_idx)).sum(),
            "sample_size": sample["npredicted"],
            "visible": sample["nvisible"],
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
        }
        return loss, sample["npredicted"], logged
