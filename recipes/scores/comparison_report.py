"""Tables, figures and the section of results that recipes/scores.sh ends with."""

import csv
import datetime
import os
import platform

import numpy as np
import torch

import comparison_figures
from comparison import CONFIDENCE, CONTROL, MAE_LM, MLM, SCORES, SCRATCH, SCRATCH_PLAIN
from comparison_claims import Claims
from comparison_explorations import explorations
from comparison_folder import KINDS, MADE_BY
from evaluation.outcomes import CHOSEN, LAST
from evaluation.report import TITLES, Report, in_words, interval, table
from evaluation.statistics import bootstrap_interval, mean_and_error
from maelm_fairseq.effective_rank.report import import_pyplot
from maelm_fairseq.errors import UsageError
from maelm_fairseq.files import atomic_write, read_json
from results_page import put_section
from training_log import VALIDATIONS

ARMS = [MLM, MAE_LM, CONTROL]
TAU = "0.9"  # of the ranks in the table of claims
COMPARED = [  # ours, theirs
    (MAE_LM, MLM),
    (CONTROL, MLM),
    (MAE_LM, CONTROL),
    (MLM, SCRATCH),
    (MAE_LM, SCRATCH),
    (SCRATCH, SCRATCH_PLAIN),
]


def at_equal(curves, key, title, place=None):
    """A row: the score of each arm, interpolated to one place: mean over seeds, and its standard error.

    Empty for an arm that was not evaluated so early.

    Args:
        curves: as of :meth:`ComparisonReport.curves`
        key: of what is equal, in their points
        title: of the row, which formats its value
        place: its value; by default, where the arm that ends first ends
    """
    sign = -1 if key == "loss" else 1  # a loss falls
    if place is None:
        place = sign * min(sign * curve[-1][key] for arm in curves.values() for curve in arm)
    row = [title.format(place)]
    for arm in curves.values():
        x = [[sign * point[key] for point in curve] for curve in arm]
        y = [[point["score"] for point in curve] for curve in arm]
        found = [[float(np.interp(sign * place, *both, left=np.nan))] for both in zip(x, y)]
        mean, error = mean_and_error(found)
        text = f"{mean[0]:.2f}" + f" ± {error[0]:.2f}" * (len(found) > 1)
        row.append(text if np.isfinite(mean[0]) else "")
    return row


class ComparisonReport:
    """The results as tables and text.

    Args:
        folder: :class:`~comparison_folder.ComparisonFolder`
        command: that made them
        evaluated: the subjects of the jobs whose evaluations count: (name of a run,), or with a number of updates
    Raises:
        UsageError: there is no seed for which both the MLM and MAE-LM are evaluated
    """

    def __init__(self, folder, command, evaluated):
        self.folder, self.comparison, self.command, self.evaluated = folder, folder.comparison, command, evaluated
        runs = [*self.comparison.pretrained(), *self.comparison.explored(), *self.comparison.untrained()]
        self.runs = [run for run in runs if self.outcomes(run)]
        self.final = {run.name: self.outcomes(run) for run in self.runs}
        self.tables = Report(self.final or {"": {}})
        self.seeds = len(self.tables.seeds(MAE_LM.name, MLM.name))
        if not self.seeds:
            raise UsageError(f"{folder.dest}: nothing to report yet, expected an MLM and a MAE-LM that are evaluated")

    def arm(self, model):
        """The evaluated runs of a model."""
        return [run for run in self.runs if run.model == model]

    # The question

    def claim(self):
        """The difference between MAE-LM and the MLM in the primary outcome, in words."""
        tasks = self.tables.paired(MAE_LM.name, MLM.name)
        found = interval(tasks, CONFIDENCE)
        if not self.comparison.tested:
            verdict = f"secondary: the difference at width {SCORES.size.encoder_embed_dim} is what is tested"
        elif self.seeds < self.comparison.seeds:
            verdict = f"not decided: {self.seeds} of {self.comparison.seeds} seeds, and no test before all of them"
        else:
            verdict = "better" if found.low > 0 else "worse" if found.high < 0 else "no difference is shown"
        text = f"**MAE-LM minus MLM, in points: {in_words(found)}; {verdict}.** "
        if self.seeds == 1:
            return text + "The interval is for these two models only: examples vary."
        percentiles = bootstrap_interval(tasks, CONFIDENCE)
        return text + (
            f"{self.seeds} seeds; {CONFIDENCE:.0%} interval over seeds and examples; by the Multi-Bootstrap, which is "
            f"too narrow for few seeds, {percentiles.low:+.2f} to {percentiles.high:+.2f}."
        )

    # Tables

    def scores(self, kind="mean"):
        """The mean over tasks and each task, for all arms: means over seeds, and the standard error of the first."""
        models = [*ARMS, SCRATCH, SCRATCH_PLAIN]
        arms = {model.title: list(self.tables.arm(model.name, kind).values()) for model in models}
        return self.tables.arms(arms, kind)

    def differences(self, kind="mean"):
        """The mean over tasks with its interval, and each task, for all pairs of arms."""
        rows = []
        for ours, theirs in COMPARED:
            tasks = self.tables.paired(ours.name, theirs.name, kind)
            if tasks:
                mean = interval(tasks, CONFIDENCE)
                each = (f"{interval([task]).estimate:+.2f}" for task in tasks)
                rows.append([f"{ours.title} minus {theirs.title}", len(tasks[0].differences), in_words(mean), *each])
        return table(["difference", "seeds", "mean over tasks", *self.tables.measured(kind)], rows)

    def fine_tuning(self):
        """Scores and differences after fine-tuning: list of sections, empty if nothing was fine-tuned."""
        sections = []
        for kind in KINDS.values():
            if self.tables.measured(kind):
                title = TITLES[kind].capitalize()
                sections.append(f"{title}, a run for each fold and seed of pretraining:\n\n{self.scores(kind)}")
                sections.append(self.differences(kind))
        return sections

    def models(self):
        """What the pretraining of each model took and reached, its scores, and the ranks of its last layer."""
        taus = [f"{tau:g}" for tau in self.comparison.taus]
        header = ["model", "loss, bits", "CPU seconds", "TFLOP", "score", "last layer"]
        for tau in taus:
            header += [f"rank at {tau}: without [MASK]", "with [MASK]"]
        rows = []
        for run in self.runs:
            if self.comparison.final(run):
                last = self.records(run.name)[-1]
                row = [run.name, f"{last['loss']:.3f}", f"{last['cpu_seconds']:,.0f}", f"{last['gflop'] / 1000:,.1f}"]
                outcomes = [kinds["mean"] for _, kinds in self.final[run.name].values()]
                row += [f"{np.mean([outcome.score(layer) for outcome in outcomes]):.2f}" for layer in (CHOSEN, LAST)]
                for tau in taus:
                    ranks = self.ranks(run.name, tau)
                    row += [ranks[family][-1] for family in ("without_mask", "with_mask")]
                rows.append(row)
        return table(header, rows)

    def equal(self):
        """Scores on the way, and at the end of the arm that ends first in updates, arithmetic, CPU time or loss."""
        titles = {
            "update": "{:,.0f} updates",
            "tflop": "{:,.1f} TFLOP",
            "cpu_seconds": "{:,.0f} CPU seconds",
            "loss": "validation loss of {:.3f} bits",
        }
        curves = self.curves()
        arms = [[[point["update"] for point in curve] for curve in arm] for arm in curves.values()]
        end = min(updates[-1] for arm in arms for updates in arm)
        on_the_way = sorted({update for arm in arms for updates in arm for update in updates if update < end})
        rows = [at_equal(curves, "update", titles["update"], update) for update in on_the_way]
        rows += [at_equal(curves, key, title) for key, title in titles.items()]
        return table(["at equal", *curves], rows)

    # Numbers

    def outcomes(self, run, updates=None):
        """See :meth:`~comparison_folder.ComparisonFolder.outcomes`."""
        final = updates in (None, self.comparison.final(run))
        subject = (run.name,) if final else (run.name, str(updates))
        return self.folder.outcomes(run, updates) if subject in self.evaluated else None

    def records(self, name):
        """What was recorded at each validation of a run."""
        return read_json(self.folder.record(name), MADE_BY, VALIDATIONS)

    def rank_rows(self, name, tau, table="ranks"):
        """The rows of a table of ranks for a run's final model, from the embeddings to the last layer."""
        updates = str(max(row["update"] for row in self.records(name)))
        with open(self.folder.path("ranks", name, table + ".csv"), encoding="utf-8") as stream:
            return [row for row in csv.DictReader(stream) if row["checkpoint"] == updates and row["tau"] == tau]

    def ranks(self, name, tau=TAU):
        """The ranks of a run's final model: {family: rank of each layer}."""
        found = {}
        for row in self.rank_rows(name, tau):
            found.setdefault(row["family"], []).append(int(row["rank"]))
        return found

    def mask_dimensions(self, name, tau=TAU):
        """The dimensions of [MASK] outside those of real tokens, in each layer."""
        return [float(row["mask_outside_real"]) for row in self.rank_rows(name, tau, "mask_dimensions")]

    def curve(self, run):
        """The scores of a run on its way: list of dicts with update, tflop, cpu_seconds, loss and score."""
        recorded, points = {row["update"]: row for row in self.records(run.name)}, []
        for updates in self.folder.checkpoints(run):
            found = self.outcomes(run, updates)
            if found and updates in recorded:
                score = np.mean([kinds["mean"].score() for _, kinds in found.values()])
                row = recorded[updates]
                points.append(dict(row, score=float(score), tflop=row["gflop"] / 1000))
        return points

    def curves(self):
        """{title of an arm: curves of its seeds}, as far as their points are evaluated for all seeds."""
        found = {}
        for model in ARMS:
            curves = [self.curve(run) for run in self.arm(model)]
            shared = [p["update"] for p in curves[0] if all(p["update"] in at(c) for c in curves)] if curves else []
            if shared:
                found[model.title] = [[point for point in curve if point["update"] in shared] for curve in curves]
        return found

    def by_layer(self):
        """{title of an arm: the score of each layer, averaged over tasks, for each seed}."""
        return {
            model.title: [
                np.mean([kinds["mean"].by_layer() for _, kinds in self.final[run.name].values()], 0)
                for run in self.arm(model)
            ]
            for model in [*ARMS, SCRATCH]
            if self.arm(model)
        }

    def ranks_by_layer(self):
        """{title of a pretrained arm: the rank of each layer for text without [MASK], for each seed}."""
        return {
            model.title: [self.ranks(run.name)["without_mask"] for run in self.arm(model)]
            for model in ARMS
            if self.arm(model)
        }

    # Text

    def summary(self, figures="./"):
        """The section for a page of results; the names of figures begin with `figures`."""
        size, text = self.comparison.size, self.comparison.text
        drawn, equal = comparison_figures.drawn(self), []
        if "scores.png" in drawn:
            title = (
                "Scores at equal updates, arithmetic, CPU time and loss: means over tasks and seeds, standard errors:"
            )
            equal = [title + "\n", self.equal()]
        sections = [
            f"## {self.comparison.title}",
            f"Printed on {datetime.date.today()} ({platform.machine()}, Python {platform.python_version()}, torch "
            f"{torch.__version__}) by",
            f"```\n{self.command}\n```",
            f"Encoders of {size.encoder_layers} layers, width {size.encoder_embed_dim}; {self.comparison.updates:,} "
            f"updates of {text.batch_size} sequences of up to {text.tokens_per_sample} tokens, "
            f"{MLM.masks.mask_prob:.0%} of them predicted. All models of a seed start from the same weights of the "
            "encoder and see the same text and masks. What is tested, and how, was written down before the runs: "
            "`recipes/scores/comparison.py`.\n",
            self.claim() + "\n",
            f"The paper's claims. Ranks are at tau = {TAU}; their intervals are over seeds, those of scores over seeds "
            "and examples; none is corrected for their number. Where the ranks of all seeds agree, there is no "
            "interval, and nothing is shown:\n",
            Claims(self).table(),
            "Frozen features, mean of tokens (primary outcome). Differences are paired; the interval of a single seed "
            "is over examples only, and so for these models:\n",
            self.scores(),
            self.differences(),
            f"{MAE_LM.title} minus {MLM.title}, primary and secondary:\n",
            self.tables.comparison(MAE_LM.name, MLM.name),
            *equal,
            *self.fine_tuning(),
            *explorations(self),
            *(f"![{title}]({figures}{name})" for name, title in drawn.items()),
            "\nEach model: pretraining, scores of frozen features, and effective ranks of the last layer:\n",
            self.models(),
        ]
        return "\n".join(sections)

    def write(self, folder, page=None):
        """Writes figures and summary into a folder, and into a page of results."""
        import_pyplot()
        os.makedirs(folder, exist_ok=True)
        names = comparison_figures.drawn(self)
        comparison_figures.draw(folder, self)
        with atomic_write(os.path.join(folder, "summary.md")) as stream:
            stream.write(self.summary())
        if page:
            prefix = "scores/" + self.comparison.prefix
            put_section(page, self.summary(prefix), {os.path.join(folder, name): prefix + name for name in names})
        print(self.claim())
        print(f"written: summary.md, {', '.join(names)} in {folder}")


def at(curve):
    """The updates of a curve's points."""
    return {point["update"] for point in curve}
