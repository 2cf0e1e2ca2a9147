"""Frozen features: the output of each layer of an encoder for a text.

Letters in shapes: N texts, T tokens, L + 1 layers with the embeddings, C width.
"""

import functools
import os
import sys

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from .. import hub
from ..base import provenance
from ..base.subwords import sequence
from ..checkpoints.building import read_checkpoint
from ..checkpoints.compatibility import check_vocabulary
from ..vocabulary import read_vocabulary


def compute(model, texts):
    """The features of texts at each layer, pooled over their tokens.

    Args:
        model: `hub.MaeLm`
        texts: N strings or pairs
    Returns:
        {"mean": float32 (L + 1, N, C), the mean of all tokens but `<s>`; "first": the same of `<s>`}
    """
    texts, positions = [[text] if isinstance(text, str) else text for text in texts], model.model.max_positions()
    encoded = [sequence([model.tokenizer.encode(part) for part in parts], positions) for parts in texts]
    cut = sum(count > 0 for _, count in encoded)
    if cut:
        tqdm.write(f"{cut:,} of {len(texts):,} texts are cut to {positions} tokens", file=sys.stderr)
    tokens, features = pad_sequence([torch.tensor(row) for row, _ in encoded], True, model.dictionary.pad()), {}
    for rows, padding, hidden in model.layers(tokens):
        hidden = torch.stack(hidden).masked_fill(padding[..., None], 0).cpu()
        counts = (~padding[:, 1:]).sum(1, keepdim=True).cpu()
        for pool, values in {"mean": hidden[:, :, 1:].sum(2) / counts, "first": hidden[:, :, 0]}.items():
            if pool not in features:
                features[pool] = np.empty((len(hidden), len(tokens), hidden.size(-1)), np.float32)
            features[pool][:, rows.numpy()] = values.numpy()  # a tensor of one number would be that number
    return features


class Encoder:
    """A pretrained encoder: its file, and the folder with its vocabulary."""

    def __init__(self, checkpoint, data):
        self.checkpoint, self.data = checkpoint, data
        dictionary, tokenizer = read_vocabulary(data)
        self.files = provenance.checksums([checkpoint, os.path.join(data, "dict.txt"), tokenizer.path])
        self.digest = " ".join(self.files.values())
        check_vocabulary(read_checkpoint(checkpoint), dictionary, checkpoint)  # now, not after hours of work on others

    @functools.cached_property
    def model(self):
        """The `hub.MaeLm`, loaded when it is first needed."""
        model = hub.from_pretrained(self.checkpoint, data=self.data)
        provenance.check_unchanged(self.files)
        return model.to("cuda" if torch.cuda.is_available() else "cpu")
