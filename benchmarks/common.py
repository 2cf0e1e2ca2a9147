"""Shared by the benchmarks: data of random tokens, fairseq's configuration, and how results are shown."""

import datetime
import platform
import statistics
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
PLUGIN = ROOT / "maelm_fairseq"
VOCABULARY = 32768  # symbols


def write_data(folder, lengths, vocabulary=VOCABULARY):
    """Writes lines of random tokens in fairseq's format, each ending in `</s>`; the same lines for train and valid.

    Args:
        folder: path to write to
        lengths: number of tokens of each line
        vocabulary: number of symbols, including fairseq's special symbols and `<mask>`
    """
    import torch
    from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

    (folder / "dict.txt").write_text("".join(f"w{i} 1\n" for i in range(vocabulary - 5)))
    rng = np.random.default_rng(1)
    for split in ["train", "valid"]:
        builder = MMapIndexedDatasetBuilder(str(folder / f"{split}.bin"), dtype=np.uint16)
        for length in lengths:
            line = rng.integers(4, vocabulary - 1, length)
            line[-1] = 2
            builder.add_item(torch.from_numpy(line))
        builder.finalize(str(folder / f"{split}.idx"))


def configuration(arguments):
    """fairseq-train's configuration for a list of arguments."""
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    arguments = list(map(str, [*arguments, "--user-dir", PLUGIN, "--cpu"]))
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), arguments))


def heading(threads):
    """The date, machine and versions in one line."""
    import fairseq
    import torch

    return (
        f"{datetime.date.today()}, {platform.machine()}, {threads} threads, Python {platform.python_version()}, "
        f"torch {torch.__version__}, fairseq {fairseq.__version__}"
    )


def ratios(ours, theirs):
    """The median of the ratios of two lists, with their range."""
    found = [a / b for a, b in zip(ours, theirs)]
    return f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"
