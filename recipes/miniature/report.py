"""Tables, figures and the summary of a reproduction: what recipes/reproduce.py ends with."""

import csv
import datetime
import glob
import math
import os
import platform
import shutil
import statistics
from functools import lru_cache

import torch

import finetune
from maelm_fairseq import effective_rank
from maelm_fairseq.errors import UsageError
from maelm_fairseq.files import atomic_write
from show_progress import logged

MASK_PROB = 0.3
DECODER_LAYERS = 2
MODELS = {  # what is compared, and how it is pretrained
    "mlm": ["--decoder-layers", 0, "--encoder-mask-fraction", 1],
    "mae_lm": ["--decoder-layers", DECODER_LAYERS],
}
TITLES = {"mlm": "MLM", "mae_lm": "MAE-LM"}
HEADING = "## The paper in miniature"
FIGURES = {
    "ranks-pretrained.png": "Effective rank by layer, after pretraining (Figures 1 and 5a of the paper)",
    "ranks-finetuned.png": "Effective rank by layer, after fine-tuning (Figure 5b)",
    "score-against-time.png": "Score against time of pretraining (Figure 3)",
    "mask-fraction.png": "Rank gap and score by the share of masks that the encoder sees (Figure 4)",
}


def training_log(path, key="num_updates"):
    """What fairseq-train wrote into a log file; see :func:`show_progress.logged`."""
    with open(path, encoding="utf-8") as lines:
        return logged(lines, key)


def pretraining_record(log):
    """What is kept of a run: the validations, each with its update, loss (bits), seconds of training so far, ranks."""
    training, validations = training_log(log), []
    for stats in training_log(log, "valid_num_updates"):
        update = int(stats["valid_num_updates"])
        # A line's train_wall is of the updates since the line before, without validations.
        seconds = sum(float(row["train_wall"]) for row in training if int(row["num_updates"]) <= update)
        ranks = {name[6:]: int(value) for name, value in stats.items() if name.startswith("valid_rank_")}
        validations.append(dict(update=update, loss=float(stats["valid_loss"]), seconds=seconds, **ranks))
    return validations


def shown(values):
    """The median, and the lowest and highest where there are several."""
    if not values:
        return "not run"
    text = f"{statistics.median(values):.2f}"
    return text if len(values) == 1 else f"{text} ({min(values):.2f} to {max(values):.2f})"


def difference(ours, theirs):
    """Of two lists of scores: the difference of the means, and its standard error (nan for single scores)."""
    error = math.nan
    if min(len(ours), len(theirs)) > 1:
        error = math.sqrt(statistics.variance(ours) / len(ours) + statistics.variance(theirs) / len(theirs))
    return statistics.mean(ours) - statistics.mean(theirs), error


class Report:
    """What came out.

    Args:
        reproduction: :class:`~reproduce.Reproduction`, whose comparison is done: pretraining, ranks and the first task
        left: how many of its jobs are not
    """

    def __init__(self, reproduction, left=0):
        self.reproduction, self.args, self.left = reproduction, reproduction.args, left
        self.path, self.size = reproduction.path, reproduction.size
        self.first_task, *_ = names = reproduction.task_names()
        compared, self.last = reproduction.compared(), self.size.model[1]  # the last layer
        self.tasks = [task for task in names if all(self.scores(name, task) for name in compared)]
        self.variations = [name for name in reproduction.variations() if os.path.exists(self.path("ranks", name))]
        missing = [name for name in compared if not os.path.exists(self.path("ranks", name))]
        if missing or self.first_task not in self.tasks:
            raise UsageError(
                f"{self.path()}: nothing to report yet, expected the ranks and {self.first_task} scores of "
                f"{', '.join(compared)}; run the command without --report first"
            )

    # What the jobs left

    def rank_rows(self, name):
        """The rows of a run's ranks.csv."""
        with open(self.path("ranks", name, "ranks.csv"), encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
        for row in rows:
            row.update(layer=int(row["layer"]), rank=int(row["rank"]), tau=float(row["tau"]))
        return rows

    @lru_cache(maxsize=None)
    def ranks(self, name):
        """The ranks of a run: {(family, layer): rank}."""
        return {(row["family"], row["layer"]): row["rank"] for row in self.rank_rows(name)}

    def own_dimensions(self, name):
        """By layer, the dimensions of [MASK] outside the real tokens' span."""
        with open(self.path("ranks", name, "mask_dimensions.csv"), encoding="utf-8") as stream:
            return [float(row["mask_outside_real"]) for row in csv.DictReader(stream)]

    def scores(self, name, task):
        """The scores of a run's fine-tuning seeds, in percent; none where that is not done."""
        path = self.path("finetuning", name, task + ".json")
        scores = finetune.read_record(path, "recipes/reproduce.sh") if os.path.exists(path) else []
        return [next(iter(score.values())) for score in scores]

    def metric(self, task):
        record = finetune.read_record(self.path("finetuning", "mlm-1", task + ".json"), "recipes/reproduce.sh")
        return next(iter(record[0]))

    def all_scores(self, model, task):
        """The scores of all seeds of a model of the comparison."""
        return [score for seed in self.seeds() for score in self.scores(f"{model}-{seed}", task)]

    def record(self, name):
        return finetune.read_record(self.path("pretraining", name, "record.json"), "recipes/reproduce.sh")

    def seeds(self):
        return range(1, self.args.seeds + 1)

    def gap(self, name, layer=None):
        """By how much the rank of inputs without [MASK] is below that of inputs with it; of the last layer."""
        ranks, layer = self.ranks(name), self.last if layer is None else layer
        return ranks["with_mask", layer] - ranks["without_mask", layer]

    # Tables

    def comparison(self):
        lines = ["| | from scratch | MLM | MAE-LM | MAE-LM less MLM, standard error |", "|---|---|---|---|---|"]
        for title, of in [
            ("validation loss, bits a predicted token", lambda name: self.record(name)[-1]["loss"]),
            ("seconds of training", lambda name: self.record(name)[-1]["seconds"]),
        ]:
            mlm, mae_lm = ([of(f"{model}-{seed}") for seed in self.seeds()] for model in MODELS)
            lines.append(f"| {title} | | {shown(mlm)} | {shown(mae_lm)} | |")
        for task in self.tasks:
            mlm, mae_lm = (self.all_scores(model, task) for model in MODELS)
            less, error = difference(mae_lm, mlm)
            error = "" if math.isnan(error) else f" ± {error:.2f}"
            scores = " | ".join(map(shown, [self.scores("scratch", task), mlm, mae_lm]))
            lines.append(f"| {task}, {self.metric(task)} | {scores} | {less:+.2f}{error} |")
        return lines

    def rank_table(self, suffix="", seeds=None):
        """By layer the four families' ranks, of both models."""
        layers = range(self.last + 1)
        lines = ["| model, seed | tokens | " + " | ".join(f"layer {k}" for k in layers) + " |"]
        lines.append("|---|---" + "|---" * len(layers) + "|")
        for model in MODELS:
            for seed in seeds or self.seeds():
                name = f"{model}-{seed}{suffix}"
                ranks = self.ranks(name)
                for family, label in effective_rank.FAMILIES.items():
                    cells = [ranks[family, layer] for layer in layers]
                    lines.append(f"| {TITLES[model]}, {seed} | {label} | " + " | ".join(map(str, cells)) + " |")
                cells = [f"{value:.1f}" for value in self.own_dimensions(name)]
                lines.append(
                    f"| {TITLES[model]}, {seed} | dimensions of [MASK] outside real tokens' | "
                    + " | ".join(cells)
                    + " |"
                )
        return lines

    def variation_table(self):
        task = self.first_task
        lines = [f"| MAE-LM, seed 1, with | loss, bits | seconds | rank, without [MASK] | rank gap | {task} |"]
        lines.append("|---|---|---|---|---|---|")
        base = {
            "fraction": "share of masks in the encoder: 0",
            "decoder": f"decoder layers: {DECODER_LAYERS}",
            "mask-prob": f"mask probability: {MASK_PROB:g}",
        }
        for name in ["mlm-1", "mae_lm-1", *self.variations]:
            kind, _, value = name.rpartition("-")
            title = {
                "mlm": "(MLM)",
                "mae_lm": ", ".join(base.values()),
                "fraction": f"share of masks in the encoder: {value}",
                "decoder": f"decoder layers: {value}",
                "mask-prob": f"mask probability: {value}",
            }.get(kind, "no relative position bias")
            record, without = self.record(name)[-1], self.ranks(name)["without_mask", self.last]
            lines.append(
                f"| {title} | {record['loss']:.3f} | {record['seconds']:.0f} | {without} | {self.gap(name):+d} | "
                f"{shown(self.scores(name, task))} |"
            )
        return lines

    def claims(self):
        """Each claim of the paper, what was measured, and whether that shows it."""
        last, seeds, layers = self.last, self.seeds(), range(1, self.last + 1)
        lines = ["| claim | measured | shown |", "|---|---|---|"]

        def say(claim, measured, holds):
            verdict = holds if isinstance(holds, str) else "yes" if holds else "no"
            lines.append(f"| {claim} | {measured} | {verdict} |")

        rises = [[self.ranks(f"mlm-{seed}")["mask_tokens", layer] for layer in range(last + 1)] for seed in seeds]
        say(
            "MLM: the rank of [MASK] tokens rises with depth (Lemma 2.1)",
            "layers 0 (embeddings) to {}: {}".format(last, ", ".join(" ".join(map(str, row)) for row in rises)),
            all(row[0] < row[-1] and row[1:] == sorted(row[1:]) for row in rises),
        )
        gaps = {
            model: [[self.gap(f"{model}-{seed}", layer) for layer in range(last + 1)] for seed in seeds]
            for model in MODELS
        }
        by_layer = "; ".join(" ".join(f"{gap:+d}" for gap in row) for row in gaps["mlm"])
        say(
            "MLM: inputs without [MASK] have a lower rank than with it",
            f"gap by layer {by_layer}",
            all(row[-1] > 0 for row in gaps["mlm"]),
        )
        say(
            "MLM: that gap is largest in deep layers",
            f"gap by layer {by_layer}",
            all(max(row) == max(row[len(row) // 2 :]) and row[-1] > row[0] for row in gaps["mlm"]),
        )
        own = {model: [self.own_dimensions(f"{model}-{seed}")[-1] for seed in seeds] for model in MODELS}
        say(
            "MLM: [MASK] has dimensions that real tokens do not use (Theorem 2.2)",
            f"at layer {last}: MLM " + ", ".join(f"{value:.1f}" for value in own["mlm"]),
            all(value >= 1 for value in own["mlm"]),
        )
        occasions = [("", "before", seeds), ("-finetuned", f"after fine-tuning on {self.first_task}", [1])]
        for suffix, when, some in occasions[: 1 + self.has_finetuned_ranks()]:
            names = {model: [f"{model}-{seed}{suffix}" for seed in some] for model in MODELS}
            ends = {model: [self.gap(name) for name in names[model]] for model in MODELS}
            say(
                f"MAE-LM: the gap closes, {when}",
                f"at layer {last}: " + "; ".join(f"{TITLES[m]} {' '.join(f'{g:+d}' for g in ends[m])}" for m in MODELS),
                max(map(abs, ends["mae_lm"])) < min(ends["mlm"]),
            )
            ranks = {
                model: [[self.ranks(name)["without_mask", layer] for layer in layers] for name in names[model]]
                for model in MODELS
            }
            shown_by = {model: ", ".join(" ".join(map(str, row)) for row in ranks[model]) for model in MODELS}
            higher = [
                layer
                for layer, mlm, mae_lm in zip(layers, zip(*ranks["mlm"]), zip(*ranks["mae_lm"]))
                if min(mae_lm) > max(mlm)
            ]
            some = f"only at layers {', '.join(map(str, higher))}" if higher else "no"
            say(
                f"MAE-LM represents text without [MASK] in more dimensions in deep layers, {when}",
                f"layers 1 to {last}: " + "; ".join(f"{TITLES[model]} {shown_by[model]}" for model in MODELS),
                set(layers[last // 2 :]) <= set(higher) or some,
            )
        for task in self.tasks:
            less, error = difference(*(self.all_scores(model, task) for model in ("mae_lm", "mlm")))
            say(f"MAE-LM scores higher: {task}", f"{less:+.2f} ± {error:.2f}", less > 2 * error)
        return lines

    def has_finetuned_ranks(self):
        return all(os.path.exists(self.path("ranks", f"{model}-1-finetuned")) for model in MODELS)

    # Figures

    def draw(self, folder):
        """Draws the figures into a folder."""
        from matplotlib import pyplot

        pictures = [("ranks-pretrained.png", ""), ("ranks-finetuned.png", "-finetuned")]
        for picture, suffix in pictures[: 1 + self.has_finetuned_ranks()]:
            panels = {TITLES[model]: self.rank_rows(f"{model}-1{suffix}") for model in MODELS}
            effective_rank.draw(os.path.join(folder, picture), panels)
        fractions = {"mae_lm-1": 0.0, **{f"fraction-{at:g}": at for at in self.size.fractions}}
        fractions = {name: at for name, at in fractions.items() if name in ["mae_lm-1", *self.variations]}
        scored = {name: at for name, at in fractions.items() if self.scores(name, self.first_task)}
        figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
        axes[0].plot(list(fractions.values()), [self.gap(name) for name in fractions], "o-")
        axes[0].set_ylabel("rank gap, last layer:\nwith [MASK] less without")
        axes[1].errorbar(list(scored.values()), *self.points(scored), fmt="o-", capsize=3)
        axes[1].set_ylabel(f"{self.first_task}, {self.metric(self.first_task)} (%)")
        for axis in axes:
            axis.set_xlabel("share of the masks in the encoder")
            axis.grid(alpha=0.3)
        figure.savefig(os.path.join(folder, "mask-fraction.png"), dpi=120)

        figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
        for model, style in zip(MODELS, ["s--", "o-"]):
            record = {row["update"]: row for row in self.record(f"{model}-1")}
            updates = self.reproduction.parts(f"{model}-1")
            updates = {name: at for name, at in updates.items() if self.scores(name, self.first_task)}
            updates[f"{model}-1"] = max(record)
            medians, spread = self.points(updates)
            updates = list(updates.values())
            axes[0].errorbar(updates, medians, spread, fmt=style, capsize=3, label=TITLES[model])
            seconds = [record[update]["seconds"] / 60 for update in updates]
            axes[1].errorbar(seconds, medians, spread, fmt=style, capsize=3, label=TITLES[model])
        axes[0].set_xlabel("updates of pretraining")
        axes[1].set_xlabel("minutes of pretraining")
        axes[0].set_ylabel(f"{self.first_task}, {self.metric(self.first_task)} (%)")
        for axis in axes:
            axis.grid(alpha=0.3)
            axis.legend()
        figure.savefig(os.path.join(folder, "score-against-time.png"), dpi=120)
        pyplot.close("all")

    def figures(self):
        """Those of FIGURES that are drawn."""
        return {n: text for n, text in FIGURES.items() if "finetuned" not in n or self.has_finetuned_ranks()}

    def points(self, names):
        """Medians of the first task's scores, and how far the lowest and highest are from them: for error bars."""
        scores = [self.scores(name, self.first_task) for name in names]
        medians = [statistics.median(values) for values in scores]
        return medians, [
            [median - min(values) for median, values in zip(medians, scores)],
            [max(values) - median for median, values in zip(medians, scores)],
        ]

    # The summary

    def summary(self, figures="."):
        """The section of a Markdown file; `figures` is their folder, seen from there."""
        args, size = self.args, self.size
        length = f"--updates {args.updates}" if args.updates else f"--minutes-per-model {args.minutes_per_model:g}"
        command = f"recipes/reproduce.sh --dest miniature {length} --seeds {args.seeds}"
        command += f" --finetune-seeds {args.finetune_seeds}" + " --tiny" * args.tiny
        machine = (
            torch.cuda.get_device_name()
            if torch.cuda.is_available()
            else f"{platform.machine()}, {os.cpu_count()} cores"
        )
        layers, width = size.model[1], size.model[3]
        tokens, last = (
            int(self.rank_rows("mlm-1")[0]["tokens"]),
            max(self.record("mae_lm-1"), key=lambda row: row["update"]),
        )
        finetuned = []
        if self.has_finetuned_ranks():
            finetuned = [f"After fine-tuning on {self.first_task} (Figure 5b):", ""]
            finetuned += [*self.rank_table("-finetuned", [1]), ""]
        left = [f"{self.left} of its jobs are not run yet.", ""] if self.left else []
        figures = [f"![{text}]({figures}/{name})" for name, text in self.figures().items()]
        return "\n".join(
            [
                HEADING,
                f"Printed on {datetime.date.today()} ({machine}, Python {platform.python_version()}, torch "
                f"{torch.__version__}, {args.jobs} jobs at a time) by",
                "```",
                command,
                "```",
                f"Encoders of {layers} layers, width {width}; {last['update']:,} updates of {size.batch} sequences of "
                f"{size.tokens} tokens, {MASK_PROB:.0%} of them predicted. The MLM is the same code with all masks in "
                f"the encoder and no decoder, MAE-LM has {DECODER_LAYERS} decoder layers. Ranks are of {tokens:,} "
                f"held-out tokens, 15% of them [MASK] where there is any, at tau = 0.9. Scores are of dev sets, in percent: "
                f"medians of {args.seeds} x {args.finetune_seeds} seeds of pretraining and fine-tuning (lowest to highest), "
                f"of 1 x {self.reproduction.fewer_seeds()} where one run of pretraining is told of; from scratch without any.",
                "",
                *self.claims(),
                "",
                *figures,
                "",
                *self.comparison(),
                "",
                "Ranks by layer (Figures 1 and 5a of the paper):",
                "",
                *self.rank_table(),
                "",
                *finetuned,
                "Variations (Figure 4, ablations); the gap is the last layer's rank with [MASK] less that without:",
                "",
                *self.variation_table(),
                "",
                *left,
            ]
        )

    def write(self, folder):
        """Writes figures, tables and summary into a folder."""
        os.makedirs(folder, exist_ok=True)
        self.draw(folder)
        with atomic_write(os.path.join(folder, "summary.md")) as stream:
            stream.write(self.summary())
        names = sorted(name for name in os.listdir(self.path("ranks")) if not name.endswith(".partial"))
        ranks = [dict(run=name, **row) for name in names for row in self.rank_rows(name)]
        effective_rank.write_csv(os.path.join(folder, "ranks.csv"), ranks)
        scores = []
        for file in sorted(glob.glob(self.path("finetuning", "*", "*.json"))):
            run, task = os.path.basename(os.path.dirname(file)), os.path.basename(file)[: -len(".json")]
            for seed, score in enumerate(finetune.read_record(file, "recipes/reproduce.sh"), 1):
                scores += [dict(run=run, task=task, seed=seed, metric=name, score=score[name]) for name in score]
        effective_rank.write_csv(os.path.join(folder, "scores.csv"), scores)
        print("\n".join(self.claims()))
        print(f"written: summary.md, ranks.csv, scores.csv, {', '.join(self.figures())} in {folder}")

    def put_into(self, path):
        """Puts the summary into a file of results, in place of the section that it has of it; the figures beside it."""
        text = ""
        if os.path.exists(path):
            with open(path, encoding="utf-8") as stream:
                text = stream.read()
        before, found, after = text.partition(HEADING + "\n")
        _, next_heading, rest = after.partition("\n## ")
        folder = os.path.join(os.path.dirname(os.path.abspath(path)), "miniature")
        os.makedirs(folder, exist_ok=True)
        for name in self.figures():
            shutil.copyfile(self.path("results", name), os.path.join(folder, name))
        with atomic_write(path) as stream:
            stream.write(before if found or not text else text.rstrip("\n") + "\n\n")
            stream.write(self.summary("miniature") + next_heading + rest)
