"""The batches of an epoch: resumed on any number of processes, with workers that end in time."""

import atexit

import numpy as np
import torch

from ..base.errors import UsageError
from ..engine import CountingIterator, EpochBatchIterator, data_utils


class ResumableIterator(EpochBatchIterator):
    """fairseq's, but it remembers which batches *all* processes have consumed, and of what size these were.

    fairseq's skips as many batches as each process had consumed: on another number of processes, or with batches of
    another size, it repeats some blocks of the epoch and leaves out others.

    Args:
        dataset: of fairseq's type; its `batch_by_size` returns `batches.Batches`
        batching (dict): the arguments of its `batch_by_size`
        epoch: the first one, from 1
        data_buffer_size: batches that the loader workers read ahead of training; fairseq's thread for this is not used,
            since Python's end, when a run stops within an epoch, could abort the process in the middle of a tensor
        options: seed, num_shards, shard_id, num_workers, skip_remainder_batch: as fairseq's
    """

    validation_due = False  # whether a stop has cut short the validation at this place, which the next run then makes

    def __init__(self, dataset, batching, epoch=1, data_buffer_size=0, **options):
        make = ResumableIterator._batches_after  # a function, not a method: no reference cycle
        super().__init__(dataset, dataset.collater, make, epoch=epoch, buffer_size=data_buffer_size, **options)
        self.batching = batching

    @property
    def frozen_batches(self):
        """The batches of the epoch, or of what a resumed one has left, not shuffled; fairseq's makes a tuple of all."""
        if self._frozen_batches is None:
            self._begin([], 0, 0)
        return self._frozen_batches

    def _begin(self, earlier, skipped, start):
        """Begins an epoch.

        Args:
            earlier: what was consumed of it in batches of other sizes: a batching each, and the number of `batches`
            skipped: how many batches of this size all processes have consumed since then
            start: the position of this process
        """
        if earlier or self._frozen_batches is None:
            self._frozen_batches = self._batches_after(earlier)
        self._earlier, self._skipped, self._start = earlier, skipped, start

    def end_of_epoch(self):
        """fairseq's, also before the first batch."""
        return self._cur_epoch_itr is not None and super().end_of_epoch()

    def state_dict(self):
        """fairseq's, with what all processes have consumed of the epoch."""
        state = {**super().state_dict(), "consumed": [], "data": self._data()}
        if state["iterations_in_epoch"]:
            batches = self._skipped + (self.iterations_in_epoch - self._start) * self.num_shards
            state["consumed"] = [*self._earlier, dict(self.batching, batches=batches)] if batches else self._earlier
        if self.validation_due:
            state.update(validation_due=True, ends=self.end_of_epoch())
            state.update(epoch=self.epoch, iterations_in_epoch=self.iterations_in_epoch)
        return state

    def leave_validation(self):
        """Goes on from a place at which a validation was due; returns whether that is the end of an epoch."""
        due, self.validation_due = self.validation_due, False
        ends = due and not self._next_epoch_itr.has_next()
        if ends:
            self.next_epoch_itr()
        return ends

    def _data(self):
        """What tells the data of an epoch from others, in words."""
        tokens = int(np.sum(self.dataset.sizes, dtype=np.int64))
        items = f"{len(self.dataset):,} items of {tokens:,} tokens, in the order of --seed {self.seed}"
        return f"{items}, with the checksum {self.dataset.checksum:08x}"

    def load_state_dict(self, state_dict):
        """Goes on where the processes of a checkpoint were."""
        self.epoch, self.shuffle = state_dict["epoch"], state_dict.get("shuffle", True)  # not with --curriculum
        position, self.validation_due = state_dict.get("iterations_in_epoch", 0), "validation_due" in state_dict
        if state_dict.get("ends"):
            self._next_epoch_itr = CountingIterator([], start=position, total=position)
            return
        # Checkpoints of earlier versions say what each process consumed.
        consumed = state_dict.get("consumed", [dict(self.batching, batches=position * self.num_shards)])
        if not position:
            self._next_epoch_itr = None
            return
        was, now = state_dict.get("data", self._data()), self._data()
        path = state_dict.get("path", "the checkpoint")
        if not now.startswith(was):  # earlier versions have no checksum
            fix = "use the same, or start the epoch again with --reset-dataloader"
            raise UsageError(
                f"{path}: its place within epoch {self.epoch} is in other data, or in another order: it was trained on "
                f"{was}, and these are {now}; {fix}"
            )
        same = {**consumed[-1], "batches": 0} == {**self.batching, "batches": 0}
        skipped = consumed[-1]["batches"] if same else 0
        self._begin(consumed[:-1] if same else consumed, skipped, max(1, skipped // self.num_shards))
        if self._skipped >= len(self.frozen_batches):
            raise UsageError(
                f"{path}: its place is past the end of epoch {self.epoch}, so the data have changed; "
                "use the same data, or start the epoch again with --reset-dataloader"
            )
        self._next_epoch_itr = self._get_iterator_for_epoch(self.epoch, self.shuffle, offset=self._start)

    def _batches_after(self, consumed):
        """Makes batches of what is left of the epoch."""
        with data_utils.numpy_seed(self.seed + self.epoch):
            indices = self.dataset.ordered_indices()
        used = np.zeros(len(self.dataset), dtype=bool)
        for part in consumed:
            batching = {name: value for name, value in part.items() if name != "batches"}
            batches = self.dataset.batch_by_size(indices, **batching)
            batches = self._shuffled(batches, self.epoch) if self.shuffle else batches
            for batch in batches[: part["batches"]]:
                used[batch] = True
            indices = indices[~used[indices]]
        return self.dataset.batch_by_size(indices, **self.batching)

    def _shuffled(self, batches, epoch):
        """In the order in which fairseq would shuffle a list of them."""
        return batches[np.random.RandomState(self.seed + epoch).permutation(len(batches))]

    def align(self, update_freq):
        """Makes the position in a resumed epoch a multiple of `update_freq`, which fairseq takes for granted."""
        if self._next_epoch_itr is not None:
            surplus = self._next_epoch_itr.n % update_freq
            self._start -= surplus
            self._next_epoch_itr.n -= surplus
            self._next_epoch_itr.total -= surplus

    def _get_iterator_for_epoch(self, epoch, shuffle, fix_batches_to_gpus=False, offset=0):
        """fairseq's, without reference cycles, and with workers that are started and ended with the epoch."""
        batches = self._shuffled(self.frozen_batches, epoch) if shuffle else self.frozen_batches
        loader = torch.utils.data.DataLoader(
            self.dataset,
            collate_fn=self.collate_fn,
            batch_sampler=batches[self._skipped :].shard(self.num_shards, self.shard_id),
            num_workers=self.num_workers,
            prefetch_factor=max(2, self.buffer_size // self.num_workers) if self.num_workers else None,
            timeout=self.timeout,
            pin_memory=torch.cuda.is_available(),
        )
        iterator = CountingIterator(batches_of(loader), start=offset, total=offset + len(loader))
        if self.skip_remainder_batch:
            iterator.take(len(iterator) - 1)
        return iterator


def batches_of(loader):
    """Yields the batches of a PyTorch DataLoader; its workers end when nobody iterates any longer, or the program ends.

    Otherwise each is waited for in vain for seconds: at its end, the interpreter first closes the queue through which
    they would be told, and so does its garbage collector.
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
