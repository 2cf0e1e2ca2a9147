"""Resumed runs, and runs of several processes, end with the same weights as a single run."""

import itertools
import json
import signal
import threading
from types import SimpleNamespace

import pytest
from fairseq.data.iterators import GroupedIterator

from conftest import TINY, refuses
from maelm_fairseq.data.blocks import TokenBlocks
from maelm_fairseq.data.masked_items import MaskedBlockDataset
from maelm_fairseq.masking import Masking, MaskSettings
from maelm_fairseq.task import TokenTask
from maelm_fairseq.vocabulary import load_dictionary
from test_preemption import STOPPED, finish, trap, two_processes
from training import NO_DROPOUT, assert_same_weights, train, updates


@pytest.fixture(scope="module")
def dataset(data):
    dictionary = load_dictionary(data)
    masking = Masking(MaskSettings(), dictionary, 1)
    return MaskedBlockDataset([TokenBlocks(str(data / "train"), 31, "complete_doc")], masking, dictionary, 1)


class Run:
    """The data of one part of a run, which resumes from the state of the one before: an iterator for each process."""

    def __init__(self, dataset, processes, state=None, update_freq=1, workers=0, **batching):
        task = TokenTask(SimpleNamespace(), dataset.dictionary)
        self.update_freq = update_freq
        batching.update(num_shards=processes, epoch=1, num_workers=workers, seed=1)
        self.iterators = [task.get_batch_iterator(dataset, shard_id=i, **batching) for i in range(processes)]
        for iterator in self.iterators:
            if state is not None:
                iterator.load_state_dict(state)
            iterator.align(update_freq)
        epochs = [iterator.next_epoch_itr() for iterator in self.iterators]
        self.updates = [GroupedIterator(epoch, update_freq) for epoch in epochs]

    def blocks(self, updates=None):
        """The blocks of so many updates, or of the rest of the epoch; state_dict() of all processes is the same."""
        found = []
        for group in zip(*(itertools.islice(process, updates) for process in self.updates)):
            found += [index for batches in group for batch in batches if batch for index in batch["id"].tolist()]
        (self.state,) = {json.dumps(iterator.state_dict()) for iterator in self.iterators}
        self.state = json.loads(self.state)
        return found


SIZE = dict(max_sentences=8, required_batch_size_multiple=8)
OTHER_SIZES = [dict(max_sentences=5), dict(max_tokens=200)]


@pytest.mark.parametrize("parts", [
    [(1, 5, 1, SIZE), (2, 3, 1, SIZE), (4, 1, 1, SIZE), (1, 2, 1, SIZE)],
    [(2, 2, 2, SIZE), (3, 1, 1, OTHER_SIZES[0]), (3, 1, 1, OTHER_SIZES[0]), (1, 1, 3, OTHER_SIZES[1])],
])  # fmt: skip
def test_every_block_of_an_epoch_is_used_once_however_the_run_is_resumed(dataset, parts):
    """Each part: processes, updates, batches an update, batching."""
    state, seen = None, []
    for processes, count, update_freq, batching in parts:
        run = Run(dataset, processes, state, update_freq=update_freq, **batching)
        seen += run.blocks(count)
        state = run.state
        assert state["epoch"] == 1 and len(seen) < len(dataset)
    last = Run(dataset, processes, state, update_freq=update_freq, **batching)
    seen += last.blocks()
    assert sorted(seen) == list(range(len(dataset)))
    assert last.state["epoch"] == 2 and last.state["consumed"] == []
    assert last.iterators[0].end_of_epoch()


def test_a_run_resumed_as_it_was_sees_the_same_batches_in_the_same_order(dataset):
    whole = Run(dataset, 2, **SIZE).blocks()
    first = Run(dataset, 2, **SIZE)
    seen = first.blocks(3)
    of_earlier_versions = {name: value for name, value in first.state.items() if name != "consumed"}
    assert of_earlier_versions["iterations_in_epoch"] == 3
    for state in [first.state, of_earlier_versions]:
        assert seen + Run(dataset, 2, state, **SIZE).blocks() == whole
    # As many blocks an update, in one process: the same updates.
    one = Run(dataset, 1, first.state, update_freq=2, **SIZE)
    assert seen + one.blocks() == whole


def test_only_loader_workers_read_ahead(dataset):
    """A thread that is amid a tensor when Python ends, as in a run that is stopped within an epoch, aborts it."""
    before = set(threading.enumerate())
    run = Run(dataset, 1, workers=1, data_buffer_size=10, **SIZE)
    seen = run.blocks(2)
    assert {thread.name for thread in set(threading.enumerate()) - before} <= {"QueueFeederThread"}  # handles bytes
    assert seen + run.blocks() == Run(dataset, 1, **SIZE).blocks()


def test_what_would_lose_blocks_is_refused(dataset):
    state = dict(version=2, epoch=1, iterations_in_epoch=10_000, shuffle=True)
    refuses("the data have changed", Run, dataset, 1, state, **SIZE)
    refuses("--grouped-shuffling leaves out", Run, dataset, 1, grouped_shuffling=True, **SIZE)


def test_one_process_two_and_one_again_equal_one(data, tmp_path):
    """A signal to one of the two stops both."""
    one, other = tmp_path / "one", tmp_path / "other"
    options = [*NO_DROPOUT, "--mask-prob", 0.3, "--max-update", 6]
    train(data, one, "--update-freq", 2, *options)
    train(data, other, "--update-freq", 2, *options, "--max-update", 2)
    sent = trap(tmp_path, 3, signal.SIGTERM, rank=1)
    finish(two_processes(data, *TINY, "--seed", 1, "--save-dir", other, *options, *sent), STOPPED)
    assert updates(other) == 4
    train(data, other, "--update-freq", 2, *options)
    assert updates(other) == 6
    assert_same_weights(one, other, 1e-5)


def test_a_process_that_does_not_find_the_checkpoint_is_noticed(data, tmp_path):
    """As on a machine with a folder of its own."""
    train(data, tmp_path / "one", "--max-update", 2)
    folders = [["--save-dir", tmp_path / name] for name in ["one", "other"]]
    printed = finish(two_processes(data, *TINY, "--max-update", 4, each=folders), 1)
    assert "some processes of this run resume from update 0, others from 2; give a folder that all machines" in printed
