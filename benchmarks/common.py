"""What the benchmarks share: random data, models in fairseq's Trainer, a heading of results."""

import datetime
import itertools
import platform
import statistics
import time

import maelm_fairseq.plugin  # noqa: F401 isort: skip  comes first: it keeps fairseq's import quiet
import fairseq
import numpy as np
import torch
from fairseq import options, tasks
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer

from maelm_fairseq.training.hooks import wrap_copies

VOCABULARY = 32768  # symbols
BATCHES = 8  # different ones in a training


def write_data(folder, lengths, vocabulary=VOCABULARY):
    """Writes lines of random tokens in fairseq's format, for the splits train and valid.

    Args:
        folder: folder to write to
        lengths: number of tokens of each line, with `</s>` at its end
        vocabulary: number of symbols, with fairseq's special symbols and `<mask>`
    """
    (folder / "dict.txt").write_text("".join(f"w{i} 1\n" for i in range(vocabulary - 5)))
    rng = np.random.default_rng(1)
    for split in ["train", "valid"]:
        builder = MMapIndexedDatasetBuilder(str(folder / f"{split}.bin"), dtype=np.uint16)
        for length in lengths:
            line = rng.integers(4, vocabulary - 1, length)
            line[-1] = 2  # `</s>`
            builder.add_item(torch.from_numpy(line))
        builder.finalize(str(folder / f"{split}.idx"))


def size_options(args):
    """The options of fairseq-train for the sizes of an encoder: `args.layers`, `width`, `heads`."""
    return [
        *["--encoder-layers", args.layers, "--encoder-embed-dim", args.width],
        *["--encoder-ffn-embed-dim", 4 * args.width, "--encoder-attention-heads", args.heads],
    ]


def configuration(arguments, device="cpu"):
    """fairseq-train's configuration for a list of arguments; on "cuda", for one GPU."""
    device_options = ["--cpu"] if device == "cpu" else ["--distributed-world-size", 1]
    words = list(map(str, [*arguments, *device_options]))
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    return convert_namespace_to_omegaconf(args)


class Training:
    """A model in fairseq's Trainer, built as by fairseq-train.

    It trains on an endless cycle of its first BATCHES batches, and on `accumulate` of them for each
    update.
    """

    def __init__(self, arguments, device, accumulate=1):
        self.device = device
        self.accumulate = accumulate
        wrap_copies()  # as under fairseq-train
        cfg = configuration(arguments, device)
        self.task = tasks.setup_task(cfg.task)
        model = self.task.build_model(cfg.model)
        criterion = self.task.build_criterion(cfg.criterion)
        self.trainer = Trainer(cfg, self.task, model, criterion)
        epoch = self.trainer.get_train_iterator(epoch=1).next_epoch_itr()
        self.batches = list(itertools.islice(epoch, BATCHES))
        self.cycle = itertools.cycle(self.batches)
        mean_sequences = statistics.mean(batch["nsentences"] for batch in self.batches)
        self.sequences = accumulate * mean_sequences  # of an update

    def step(self, batches):
        # Otherwise fairseq would skip a batch that does not fit.
        self.trainer.train_step(batches, raise_oom=True)

    def seconds(self, steps=1):
        """Seconds that an update takes, on average."""
        updates = []
        for _ in range(steps):
            updates.append(list(itertools.islice(self.cycle, self.accumulate)))
        return seconds(self.step, updates, self.device)


def seconds(function, items, device):
    """Seconds that a function takes for each of some items, on average.

    On a GPU, they last until it has done all its work.
    """
    wait_for(device)
    start = time.perf_counter()
    for item in items:
        function(item)
    wait_for(device)
    return (time.perf_counter() - start) / len(items)


def wait_for(device):
    """Returns when a device has done all its work."""
    if device == "cuda":
        torch.cuda.synchronize()


def heading(threads, device="cpu"):
    """The date, machine and versions in one line."""
    gpu = ""
    if device == "cuda":
        gpu = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}, "
    instructions = torch.backends.cpu.get_cpu_capability()
    return (
        f"{datetime.date.today()}, {gpu}{cpu_name()} ({instructions}), {threads} threads, "
        f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"fairseq {fairseq.__version__}"
    )


def cpu_name():
    """The name of the CPU's model, or else of its architecture."""
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    return platform.machine()
