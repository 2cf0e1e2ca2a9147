"""Resumed runs, and runs of several processes, end with the same weights as a single run."""

import itertools
import json
import signal
import threading
from types import SimpleNamespace

import pytest
from fairseq.data.iterators import GroupedIterator

from conftest import TINY, refuses
from maelm_fairseq.base_task import MaeLmBaseTask
from maelm_fairseq.data.blocks import TokenBlocks
from maelm_fairseq.data.masked_items import MaskedBlockDataset
from maelm_fairseq.masking import Masking, MaskSettings
from maelm_fairseq.vocabulary import load_dictionary
from stoppable_runs import STOPPED, finish, trap, two_processes
from training import NO_DROPOUT, assert_same_weights, train, updates


@pytest.fixture(scope="module")
def dataset(data):
    dictionary = load_dictionary(data)
    masking = Masking(MaskSettings(), dictionary, 1)
    blocks = TokenBlocks(str(data / "train"), 31, "complete_doc")
    return MaskedBlockDataset([blocks], masking, dictionary, 1)


class Run:
    """The data of one part of a run, as an iterator for each process.

    The part resumes from the state of the one before.
    """

    def __init__(self, dataset, processes, state=None, update_freq=1, workers=0, **batching):
        task = MaeLmBaseTask(SimpleNamespace(), dataset.dictionary)
        self.update_freq = update_freq
        batching.update(num_shards=processes, epoch=1, num_workers=workers, seed=1)
        self.iterators = [
            task.get_batch_iterator(dataset, shard_id=i, **batching) for i in range(processes)
        ]
        for iterator in self.iterators:
            if state is not None:
                iterator.load_state_dict(state)
            iterator.align(update_freq)
        epochs = [iterator.next_epoch_itr() for iterator in self.iterators]
        self.updates = [GroupedIterator(epoch, update_freq) for epoch in epochs]

    def blocks(self, updates=None):
        """The blocks of so many updates, or of the rest of the epoch.

        The state afterwards, which is the same in all processes, becomes `state`.
        """
        indices = []
        processes = [itertools.islice(process, updates) for process in self.updates]
        for update in zip(*processes):  # what each process has of it
            for batch in itertools.chain.from_iterable(update):
                if batch:
                    indices += batch["id"].tolist()
        (state,) = {json.dumps(iterator.state_dict()) for iterator in self.iterators}
        self.state = json.loads(state)
        return indices


SIZE = dict(max_sentences=8, required_batch_size_multiple=8)


@pytest.mark.parametrize("parts", [
    [(1, 5, 1, SIZE), (2, 3, 1, SIZE), (4, 1, 1, SIZE), (1, 2, 1, SIZE)],
    [(2, 2, 2, SIZE), (3, 1, 1, dict(max_sentences=5)), (3, 1, 1, dict(max_sentences=5)),
     (1, 1, 3, dict(max_tokens=200))],
])  # fmt: skip
def test_every_block_of_an_epoch_is_used_once_however_the_run_is_resumed(dataset, parts):
    """Each part is given by processes, updates, batches per update, and options of batching."""
    state = None
    seen = []
    for processes, count, update_freq, batching in parts:
        run = Run(dataset, processes, state, update_freq=update_freq, **batching)
        seen += run.blocks(count)
        state = run.state
        assert state["epoch"] == 1
        assert len(seen) < len(dataset)
    last = Run(dataset, processes, state, update_freq=update_freq, **batching)
    seen += last.blocks()
    assert sorted(seen) == list(range(len(dataset)))
    assert last.state["epoch"] == 2
    assert last.state["consumed"] == []
    assert last.iterators[0].end_of_epoch()


def test_a_run_resumed_as_it_was_sees_the_same_batches_in_the_same_order(dataset):
    whole = Run(dataset, 2, **SIZE).blocks()
    first = Run(dataset, 2, **SIZE)
    seen = first.blocks(3)
    state_of_old_versions = {
        name: value for name, value in first.state.items() if name != "consumed"
    }
    assert state_of_old_versions["iterations_in_epoch"] == 3
    for state in [first.state, state_of_old_versions]:
        assert seen + Run(dataset, 2, state, **SIZE).blocks() == whole
    # A single process with as many blocks per update makes the same updates.
    single = Run(dataset, 1, first.state, update_freq=2, **SIZE)
    assert seen + single.blocks() == whole


def test_only_loader_workers_read_ahead(dataset):
    """A run that is stopped within an epoch has no thread of its own that handles tensors.

    If one did when Python ends, Python would abort.
    """
    before = set(threading.enumerate())
    run = Run(dataset, 1, workers=1, data_buffer_size=10, **SIZE)
    seen = run.blocks(2)
    new_threads = {thread.name for thread in set(threading.enumerate()) - before}
    assert new_threads <= {"QueueFeederThread"}  # which handles bytes
    assert seen + run.blocks() == Run(dataset, 1, **SIZE).blocks()


def test_what_would_lose_blocks_is_refused(dataset):
    state = dict(version=2, epoch=1, iterations_in_epoch=10_000, shuffle=True)
    refuses("the data have changed", Run, dataset, 1, state, **SIZE)
    refuses("--grouped-shuffling leaves out", Run, dataset, 1, grouped_shuffling=True, **SIZE)


def test_one_process_two_and_one_again_equal_one(data, tmp_path):
    """A signal to one of the two stops both."""
    whole = tmp_path / "one"
    parts = tmp_path / "other"
    options = [*NO_DROPOUT, "--mask-prob", 0.3, "--max-update", 6]
    train(data, whole, "--update-freq", 2, *options)
    train(data, parts, "--update-freq", 2, *options, "--max-update", 2)
    sent = trap(tmp_path, 3, signal.SIGTERM, rank=1)
    processes = two_processes(data, *TINY, "--seed", 1, "--save-dir", parts, *options, *sent)
    finish(processes, STOPPED)
    assert updates(parts) == 4
    train(data, parts, "--update-freq", 2, *options)
    assert updates(parts) == 6
    assert_same_weights(whole, parts, 1e-5)


def test_a_process_that_does_not_find_the_checkpoint_is_noticed(data, tmp_path):
    """As on a machine with a folder of its own."""
    train(data, tmp_path / "one", "--max-update", 2)
    folders = [["--save-dir", tmp_path / name] for name in ["one", "other"]]
    printed = finish(two_processes(data, *TINY, "--max-update", 4, each=folders), 1)
    message = "some processes of this run resume from update 0, others from 2; "
    assert message + "give a folder that all machines" in printed
