"""Shared by the benchmarks: data of random tokens, models in fairseq's Trainer, formats of results."""

import datetime
import itertools
import platform
import statistics
import time
from pathlib import Path

import maelm_fairseq.plugin  # noqa: F401 isort: skip  first: it keeps fairseq's import quiet
import fairseq
import numpy as np
import torch
from fairseq import options, tasks
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer

from maelm_fairseq.optimizer import replace_copies

ROOT = Path(__file__).resolve().parent.parent
VOCABULARY = 32768  # symbols
BATCHES = 8  # of a training


def write_data(folder, lengths, vocabulary=VOCABULARY):
    """Writes lines of random tokens in fairseq's format, each ending in `</s>`; the same lines for train and valid.

    `lengths` are the tokens of each line; `vocabulary` counts fairseq's special symbols and `<mask>`, too.
    """
    (folder / "dict.txt").write_text("".join(f"w{i} 1\n" for i in range(vocabulary - 5)))
    rng = np.random.default_rng(1)
    for split in ["train", "valid"]:
        builder = MMapIndexedDatasetBuilder(str(folder / f"{split}.bin"), dtype=np.uint16)
        for length in lengths:
            line = rng.integers(4, vocabulary - 1, length)
            line[-1] = 2
            builder.add_item(torch.from_numpy(line))
        builder.finalize(str(folder / f"{split}.idx"))


def size_options(args):
    """The options of fairseq-train for the sizes of an encoder: `args.layers`, `width` and `heads`."""
    options = ["--encoder-layers", args.layers, "--encoder-embed-dim", args.width]
    return [*options, "--encoder-ffn-embed-dim", 4 * args.width, "--encoder-attention-heads", args.heads]


def configuration(arguments, device="cpu"):
    """fairseq-train's configuration for a list of arguments; on "cuda", for one GPU."""
    of_device = ["--cpu"] if device == "cpu" else ["--distributed-world-size", 1]
    arguments = list(map(str, [*arguments, *of_device]))
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), arguments))


class Training:
    """A model in fairseq's Trainer, built as by fairseq-train, and an endless cycle of its first BATCHES.

    An update is made of `accumulate` of them.
    """

    def __init__(self, arguments, device, accumulate=1):
        self.device, self.accumulate = device, accumulate
        replace_copies()  # as under fairseq-train
        cfg = configuration(arguments, device)
        self.task = tasks.setup_task(cfg.task)
        model, criterion = self.task.build_model(cfg.model), self.task.build_criterion(cfg.criterion)
        self.trainer = Trainer(cfg, self.task, model, criterion)
        self.batches = list(itertools.islice(self.trainer.get_train_iterator(epoch=1).next_epoch_itr(), BATCHES))
        self.cycle = itertools.cycle(self.batches)
        self.sequences = accumulate * statistics.mean(batch["nsentences"] for batch in self.batches)  # of an update

    def step(self, batches):
        self.trainer.train_step(batches, raise_oom=True)  # fairseq would skip a batch that does not fit

    def seconds(self, steps=1):
        """Seconds that an update takes, on average."""
        updates = [list(itertools.islice(self.cycle, self.accumulate)) for _ in range(steps)]
        return seconds(self.step, updates, self.device)


def seconds(function, items, device):
    """Seconds that a function takes for each of some items, on average; of a GPU, until it has done all its work."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    for item in items:
        function(item)
    wait()
    return (time.perf_counter() - start) / len(items)


def heading(threads, device="cpu"):
    """The date, machine and versions in one line."""
    gpu = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}, " if device == "cuda" else ""
    with open("/proc/cpuinfo") as lines:
        cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return (
        f"{datetime.date.today()}, {gpu}{cpu} ({torch.backends.cpu.get_cpu_capability()}), {threads} threads, "
        f"Python {platform.python_version()}, torch {torch.__version__}, fairseq {fairseq.__version__}"
    )
