"""Frozen features: what each layer of an encoder gives for a text, computed once and kept on disk.

Letters in shapes: N texts, T tokens, L + 1 layers with the embeddings, C width.
"""

import hashlib
import os

import numpy as np
import torch
from scipy import sparse

from maelm_fairseq import hub
from maelm_fairseq.data import batches_of_similar_length
from maelm_fairseq.files import atomic_write, sha256
from maelm_fairseq.model import MaeLmModel

from .probes import SPARSE_STRENGTHS, STRENGTHS

POOLS = ["mean", "first"]  # the mean of all tokens but `<s>`; `<s>`
BATCH_TOKENS = 2048
RANDOM_SEED = 1


def tokens_of(model, text):
    """The tokens of a text or a pair, cut to the model's positions: int64 (T,)."""
    tokens = model.encode(*text) if isinstance(text, tuple) else model.encode(text)
    limit = model.model.max_positions()
    return tokens if len(tokens) <= limit else torch.cat([tokens[: limit - 1], tokens[-1:]])


def compute(model, texts):
    """The features of texts at each layer, pooled over their tokens.

    Args:
        model: :class:`~maelm_fairseq.hub.MaeLm`
        texts: N strings or pairs
    Returns:
        {pool: float32 (L + 1, N, C)} for each of POOLS
    """
    tokens = [tokens_of(model, text) for text in texts]
    found, pad = None, model.dictionary.pad()
    for rows in batches_of_similar_length(torch.tensor([len(row) for row in tokens]), BATCH_TOKENS):
        batch = torch.nn.utils.rnn.pad_sequence([tokens[i] for i in rows], True, pad)
        hidden = model.extract_features(batch, all_layers=True).cpu()  # zeros at padding
        counts = batch[:, 1:].ne(pad).sum(1, keepdim=True)
        pooled = {"mean": hidden[:, :, 1:].sum(2) / counts, "first": hidden[:, :, 0]}
        if found is None:
            shape = len(hidden), len(tokens), hidden.size(-1)
            found = {pool: np.empty(shape, np.float32) for pool in POOLS}
        for pool, values in pooled.items():
            found[pool][:, rows] = values.numpy()
    return found


class Encoder:
    """A pretrained encoder; `strengths` are those that probes of its features try.

    Args:
        checkpoint: its file
        data: folder with its vocabulary
        random: give it random weights
    """

    strengths = STRENGTHS

    def __init__(self, checkpoint, data, random=False):
        self.checkpoint, self.data, self.random = checkpoint, data, random
        self._model = None
        vocabulary = [sha256(os.path.join(data, name)) for name in ["dict.txt", "sentencepiece.model"]]
        self.digest = " ".join([sha256(checkpoint), *vocabulary, *([f"random {RANDOM_SEED}"] if random else [])])

    def model(self):
        """The :class:`~maelm_fairseq.hub.MaeLm`, loaded when it is first needed."""
        if self._model is None:
            self._model = hub.from_pretrained(self.checkpoint, data=self.data)
            if self.random:
                with torch.random.fork_rng():
                    torch.manual_seed(RANDOM_SEED)
                    cfg, dictionary = self._model.model.cfg, self._model.dictionary
                    self._model.model = MaeLmModel(cfg, dictionary, pretraining=False).eval()
            self._model.to("cuda" if torch.cuda.is_available() else "cpu")
        return self._model

    def features(self, task, folder):
        """The features of a task's texts, from `folder` if they are there: {pool: float32 (L + 1, N, C)}."""
        key = hashlib.sha256(f"{self.digest} {task.digest()}".encode()).hexdigest()[:32]
        path = os.path.join(folder, f"{task.name}-{key}.npz")
        if not os.path.exists(path):
            found = compute(self.model(), task.texts)
            os.makedirs(folder, exist_ok=True)
            with atomic_write(path, "wb") as stream:
                np.savez(stream, **found)
        with np.load(path) as arrays:
            return {pool: arrays[pool] for pool in POOLS}


class PieceCounts:
    """The baseline of counting pieces: one sparse layer.

    Args:
        checkpoint, data: of an encoder with the same vocabulary
    """

    strengths = SPARSE_STRENGTHS

    def __init__(self, checkpoint, data):
        self.encoder = Encoder(checkpoint, data)
        self.digest = "piece counts " + self.encoder.digest

    def features(self, task, folder):
        """The counts of the pieces in each text: {"mean": [sparse float64 (N, vocabulary)]}."""
        model = self.encoder.model()
        rows = [tokens_of(model, text).numpy() for text in task.texts]
        starts = np.cumsum([0, *map(len, rows)])
        columns = np.concatenate(rows)
        shape = len(rows), len(model.dictionary)
        return {"mean": [sparse.csr_matrix((np.ones(len(columns)), columns, starts), shape)]}
