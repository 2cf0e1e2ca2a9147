"""Labelled examples as tokens and targets, and batches of them.

Letters in shapes: B sequences, T tokens of the longest.
"""

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from ..data.batching import EveryItemDataset
from ..data.picklable_batch import PicklableBatch

IGNORE_INDEX = -100  # the target of a token that has none
# Random examples that are sorted by length, so that batches have little padding.
SORTED_POOL_SIZE = 1024


class FineTuningDataset(EveryItemDataset):
    """Sequences of tokens with targets; subclasses add what predictions and scores need.

    A long example, such as a sentence that exceeds the model's positions, is several sequences.

    Args:
        task: `FineTuningTask`
        split: such as "valid"
        sequences: list of lists of tokens
        targets: list of lists of numbers: one for a whole sequence, two for a span, or one for each
            token
        summary: what was read, for the log
        metrics: names of the scores; none where there are no labels
        example_of_sequence: the index of the example of each sequence; None if each is an example

    `split`, `summary`, `metrics` and `example_of_sequence` are attributes.
    """

    def __init__(self, task, split, sequences, targets, summary, metrics, example_of_sequence=None):
        self.dictionary = task.dictionary
        self.seed = task.cfg.seed
        self.split = split
        self.summary = summary
        self.metrics = metrics
        self.sequences = [np.array(tokens, np.int32) for tokens in sequences]
        self.targets = list(map(np.array, targets))
        self.sizes = np.array([len(tokens) for tokens in sequences], np.int64)
        if example_of_sequence is None:
            example_of_sequence = list(range(len(sequences)))
        self.example_of_sequence = example_of_sequence

    def labelled_examples(self):
        """The indices of the examples that have labels, in order; here, all examples have."""
        return list(dict.fromkeys(self.example_of_sequence))

    def sequences_of_examples(self):
        """{index of each example that has labels: the indices of its sequences}."""
        sequences = {index: [] for index in self.labelled_examples()}
        for sequence, example in enumerate(self.example_of_sequence):
            if example in sequences:
                sequences[example].append(sequence)
        return sequences

    def __getitem__(self, index):
        tokens = torch.from_numpy(self.sequences[index]).long()
        return index, tokens, torch.from_numpy(self.targets[index])

    def collater(self, samples):
        """Merges examples into a batch.

        Returns: dict: `net_input` with `src_tokens` (B, T), padded at the right; `target` (B, 1),
        (B, 2) or (B, T)
        """
        if not samples:
            return {}
        indices, sequences, targets = zip(*samples)
        tokens = pad_sequence(sequences, batch_first=True, padding_value=self.dictionary.pad())
        target = pad_sequence(targets, batch_first=True, padding_value=IGNORE_INDEX)
        ntokens = sum(map(len, sequences))
        ntargets = target.numel()
        if not target.is_floating_point():
            ntargets = int(target.ne(IGNORE_INDEX).sum())
        return PicklableBatch(
            id=np.array(indices),
            net_input={"src_tokens": tokens, "has_padding": tokens.numel() > ntokens},
            target=target,  # numbers are float64: fairseq would make half precision of float32
            ntargets=ntargets,
            nsentences=len(indices),
            ntokens=ntokens,
            split=self.split,
        )

    def ordered_indices(self):
        """An order drawn from (seed, epoch), in which neighbours have a similar length."""
        order = np.random.default_rng([self.seed, self.epoch]).permutation(len(self))
        pools = np.arange(len(self)) // SORTED_POOL_SIZE
        return order[np.lexsort((self.sizes[order], pools))]
