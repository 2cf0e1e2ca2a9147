#!/usr/bin/env python3
"""The small recipe beside a bag of words, and what its parts give; SMALL.md is made from the records.

    python small.py list                                  the names of all encoders, VARIANT-SEED
    python small.py options small-1                       the options of pretrain_small.sh for one
    python small.py measure small-1 --run RUN [--pairs blimp]   measures it, into records/small
    python small.py page                                  remakes the tables of SMALL.md

A variant differs from the recipe in the options that VARIANTS has. Measured are the losses of validation. Those in
FINE_TUNED are also fine-tuned, with the recipe's defaults in bfloat16, and scored beside a bag of words. They decide
minimal pairs, too.
"""

import re
import sys
from pathlib import Path

import pandas as pd

from maelm_fairseq.base.errors import Parser, UsageError, run
from maelm_fairseq.base.files import atomic_write
from measure import NATURAL, RECIPES, TEXT, call, losses, write
from page import with_blocks

sys.path.append(str(RECIPES))
from bag_of_words import BAG_OF_WORDS, MOST_FREQUENT  # noqa: E402
from evaluation.report import markdown  # noqa: E402

PAGE = Path(__file__).with_name("SMALL.md")
RECORDS = Path(__file__).with_name("records") / "small"
DEMO = "--batch-size 32 --update-freq 1 --max-positions 64 --encoder-mask-fade-updates 0 "
DEMO += "--max-update 1500 --total-num-update 1500"
RANDOM = "--no-cooccurrence-embeddings"
VARIANTS = {
    "small": "",
    "small_random": RANDOM,
    "demo": DEMO,
    "demo_random": f"{DEMO} {RANDOM}",
}
FINE_TUNED = ["small", "small_random"]
TITLES = {
    "small": "the small recipe",
    "small_random": "the small recipe, random initial embeddings",
    "demo": "the demo",
    "demo_random": "the demo, random initial embeddings",
}
SEEDS = [1, 2, 3]
FINE_TUNING_SEEDS = 1


def encoders():
    """The names of all encoders, a seed of each variant after the other."""
    return [f"{variant}-{seed}" for seed in SEEDS for variant in VARIANTS]


def split(name):
    """VARIANT-SEED as a pair."""
    match = re.fullmatch(r"(\w+)-(\d+)", name)
    if not match or match[1] not in VARIANTS:
        raise UsageError(f"{name}: expected VARIANT-SEED with one of {', '.join(VARIANTS)}")
    return match[1], int(match[2])


def options(name):
    variant, seed = split(name)
    return f"{VARIANTS[variant]} --seed {seed}".strip()


# Measuring ---------------------------------------------------------------------------------------------------------


def measurements(name, folder, pairs):
    """The rows of an encoder: (variant, seed, updates, layer, task, feature, metric, value).

    Of fine-tuning, the feature is the file that is scored, and rows of a bag of words have its name for a variant.
    """
    variant, seed = split(name)
    model = folder / name / "checkpoint_best.pt"
    for updates, metric, value in losses(folder / name / "train.log"):
        yield variant, seed, updates, "", TEXT, "validation", metric, value
    if variant not in FINE_TUNED:
        return
    for task in NATURAL:
        command = [RECIPES / "finetune.py", "mae_lm_sentences", "--seeds", FINE_TUNING_SEEDS]
        command += ["--labelled", folder / "labelled" / task, "--checkpoint", model]
        command += ["--data", folder / "data", "--save-dir", folder / name / "tuned", "--bf16-autocast"]
        call(sys.executable, *command)
    for row in pd.read_csv(folder / name / "tuned" / "results.tsv", sep="\t").itertuples():
        predictor = row.start if row.start in (BAG_OF_WORDS, MOST_FREQUENT) else variant
        yield predictor, seed, "", "", row.task, row.split, row.metric, row.median
        yield predictor, seed, "", "", row.task, row.split, f"{row.metric}, standard error", row.error
    if pairs:
        dest = folder / name / "pairs"
        command = [RECIPES / "evaluate.py", "--checkpoint", model, "--names", name]
        call(sys.executable, *command, "--data", folder / "data", "--dest", dest, "--pairs", pairs)
        for row in pd.read_csv(dest / "scores.csv").itertuples():
            yield variant, seed, "", "", row.task, row.feature, row.metric, row.value


# The page ----------------------------------------------------------------------------------------------------------


class Page:
    """The tables of SMALL.md, from the records in a folder."""

    def __init__(self, folder=RECORDS):
        tables = [pd.read_csv(path) for path in sorted(folder.glob("*.csv"))]
        self.records = pd.concat(tables, ignore_index=True)

    def variants(self):
        return [variant for variant in VARIANTS if variant in set(self.records.arm)]

    def losses(self):
        """The loss of validation by updates, of each seed."""
        rows = {}
        found = self.records[(self.records.feature == "validation") & (self.records.metric == "bits")]
        for variant in self.variants():
            for updates, values in found[found.arm == variant].groupby("updates").value:
                cells = rows.setdefault(TITLES[variant], {})
                cells[f"{updates:.0f} updates"] = ", ".join(f"{value:.2f}" for value in values)
        frame = pd.DataFrame.from_dict(rows, orient="index").fillna("")
        columns = sorted(frame.columns, key=lambda name: int(name.split()[0]))
        return markdown(frame[[name for name in columns if int(name.split()[0]) % 500 == 0]])

    def scores(self, file):
        """The scores of fine-tuning on a file, means over seeds of pretraining, and their mean over tasks."""
        found = self.records[(self.records.feature == file) & self.records.metric.isin(["accuracy", "pearson"])]
        rows = {}
        for name in [*FINE_TUNED, BAG_OF_WORDS, MOST_FREQUENT]:
            part = found[found.arm == name]
            if not len(part):
                continue
            means = part.groupby("task").value.mean().reindex(NATURAL)
            seeds = part.seed.nunique() if name in VARIANTS else ""
            rows[TITLES.get(name, name)] = {"seeds": seeds, **means.to_dict(), "mean": means.mean(skipna=False)}
        return markdown(pd.DataFrame.from_dict(rows, orient="index"))

    def dev(self):
        return self.scores("dev.tsv")

    def test(self):
        return self.scores("test.tsv")


def main():
    parser = Parser("small.py", description=__doc__)
    parser.add_argument("what", choices=["list", "options", "measure", "page"])
    parser.add_argument("name", nargs="?", metavar="VARIANT-SEED")
    parser.add_argument("--run", type=Path, default=Path("run"), help="folder of data and models")
    parser.add_argument("--pairs", type=Path, metavar="FILE_or_DIR", help="minimal pairs, such as BLiMP's")
    args = parser.parse_args()
    if args.what == "list":
        return print(*encoders(), sep="\n")
    if args.what == "page":
        text = with_blocks(PAGE.read_text(encoding="utf-8"), Page())
        with atomic_write(PAGE) as stream:
            stream.write(text)
        return None
    if args.name is None:
        raise UsageError(f"{args.what}: expected a VARIANT-SEED, such as small-1")
    if args.what == "options":
        return print(options(args.name))
    RECORDS.mkdir(parents=True, exist_ok=True)
    return write(RECORDS / f"{args.name}.csv", measurements(args.name, args.run, args.pairs))


if __name__ == "__main__":
    run(main)
