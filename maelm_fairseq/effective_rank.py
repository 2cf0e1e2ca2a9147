"""How many dimensions token representations use, layer by layer (the paper's Figures 1 and 5).

    python -m maelm_fairseq.effective_rank --checkpoint FILE... --data DIR --dest DIR

Four families of tokens, of the same text: all tokens of inputs without [MASK]; all tokens of inputs with [MASK], the
real ones among them, and the [MASK] ones. For each layer the program gives the effective rank of each family, and how
many dimensions [MASK] has to itself (Theorem 2.2). Into --dest come `ranks.csv`, `mask_dimensions.csv`, all singular
values (`spectra.npz`) and a figure (`ranks.png`).

Letters in shapes: B sequences, T tokens of a sequence, C width, L layers of the encoder, D = L + 1 depths: layer 0 is
the encoder's input, embeddings behind their LayerNorm.
"""

import argparse
import csv
import logging
import os

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from .checkpoint import load_model
from .data import batches_of_similar_length
from .errors import InstallationError, UsageError
from .masking import Masking
from .task import MaeLmTask, MaeLmTaskConfig

FAMILIES = {
    "without_mask": "all tokens, inputs without [MASK]",
    "with_mask": "all tokens, inputs with [MASK]",
    "real_tokens": "real tokens, inputs with [MASK]",
    "mask_tokens": "[MASK] tokens",
}
TAU = 0.9
ENOUGH = 0.02  # how much a rank may differ from that of half the tokens
BATCH_TOKENS = 8192


def effective_rank(singular_values, tau=TAU):
    """The least number of singular values that hold a share `tau` of the sum of their squares.

    Args:
        singular_values: (..., C), largest first
        tau: over 0, at most 1
    Returns:
        int64 (...); 0 where all are zero
    """
    energy = singular_values.double().square().cumsum(-1)
    total = energy[..., -1:]
    below = energy < total * (tau - 1e-12)  # shares such as 9 of 10 are not exact in binary
    return torch.where(total[..., 0] > 0, below.sum(-1) + 1, 0)


class TokenMoments:
    """X^T X of the representations X of each family at each depth: exact, whatever the number of tokens.

    `matrices` has float64 (D, C, C) and `tokens` a count for each family that tokens were added to.
    """

    def __init__(self):
        self.matrices, self.tokens = {}, {}

    def add(self, family, hidden, chosen):
        """Adds the tokens of a batch where `chosen`, bool (B, T), from `hidden`, D tensors (B, T, C)."""
        if family not in self.matrices:
            self.matrices[family] = hidden[0].new_zeros(len(hidden), *[hidden[0].size(-1)] * 2, dtype=torch.float64)
            self.tokens[family] = 0
        for matrix, layer in zip(self.matrices[family], hidden):
            x = layer[chosen].double()
            matrix.addmm_(x.t(), x)
        self.tokens[family] += int(chosen.sum())

    def matrix(self, family):
        """(D, C, C); what has [MASK] is the sum of real tokens and [MASK]."""
        if family == "with_mask":
            return self.matrices["real_tokens"] + self.matrices["mask_tokens"]
        return self.matrices[family]

    def count(self, family):
        if family == "with_mask":
            return self.tokens["real_tokens"] + self.tokens["mask_tokens"]
        return self.tokens[family]

    def singular_values(self, family):
        """float64 (D, C), largest first."""
        return torch.linalg.eigvalsh(self.matrix(family)).flip(-1).clamp(min=0).sqrt()

    def ranks(self, tau=TAU):
        """{family: int64 (D,)}"""
        return {family: effective_rank(self.singular_values(family), tau) for family in FAMILIES}

    def mask_dimensions(self, tau=TAU):
        """How many dimensions of [MASK] tokens the real tokens beside them do not have (Theorem 2.2).

        Both families span a subspace, of as many leading singular directions as their effective rank. Each direction
        of [MASK] counts with sin^2 of its principal angle to the real tokens': 0 within their span, 1 across it.

        Returns:
            float64 (D,), from 0 to the effective rank of [MASK] tokens
        """
        spans = []
        for family in ["mask_tokens", "real_tokens"]:
            ranks = effective_rank(self.singular_values(family), tau).tolist()
            directions = torch.linalg.eigh(self.matrix(family)).eigenvectors.flip(-1)
            spans.append([vectors[:, :rank] for vectors, rank in zip(directions, ranks)])
        shared = [(mask.t() @ real).square().sum() for mask, real in zip(*spans)]
        return torch.stack([mask.size(1) - cosines for mask, cosines in zip(spans[0], shared)])


def draw_blocks(dataset, tokens, mask_prob=0.15, seed=1):
    """Draws blocks of text, and positions of each to mask.

    Args:
        dataset: :class:`~maelm_fairseq.data.MaskedBlockDataset`
        tokens: how many there are to be at least; or all that there are
        mask_prob: share of the positions, `<s>` never among them
        seed: of both draws
    Returns:
        list of (tokens (T,) int64, masked (T,) bool)
    """
    own = dataset.masking
    masking = Masking(mask_prob, 0, 0, 1, own.mask_token, own.random_tokens, None, seed)
    order = np.random.default_rng(seed).permutation(len(dataset))
    enough = int(np.searchsorted(np.cumsum(dataset.sizes[order]), tokens)) + 1
    blocks = []
    for index in order[:enough]:
        block = dataset.tokens(index)
        masked = np.zeros(len(block), dtype=bool)
        masked[masking(block, 1, int(index)).predicted_visible] = True
        blocks.append((torch.from_numpy(block), torch.from_numpy(masked)))
    return blocks


@torch.no_grad()
def measure(model, blocks, moments=None, progress=None):
    """Runs an encoder over blocks of text, without and with [MASK].

    Args:
        model: :class:`~maelm_fairseq.model.MaeLmModel`, pretrained or fine-tuned
        blocks: what :func:`draw_blocks` gave, or a part of it
        moments: :class:`TokenMoments` to add to; None for new ones
        progress: function that is told of each number of blocks done
    Returns:
        the :class:`TokenMoments`
    """
    moments = TokenMoments() if moments is None else moments
    device, training = model.embed_tokens.weight.device, model.training
    model.eval()
    lengths = torch.tensor([len(tokens) for tokens, _ in blocks])
    for rows in batches_of_similar_length(lengths, BATCH_TOKENS):
        tokens, masked = zip(*(blocks[row] for row in rows))
        tokens = pad_sequence(tokens, batch_first=True, padding_value=model.pad).to(device)
        masked = pad_sequence(masked, batch_first=True, padding_value=False).to(device)
        padding = tokens.eq(model.pad)
        padded = bool(padding.any())
        hidden = []
        model.forward_encoder(tokens, padded=padded, hidden=hidden)
        moments.add("without_mask", hidden, ~padding)
        hidden = []
        model.forward_encoder(tokens.masked_fill(masked, model.mask), padded=padded, hidden=hidden)
        moments.add("real_tokens", hidden, ~(padding | masked))
        moments.add("mask_tokens", hidden, masked)
        if progress:
            progress(len(tokens))
    model.train(training)
    return moments


def last_layer_ranks(model, dataset, tokens):
    """The effective rank of each family at the last layer, as validation logs it: {name: int}."""
    ranks = measure(model, draw_blocks(dataset, tokens)).ranks()
    return {f"rank_{family}": int(by_layer[-1]) for family, by_layer in ranks.items()}


def analyse(model, blocks, taus=(TAU,), progress=None):
    """What the program writes of one model.

    Args:
        model, blocks, progress: as for :func:`measure`
        taus: of the effective rank
    Returns:
        ranks: list of dicts: layer, family, tau, tokens, rank, tokens_half, rank_half
        dimensions: list of dicts: layer, tau; with_mask_less_without and with_mask_less_real, differences of ranks;
            mask_outside_real (:meth:`TokenMoments.mask_dimensions`)
        spectra: {family: float64 (D, C) singular values}
    """
    half = len(blocks) // 2
    moments = measure(model, blocks[:half], progress=progress)
    ranks_half = {tau: moments.ranks(tau) for tau in taus}
    tokens_half = {family: moments.count(family) for family in FAMILIES}
    measure(model, blocks[half:], moments, progress)
    rows, dimensions = [], []
    for tau in taus:
        ranks, outside = moments.ranks(tau), moments.mask_dimensions(tau)
        for layer in range(len(outside)):
            for family in FAMILIES:
                rows.append(
                    dict(
                        layer=layer,
                        family=family,
                        tau=tau,
                        tokens=moments.count(family),
                        rank=int(ranks[family][layer]),
                        tokens_half=tokens_half[family],
                        rank_half=int(ranks_half[tau][family][layer]),
                    )
                )
            with_mask = int(ranks["with_mask"][layer])
            dimensions.append(
                dict(
                    layer=layer,
                    tau=tau,
                    with_mask_less_without=with_mask - int(ranks["without_mask"][layer]),
                    with_mask_less_real=with_mask - int(ranks["real_tokens"][layer]),
                    mask_outside_real=round(float(outside[layer]), 2),
                )
            )
    return rows, dimensions, {family: moments.singular_values(family).cpu().numpy() for family in FAMILIES}


def import_pyplot():
    """matplotlib's pyplot, for pictures without a screen."""
    try:
        import matplotlib
    except ImportError:
        raise InstallationError("the figure needs matplotlib: pip install matplotlib (the extra `demo`)") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def draw(path, panels, tau=TAU):
    """Draws the ranks of several models side by side.

    Args:
        path: of the picture
        panels: {title: rows as :func:`analyse` gives them}
        tau: whose ranks
    """
    pyplot = import_pyplot()
    columns = min(len(panels), 4)
    rows = -(-len(panels) // columns)
    size = (max(6.5, 3.4 * columns), 1.0 + 3.2 * rows)
    figure, axes = pyplot.subplots(rows, columns, figsize=size, sharey=True, squeeze=False, layout="constrained")
    for axis, (title, ranks) in zip(axes.flat, panels.items()):
        for (family, label), style in zip(FAMILIES.items(), ["o-", "s--", "^:", "v-."]):
            chosen = [row for row in ranks if row["family"] == family and row["tau"] == tau]
            axis.plot([r["layer"] for r in chosen], [r["rank"] for r in chosen], style, label=label, markersize=4)
        axis.set_title(title)
        axis.set_xlabel("layer (0: embeddings)")
        axis.xaxis.set_major_locator(pyplot.MaxNLocator(integer=True))
        axis.grid(alpha=0.3)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for row in axes:
        row[0].set_ylabel(f"effective rank ($\\tau$ = {tau:g})")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    figure.savefig(path + ".partial", format="png", dpi=120)
    os.replace(path + ".partial", path)
    pyplot.close(figure)


def write_csv(path, rows):
    """Writes a list of dicts, which share their keys, as a table."""
    with open(path + ".partial", "w", encoding="utf-8", newline="") as stream:
        table = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    os.replace(path + ".partial", path)


def report(name, rows, dimensions, tau):
    """One model's table, for the terminal."""
    lines = [f"{name}: effective rank at tau = {tau:g} (in brackets with half the tokens)"]
    lines.append("layer" + "".join(f"{family:>16}" for family in FAMILIES) + "   [MASK] dimensions of its own")
    for row in dimensions:
        if row["tau"] == tau:
            here = {r["family"]: r for r in rows if r["layer"] == row["layer"] and r["tau"] == tau}
            cells = ["{rank} ({rank_half})".format(**here[family]) for family in FAMILIES]
            lines.append(f"{row['layer']:>5}" + "".join(f"{c:>16}" for c in cells) + f"{row['mask_outside_real']:>14}")
    worst = max(rows, key=difference)
    verdict = "enough" if difference(worst) <= ENOUGH else "more tokens are needed, see --tokens"
    lines.append(
        f"{rows[0]['tokens']:,} tokens; half of them change a rank by at most {difference(worst):.1%} ({verdict})"
    )
    return "\n".join(lines)


def difference(row):
    """How much of a rank changed with the second half of the tokens; one rank more or less is no change."""
    return max(0, abs(row["rank"] - row["rank_half"]) - 1) / max(row["rank"], 1)


def main():
    parser = argparse.ArgumentParser(
        prog="python -m maelm_fairseq.effective_rank",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--checkpoint", required=True, nargs="+", metavar="FILE", help="pretrained or fine-tuned")
    parser.add_argument("--names", nargs="+", metavar="NAME", help="of the checkpoints, for figure and tables")
    parser.add_argument("--data", required=True, metavar="DIR", help="binarized text, with its dict.txt")
    parser.add_argument("--dest", required=True, metavar="DIR", help="where the results go")
    parser.add_argument("--split", default="valid", help="of the data (default: valid)")
    parser.add_argument("--tokens", type=int, default=1_000_000, metavar="N", help="at least so many, or all")
    parser.add_argument("--tau", type=float, nargs="+", default=[TAU], help="shares of energy (default: 0.9)")
    parser.add_argument("--mask-prob", type=float, default=0.15, help="share of [MASK] in inputs (default: 0.15)")
    parser.add_argument("--tokens-per-sample", type=int, metavar="T", help="of a block (default: the positions)")
    parser.add_argument("--sample-break-mode", default="complete_doc", help="as in pretraining (default: complete_doc)")
    parser.add_argument("--seed", type=int, default=1, help="of the blocks and masks")
    args = parser.parse_args()
    logging.disable(logging.INFO)

    import_pyplot()  # before the work, not after it
    names = args.names or args.checkpoint
    if len(names) != len(args.checkpoint) or len(set(names)) < len(names):
        raise UsageError(
            f"--names {' '.join(names)}: expected {len(args.checkpoint)}, a name of its own for each checkpoint"
        )
    for tau in args.tau:
        if not 0 < tau <= 1:
            raise UsageError(f"--tau {tau} must be over 0 and at most 1")
    break_modes = [mode.value for mode in MaeLmTaskConfig.__dataclass_fields__["sample_break_mode"].type]
    if args.sample_break_mode not in break_modes:
        raise UsageError(f"--sample-break-mode {args.sample_break_mode} must be one of {', '.join(break_modes)}")
    if args.tokens < 1:
        raise UsageError(f"--tokens {args.tokens} must be at least 1")
    config = MaeLmTaskConfig(
        data=args.data, seed=args.seed, mask_prob=args.mask_prob, fp16=False, bf16=False, amp=False
    )
    config.sample_break_mode = args.sample_break_mode
    task = MaeLmTask.setup_task(config)
    positions = {file: load_model(file, task.dictionary).max_positions() for file in args.checkpoint}
    shortest = min(positions, key=positions.get)
    config.tokens_per_sample = args.tokens_per_sample or positions[shortest]
    if config.tokens_per_sample > positions[shortest]:
        raise UsageError(
            f"--tokens-per-sample {config.tokens_per_sample}: {shortest} has {positions[shortest]} positions"
        )
    task.load_dataset(args.split)
    blocks = draw_blocks(task.dataset(args.split), args.tokens, args.mask_prob, args.seed)
    if len(blocks) < 2:
        raise UsageError(f"{args.data}: one block of split {args.split!r} to measure on, expected two at least")

    os.makedirs(args.dest, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    panels, all_dimensions, all_spectra = {}, [], {}
    for name, file in zip(names, args.checkpoint):
        model = load_model(file, task.dictionary).to(device)
        with tqdm(desc=name, total=len(blocks), unit=" blocks", leave=False, disable=None) as bar:
            rows, dimensions, spectra = analyse(model, blocks, args.tau, bar.update)
        panels[name] = rows
        all_dimensions += [dict(checkpoint=name, **row) for row in dimensions]
        all_spectra.update({f"{name}/{family}": values for family, values in spectra.items()})
        print(report(name, rows, dimensions, args.tau[0]) + "\n", flush=True)
    write_csv(
        os.path.join(args.dest, "ranks.csv"), [dict(checkpoint=n, **row) for n, rows in panels.items() for row in rows]
    )
    write_csv(os.path.join(args.dest, "mask_dimensions.csv"), all_dimensions)
    spectra_file = os.path.join(args.dest, "spectra.npz")
    with open(spectra_file + ".partial", "wb") as stream:
        np.savez_compressed(stream, **all_spectra)
    os.replace(spectra_file + ".partial", spectra_file)
    draw(os.path.join(args.dest, "ranks.png"), panels, args.tau[0])
    print(f"written: ranks.csv, mask_dimensions.csv, spectra.npz and ranks.png in {args.dest}")


if __name__ == "__main__":
    main()
