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
from ..base.tokenizer import join_and_cut
from ..checkpoints.building import default_device, read_checkpoint
from ..checkpoints.checkpoint_info import info_of_checkpoint
from ..checkpoints.compatibility import check_vocabulary
from ..vocabulary import load_dictionary_and_tokenizer


def compute_features(model, texts):
    """The features of texts at each layer, pooled over their tokens.

    Args:
        model: `hub.MaeLm`
        texts: of N examples, a tuple of one text or two for each
    Returns:
        dict of float32 (L + 1, N, C): "mean", the mean of all tokens but `<s>`, and "first", `<s>`
    """
    tokens = encode_texts(model, texts)
    features = {}
    progress = tqdm(total=len(tokens), desc="features", unit="text", leave=False, disable=None)
    for rows, padding, hidden in model.layers(tokens):
        hidden = torch.stack(hidden).masked_fill(padding[..., None], 0).cpu()
        counts = (~padding[:, 1:]).sum(1, keepdim=True).cpu()
        pooled = {"mean": hidden[:, :, 1:].sum(2) / counts, "first": hidden[:, :, 0]}
        for pool, values in pooled.items():
            if pool not in features:
                features[pool] = np.empty((len(hidden), len(tokens), hidden.size(-1)), np.float32)
            index = rows.numpy()  # a tensor of one number would index like a plain number
            features[pool][:, index] = values.numpy()
        progress.update(len(rows))
    progress.close()
    return features


def encode_texts(model, texts):
    """The tokens of N examples, cut to the positions of the model: int64 (N, T), padded.

    `texts` has a tuple of one text or two for each.
    """
    positions = model.model.max_positions()
    encoded = []
    for texts_of_example in texts:
        parts = [model.tokenizer.encode(text) for text in texts_of_example]
        encoded.append(join_and_cut(parts, positions))
    cut = sum(count > 0 for _, count in encoded)
    if cut:
        tqdm.write(
            f"{cut:,} of {len(encoded):,} texts are cut to {positions} tokens", file=sys.stderr
        )
    rows = [torch.tensor(tokens) for tokens, _ in encoded]
    return pad_sequence(rows, batch_first=True, padding_value=model.dictionary.pad())


class EncoderSource:
    """A pretrained encoder: its file, and the folder with its vocabulary."""

    def __init__(self, checkpoint, data):
        self.checkpoint_file = checkpoint
        self.data = data
        dictionary, tokenizer = load_dictionary_and_tokenizer(data)
        paths = [checkpoint, os.path.join(data, "dict.txt"), tokenizer.path]
        self.files = provenance.compute_sha256s(paths)
        self.sha256s = " ".join(self.files.values())
        # Checked now, not after hours of work on other models.
        contents = read_checkpoint(checkpoint)
        check_vocabulary(contents, dictionary, checkpoint)
        self.info = info_of_checkpoint(contents, checkpoint)

    @property
    def model(self):
        """The `hub.MaeLm`, of which one encoder's at a time is kept in memory."""
        return load_model_of(self)


@functools.lru_cache(maxsize=1)
def load_model_of(encoder):
    model = hub.from_pretrained(encoder.checkpoint_file, data=encoder.data)
    provenance.check_unchanged(encoder.files)
    return model.to(default_device())
