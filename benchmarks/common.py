"""What the benchmarks share: data of random tokens, fairseq's configuration, how results are shown."""

import datetime
import platform
import statistics
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
PLUGIN = ROOT / "maelm_fairseq"
sys.path.insert(0, str(ROOT))
VOCABULARY = 32768  # symbols


def write_data(folder, lengths, vocabulary=VOCABULARY):
    """Writes lines of random tokens in fairseq's format, `</s>` at the end of each, the same for train and valid.

    Args:
        folder: path to write to
        lengths: tokens of each line
        vocabulary: symbols, fairseq's own and `<mask>` counted
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
    """The configuration that fairseq-train makes of a list of arguments."""
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    arguments = list(map(str, [*arguments, "--user-dir", PLUGIN, "--cpu"]))
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), arguments))


def heading(threads):
    """Date, machine and versions, in one line."""
    import fairseq
    import torch

    return (
        f"{datetime.date.today()}, {platform.machine()}, {threads} threads, Python {platform.python_version()}, "
        f"torch {torch.__version__}, fairseq {fairseq.__version__}"
    )


def ratios(ours, theirs):
    """The median of the ratios of two lists, with the lowest and the highest."""
    found = [a / b for a, b in zip(ours, theirs)]
    return f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"
