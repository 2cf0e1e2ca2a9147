"""Frozen features: the output of each layer of an encoder for a text.

Letters in shapes: N texts, T tokens, L + 1 layers with the embeddings, C width.
"""

import functools
import os
import sys

import numpy as np
import torch
from tqdm import tqdm

from maelm_fairseq import hub
from maelm_fairseq.base import provenance
from maelm_fairseq.data.masked_items import batches_of_similar_length
from maelm_fairseq.vocabulary import read_vocabulary

BATCH_TOKENS = 2048


def compute(model, texts):
    """The features of texts at each layer, pooled over their tokens.

    Args:
        model: :class:`~maelm_fairseq.hub.MaeLm`
        texts: N strings or pairs
    Returns:
        {"mean": float32 (L + 1, N, C), the mean of all tokens but `<s>`; "first": the same of `<s>`}
    """
    texts, positions = [[text] if isinstance(text, str) else text for text in texts], model.model.max_positions()
    tokens = [model.encode(*parts) for parts in texts]
    cut = [i for i, row in enumerate(tokens) if len(row) > positions]
    for i in cut:
        tokens[i] = model.encode(*texts[i], truncate=True)
    if cut:
        tqdm.write(f"{len(cut):,} of {len(texts):,} texts are cut to {positions} tokens", file=sys.stderr)
    features, pad = {}, model.dictionary.pad()
    for rows in batches_of_similar_length(torch.tensor([len(row) for row in tokens]), BATCH_TOKENS):
        batch = torch.nn.utils.rnn.pad_sequence([tokens[i] for i in rows], True, pad)
        hidden = model.extract_features(batch, all_layers=True).cpu()  # zeros at padding
        counts = batch[:, 1:].ne(pad).sum(1, keepdim=True)
        pooled = {"mean": hidden[:, :, 1:].sum(2) / counts, "first": hidden[:, :, 0]}
        for pool, values in pooled.items():
            if pool not in features:
                features[pool] = np.empty((len(hidden), len(tokens), hidden.size(-1)), np.float32)
            features[pool][:, rows.numpy()] = values.numpy()  # a tensor of one number would be that number
    return features


class Encoder:
    """A pretrained encoder: its file, and the folder with its vocabulary."""

    def __init__(self, checkpoint, data):
        self.checkpoint, self.data = checkpoint, data
        _, tokenizer = read_vocabulary(data)
        self.files = provenance.checksums([checkpoint, os.path.join(data, "dict.txt"), tokenizer.path])
        self.digest = " ".join(self.files.values())

    @functools.cached_property
    def model(self):
        """The :class:`~maelm_fairseq.hub.MaeLm`, loaded when it is first needed."""
        model = hub.from_pretrained(self.checkpoint, data=self.data)
        provenance.check_unchanged(self.files)
        return model.to("cuda" if torch.cuda.is_available() else "cpu")
