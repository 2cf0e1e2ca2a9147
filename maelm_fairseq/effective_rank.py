"""Measures how many dimensions token representations use, layer by layer (the paper's Figures 1
and 5).

    python -m maelm_fairseq.effective_rank --checkpoint FILE... --data DIR --dest DIR

Compares four groups of tokens from the same text: all tokens of inputs without [MASK]; all tokens
of inputs with [MASK]; the real tokens of those inputs; and their [MASK] tokens. With shared decoder
layers, there is no [MASK] before the first of them, and its rank is 0. For each layer the program
computes the effective rank of each group, and the number of dimensions that only [MASK] uses
(Theorem 2.2). --dest receives `ranks.csv`, `mask_dimensions.csv`, all singular values
(`spectra.npz`) and a figure (`ranks.png`).
"""

import os

import numpy as np
from tqdm import tqdm

from .analysis.rank_report import plot_ranks, table_of_ranks, write_csv
from .analysis.token_moments import TAU, analyse, sample_blocks
from .base.command_line import Parser, check_different_names, number_in_range
from .base.destinations import check_new
from .base.files import atomic_folder
from .base.running import run_main
from .base_task import make_task
from .checkpoints.building import default_device, load_model
from .config import check_positions
from .task import MaeLmTask
from .vocabulary import load_dictionary


def parse_args():
    parser = Parser("python -m maelm_fairseq.effective_rank", description=__doc__)
    add = parser.add_argument
    add(
        "--checkpoint",
        required=True,
        action="extend",
        nargs="+",
        metavar="FILE_or_DIR",
        help="pretrained or fine-tuned",
    )
    add(
        "--names",
        action="extend",
        nargs="+",
        metavar="NAME",
        help="what figure and tables call the checkpoints (default: their paths)",
    )
    add("--data", required=True, metavar="DIR", help="binarized text with its dict.txt")
    add("--dest", required=True, metavar="DIR", help="new folder to write")
    add("--split", default="valid", help="split of the data (default: valid)")
    add(
        "--tokens",
        type=number_in_range(1),
        default=1_000_000,
        metavar="N",
        help="tokens to measure on, rounded up to whole blocks, or all of the split "
        "(default: %(default)s)",
    )
    add(
        "--tau",
        type=number_in_range(1e-6, 1, float),
        action="extend",
        nargs="+",
        help=f"share of the sum of squared singular values, or several shares (default: {TAU})",
    )
    add(
        "--mask-prob",
        type=number_in_range(0, 1, float),
        default=0.15,
        help="share of [MASK] in inputs (default: %(default)s)",
    )
    add(
        "--tokens-per-sample",
        type=number_in_range(2),
        metavar="T",
        help="tokens of a block (default: the positions of the models)",
    )
    modes = ["none", "complete", "complete_doc", "eos"]
    add(
        "--sample-break-mode",
        choices=modes,
        default="complete_doc",
        help="as in pretraining (default: %(default)s)",
    )
    add(
        "--seed",
        type=number_in_range(0),
        default=1,
        help="of the draws of blocks and masks (default: %(default)s)",
    )
    args = parser.parse_args()
    args.names = args.names or args.checkpoint
    check_different_names(args.names, len(args.checkpoint))
    args.tau = list(dict.fromkeys(args.tau or [TAU]))
    return args


def load_blocks(args):
    """The dictionary of the data, and the blocks to measure on."""
    dictionary = load_dictionary(args.data)
    positions = {file: load_model(file, dictionary).max_positions() for file in args.checkpoint}
    shortest = min(positions, key=positions.get)
    tokens = args.tokens_per_sample
    if tokens is None:
        tokens = positions[shortest]
    option = f"--tokens-per-sample {tokens}"
    check_positions(tokens, positions[shortest], option, "lower it", shortest)
    task = make_task(
        MaeLmTask,
        data=args.data,
        seed=args.seed,
        mask_prob=args.mask_prob,
        sample_break_mode=args.sample_break_mode,
        tokens_per_sample=tokens,
    )
    task.load_dataset(args.split)
    blocks = sample_blocks(task.dataset(args.split), args.tokens, args.mask_prob, args.seed)
    return dictionary, blocks


def main():
    args = parse_args()
    import matplotlib  # noqa: F401  fails now if it is missing, not after hours of work

    check_new(args.dest)
    dictionary, blocks = load_blocks(args)
    device = default_device()
    panels = {}
    all_rows = []
    all_dimensions = []
    all_spectra = {}
    with atomic_folder(args.dest) as folder:
        for name, file in zip(args.names, args.checkpoint):
            model = load_model(file, dictionary).to(device)
            progress = tqdm(desc=name, total=len(blocks), unit=" blocks", leave=False, disable=None)
            with progress:
                rows, dimensions, spectra = analyse(model, blocks, args.tau, progress.update)
            panels[name] = rows
            all_rows += [dict(checkpoint=name, **row) for row in rows]
            all_dimensions += [dict(checkpoint=name, **row) for row in dimensions]
            all_spectra.update({f"{name}/{group}": values for group, values in spectra.items()})
            print(table_of_ranks(name, rows, dimensions, args.tau[0]) + "\n", flush=True)
        write_csv(os.path.join(folder, "mask_dimensions.csv"), all_dimensions)
        np.savez_compressed(os.path.join(folder, "spectra.npz"), **all_spectra)
        plot_ranks(os.path.join(folder, "ranks.png"), panels, args.tau[0])
        write_csv(os.path.join(folder, "ranks.csv"), all_rows)
    print(f"written: ranks.csv, mask_dimensions.csv, spectra.npz and ranks.png in {args.dest}")


if __name__ == "__main__":
    run_main(main)
