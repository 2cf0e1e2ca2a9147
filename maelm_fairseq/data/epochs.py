"""The batches of an epoch: resumed on any number of processes, with workers that end in time."""

import atexit
from typing import NamedTuple

import numpy as np
import torch

from ..base.errors import UsageError
from ..fairseq_api import CountingIterator, EpochBatchIterator, data_utils


class ConsumedBatches(NamedTuple):
    """How many batches of a size all processes have consumed of an epoch."""

    batching: dict  # the arguments of `batch_by_size`
    batches: int

    @classmethod
    def from_entry(cls, entry):
        """From the form that a checkpoint has, `schema.Consumed`."""
        batching = {name: value for name, value in entry.items() if name != "batches"}
        return cls(batching, entry["batches"])

    def entry(self):
        """In the form that a checkpoint has."""
        return {**self.batching, "batches": self.batches}


class ResumableIterator(EpochBatchIterator):
    """fairseq's iterator, but it remembers which batches *all* processes have consumed.

    It also remembers the sizes of these batches. fairseq's iterator skips as many batches as each
    process had consumed: on another number of processes, or with batches of another size, it
    repeats some blocks of the epoch and leaves out others.

    Args:
        dataset: of fairseq's type; its `batch_by_size` returns `batching.BatchIndices`
        batching (dict): the arguments of its `batch_by_size`
        epoch: the first one, from 1
        data_buffer_size: batches that the loader workers read ahead of training; fairseq's thread
            for this is not used: when a run stops within an epoch, the end of Python could abort
            the process in the middle of a tensor
        options: seed, num_shards, shard_id, num_workers, skip_remainder_batch: as fairseq's
    """

    # Whether a stop has cut short the validation at this place, so that the next run must make it.
    validation_due = False

    def __init__(self, dataset, batching, epoch=1, data_buffer_size=0, **options):
        super().__init__(
            dataset,
            dataset.collater,
            # A function, not a bound method, which would be a reference cycle.
            ResumableIterator._batches_after,
            epoch=epoch,
            buffer_size=data_buffer_size,
            **options,
        )
        self.batching = batching
        self._consumed_before = []  # of the epoch, in batches of other sizes
        self._num_skipped = 0  # batches of this size that all processes consumed after those
        self._start = 0  # batches that this process has consumed

    @property
    def frozen_batches(self):
        """The batches of the epoch, or of what is left of a resumed one, not shuffled.

        fairseq's iterator would make a tuple of all batches.
        """
        if self._frozen_batches is None:
            self._begin([], 0, 0)
        return self._frozen_batches

    def _begin(self, consumed_before, num_skipped, start):
        """Begins an epoch, or what is left of it.

        Args:
            consumed_before: what was consumed of it in batches of other sizes: a list of
                `ConsumedBatches`
            num_skipped: how many batches of this size all processes have consumed after those
            start: the position of this process: how many batches it has consumed
        """
        if consumed_before or self._frozen_batches is None:
            self._frozen_batches = self._batches_after(consumed_before)
        self._consumed_before = consumed_before
        self._num_skipped = num_skipped
        self._start = start

    def end_of_epoch(self):
        """Whether the epoch has ended; unlike fairseq's, it can be asked before the first batch."""
        return self._cur_epoch_itr is not None and super().end_of_epoch()

    def state_dict(self):
        """fairseq's state, and what all processes have consumed of the epoch."""
        state = {**super().state_dict(), "consumed": [], "data": self._data_description()}
        if state["iterations_in_epoch"]:
            since_start = (self.iterations_in_epoch - self._start) * self.num_shards
            batches = self._num_skipped + since_start
            consumed = list(self._consumed_before)
            if batches:
                consumed.append(ConsumedBatches(self.batching, batches))
            state["consumed"] = [part.entry() for part in consumed]
        if self.validation_due:
            state.update(validation_due=True, ends=self.end_of_epoch())
            state.update(epoch=self.epoch, iterations_in_epoch=self.iterations_in_epoch)
        return state

    def end_epoch_after_missed_validation(self):
        """Continues after a validation that was due at this position and has been run now.

        Ends the epoch if the place is its end.

        Returns: whether it has ended the epoch
        """
        due = self.validation_due
        self.validation_due = False
        ends = due and not self._next_epoch_itr.has_next()
        if ends:
            self.next_epoch_itr()
        return ends

    def _data_description(self):
        """A text that tells the data of an epoch from other data."""
        tokens = int(np.sum(self.dataset.sizes, dtype=np.int64))
        return (
            f"{len(self.dataset):,} items of {tokens:,} tokens, "
            f"in the order of --seed {self.seed}, with the checksum {self.dataset.checksum:08x}"
        )

    def load_state_dict(self, state_dict):
        """Continues where the processes of a checkpoint were."""
        self.epoch = state_dict["epoch"]
        self.shuffle = state_dict.get("shuffle", True)  # not with --curriculum
        self.validation_due = "validation_due" in state_dict
        position = state_dict.get("iterations_in_epoch", 0)
        if state_dict.get("ends"):
            self._next_epoch_itr = CountingIterator([], start=position, total=position)
            return
        if not position:
            self._next_epoch_itr = None
            return
        path = state_dict.get("path", "the checkpoint")
        self._check_data(state_dict.get("data", self._data_description()), path)

        if "consumed" in state_dict:
            consumed = [ConsumedBatches.from_entry(entry) for entry in state_dict["consumed"]]
        else:  # checkpoints of earlier versions say only what each process consumed
            consumed = [ConsumedBatches(self.batching, position * self.num_shards)]
        num_skipped = 0
        if consumed[-1].batching == self.batching:
            num_skipped = consumed.pop().batches
        # fairseq takes a position of 0 for an epoch that has not begun.
        self._begin(consumed, num_skipped, max(1, num_skipped // self.num_shards))
        if self._num_skipped >= len(self.frozen_batches):
            raise UsageError(
                f"{path}: its position lies beyond the end of epoch {self.epoch}: the data "
                "have changed; use the same data, or start the epoch again with --reset-dataloader"
            )
        self._next_epoch_itr = self._get_iterator_for_epoch(
            self.epoch, self.shuffle, offset=self._start
        )

    def _check_data(self, was, path):
        """Refuses a checkpoint of a run on other data; `was` describes its data."""
        now = self._data_description()
        if not now.startswith(was):  # earlier versions have no checksum
            raise UsageError(
                f"{path}: its place within epoch {self.epoch} is in other data, or in another "
                f"order: it was trained on {was}, and these are {now}; use the same, or start the "
                "epoch again with --reset-dataloader"
            )

    def _batches_after(self, consumed):
        """Makes batches of what is left of the epoch."""
        with data_utils.numpy_seed(self.seed + self.epoch):
            indices = self.dataset.ordered_indices()
        used = np.zeros(len(self.dataset), dtype=bool)
        for part in consumed:
            batches = self.dataset.batch_by_size(indices, **part.batching)
            if self.shuffle:
                batches = self._shuffled(batches, self.epoch)
            for batch in batches[: part.batches]:
                used[batch] = True
            indices = indices[~used[indices]]
        return self.dataset.batch_by_size(indices, **self.batching)

    def _shuffled(self, batches, epoch):
        """The batches in the order into which fairseq would shuffle a list of them."""
        order = np.random.RandomState(self.seed + epoch).permutation(len(batches))
        return batches[order]

    def align(self, update_freq):
        """Makes the position in a resumed epoch a multiple of `update_freq`.

        fairseq takes for granted that it is one.
        """
        if self._next_epoch_itr is not None:
            surplus = self._next_epoch_itr.n % update_freq
            self._start -= surplus
            self._next_epoch_itr.n -= surplus
            self._next_epoch_itr.total -= surplus

    def _get_iterator_for_epoch(self, epoch, shuffle, fix_batches_to_gpus=False, offset=0):
        """fairseq's iterator over an epoch, without reference cycles.

        Its loader workers start and end with the epoch.
        """
        batches = self.frozen_batches
        if shuffle:
            batches = self._shuffled(batches, epoch)
        prefetch_factor = None
        if self.num_workers:
            prefetch_factor = max(2, self.buffer_size // self.num_workers)
        loader = torch.utils.data.DataLoader(
            self.dataset,
            collate_fn=self.collate_fn,
            batch_sampler=batches[self._num_skipped :].shard(self.num_shards, self.shard_id),
            num_workers=self.num_workers,
            prefetch_factor=prefetch_factor,
            timeout=self.timeout,
            pin_memory=torch.cuda.is_available(),
        )
        iterator = CountingIterator(batches_of(loader), start=offset, total=offset + len(loader))
        if self.skip_remainder_batch:
            iterator.take(len(iterator) - 1)
        return iterator


def batches_of(loader):
    """Yields the batches of a PyTorch DataLoader, and ends its workers in time.

    They end when nobody iterates any longer, or when the program ends. Otherwise, each would be
    waited for in vain for seconds: when the interpreter exits, or collects the loader as garbage,
    it first closes the queue through which the workers would be told to end.
    """
    iterator = iter(loader)
    end_workers = getattr(iterator, "_shutdown_workers", None)  # there is none without workers
    if end_workers is None:
        return (yield from iterator)
    atexit.register(end_workers)
    try:
        yield from iterator
    finally:
        end_workers()
        atexit.unregister(end_workers)
