"""MPNet's classes for a relative position bias that they do not hold exactly, and how far off the result is."""

import copy

import torch

from ..layers import T5, RelativePositionBias, t5_bucket
from .weights import MPNET_SIZES


def nearest_mpnet(model):
    """The model that MPNet's classes hold whose bias is nearest: its largest error is as small as possible.

    Args:
        model: :class:`~maelm_fairseq.model.MaeLmModel`, with relative position bias
    Returns:
        a copy with another bias, and the bias's largest error at any distance
    """
    bias, num_heads = model.encoder.relative_bias, model.cfg.encoder_attention_heads
    P = bias.max_positions
    distance = torch.arange(1 - P, P)
    values = bias.table.weight.detach()[bias.bucket[distance + P]]
    bucket = torch.from_numpy(t5_bucket(distance.numpy(), *MPNET_SIZES))
    nearest = RelativePositionBias(*MPNET_SIZES, num_heads, P, T5).to(values)
    table = torch.zeros_like(nearest.table.weight)
    for i in bucket.unique():
        lowest, highest = values[bucket == i].aminmax(dim=0)
        table[i] = torch.where(lowest == highest, lowest, (lowest + highest) / 2)
    nearest.table.weight.data = table
    approximate = copy.deepcopy(model)
    approximate.encoder.relative_bias = nearest
    return approximate, float((table[bucket] - values).abs().max())


@torch.no_grad()
def feature_error(model, other, texts):
    """The largest difference between the features of two models.

    Args:
        model, other: :class:`~maelm_fairseq.model.MaeLmModel`
        texts: list of lists of tokens
    """
    differences = []
    for tokens in texts:
        row = torch.tensor([tokens], device=model.embed_tokens.weight.device)
        features, others = (each.forward_encoder(row, padded=False) for each in [model, other])
        differences.append(float((features - others).abs().max()))
    return max(differences)
