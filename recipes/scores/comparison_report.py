"""The section of results of recipes/scores.sh, made from the records that are kept, and from them alone."""

import datetime
import os
import platform
import tempfile

import numpy as np

import comparison_figures
from comparison import CONFIDENCE, FINE_TUNED_TASKS, MADE, MAE_LM, MLM, TASKS, UNSEEN
from comparison_claims import rank_claims
from comparison_records import FINE_TUNED, Records
from evaluation.few_shot import SHOTS
from evaluation.outcomes import CHOSEN, LAST
from evaluation.report import Report, in_words, interval, table
from evaluation.statistics import bootstrap_interval, mean_and_error, seed_interval
from maelm_fairseq.effective_rank.report import import_pyplot
from maelm_fairseq.errors import UsageError
from results_page import put_section

TAU = "0.9"  # of the ranks in figures and claims


class ComparisonReport:
    """The results as tables and text.

    Args:
        comparison: :class:`~comparison.Comparison`
        records: the folder of its records
        command: that made them
    Raises:
        UsageError: there is no seed for which the first two models that are compared have been evaluated
    """

    def __init__(self, comparison, records, command):
        self.comparison, self.command = comparison, command
        kept = Records(comparison, records)
        self.outcomes = {run.name: kept.outcomes(run) for run in comparison.runs()}
        self.runs = [run for run in comparison.runs() if self.outcomes[run.name]]
        self.numbers = {run.name: kept.read(run) for run in self.runs}
        self.tables = Report({run.name: self.outcomes[run.name] for run in self.runs} or {"": {}})
        self.tasks = [task for task in TASKS if task in comparison.tasks]
        ours, theirs = comparison.compared[0]
        self.seeds = len(self.tables.seeds(ours.name, theirs.name))
        if not self.seeds:
            raise UsageError(
                f"{kept.folder}: nothing to report yet, expected the records of {ours.name}-1 and {theirs.name}-1"
            )

    def arm(self, model):
        """The evaluated runs of a model."""
        return [run for run in self.runs if run.model == model]

    def models(self):
        """The models that have been evaluated."""
        return [arm.model for arm in self.comparison.arms if self.arm(arm.model)]

    # The question

    def claim(self):
        """The difference that is tested, in words."""
        ours, theirs = self.comparison.compared[0]
        tasks = self.tables.paired(ours.name, theirs.name, tasks=self.tasks)
        found, planned = interval(tasks, CONFIDENCE), min(arm.seeds for arm in self.comparison.arms[:2])
        if not self.comparison.tested:
            verdict = "explorations decide nothing"
        elif self.seeds < planned:
            verdict = f"not decided: {self.seeds} of {planned} seeds, and no test before all of them"
        else:
            verdict = "better" if found.low > 0 else "worse" if found.high < 0 else "no difference is shown"
        text = f"**{ours.title} minus {theirs.title}, in points: {in_words(found)}; {verdict}.** "
        if self.seeds == 1:
            return text + "The interval is for these two models only: examples vary."
        percentiles = bootstrap_interval(tasks, CONFIDENCE)
        return text + (
            f"{self.seeds} seeds; {CONFIDENCE:.0%} interval over seeds and examples; by the Multi-Bootstrap, which is "
            f"too narrow for few seeds, {percentiles.low:+.2f} to {percentiles.high:+.2f}."
        )

    # Tables

    def scores(self):
        """The mean over tasks and each task, for all models: means over seeds, and the standard error of the mean."""
        rows = []
        for model in self.models():
            found = [[self.score(run, task) for task in self.comparison.tasks] for run in self.arm(model)]
            means = [[np.mean([self.score(run, task) for task in self.tasks])] for run in self.arm(model)]
            (mean,), (error,) = mean_and_error(means)
            text = f"{mean:.2f}" + f" ± {error:.2f}" * (len(means) > 1)
            rows.append([model.title, len(means), text, *(f"{score:.2f}" for score in np.mean(found, 0))])
        return table(["model", "seeds", f"mean over {len(self.tasks)} tasks", *self.comparison.tasks], rows)

    def score(self, run, task, selection=CHOSEN, kind="mean"):
        return self.outcomes[run.name][task][1][kind].score(selection)

    def differences(self):
        """All pairs of models: the mean over tasks, the mean without the made probes, and the unseen tasks."""
        real = [task for task in self.tasks if task not in MADE]
        unseen = [task for task in UNSEEN if task in self.comparison.tasks]
        sets = {f"mean over {len(self.tasks)} tasks": self.tasks, "without made probes": real}
        sets.update({task: [task] for task in unseen})
        rows = []
        for ours, theirs in self.pairs():
            found = [self.tables.paired(ours.name, theirs.name, tasks=tasks) for tasks in sets.values()]
            seeds = len(found[0][0].differences)
            cells = (in_words(interval(tasks, CONFIDENCE)) for tasks in found)
            rows.append([f"{ours.title} minus {theirs.title}", seeds, *cells])
        return table(["difference", "seeds", *sets], rows)

    def other_differences(self):
        """The same for other representations, whose intervals are over seeds: last layer, few labels, fine-tuning."""
        columns = {"last layer": lambda run: np.mean([self.score(run, task, LAST) for task in self.tasks])}
        columns["`<s>`"] = lambda run: np.mean([self.score(run, task, CHOSEN, "first") for task in self.tasks])
        for place, shots in enumerate(SHOTS):
            columns[f"{shots} examples a class"] = lambda run, place=place: self.few_labels(run, place)
        rows = []
        for ours, theirs in self.pairs():
            names = self.tables.seeds(ours.name, theirs.name)
            cells = [self.over_seeds(names, column) for column in columns.values()]
            tuned = self.tables.paired(ours.name, theirs.name, FINE_TUNED)
            cells.append(in_words(interval(tuned, CONFIDENCE)) if tuned else "")
            rows.append([f"{ours.title} minus {theirs.title}", len(names), *cells])
        tuned = f"fine-tuned, {' and '.join(FINE_TUNED_TASKS)}"
        return table(["difference", "seeds", *columns, tuned], rows)

    def pairs(self):
        """The pairs of models that are compared, and have a seed in common."""
        return [pair for pair in self.comparison.compared if self.tables.seeds(*(model.name for model in pair))]

    def few_labels(self, run, place):
        """The mean few-shot score of a run over the tasks that have one; nan if none has."""
        found = [self.outcomes[run.name][task][0]["few_shot"] for task in self.tasks]
        return np.mean([scores[CHOSEN][place] for scores in found if scores] or [np.nan])

    def over_seeds(self, names, value):
        """The difference of a number of a run, with an interval over seeds if there are several.

        Args:
            names: pairs of names of runs
            value: function of a run
        """
        by_name = {run.name: run for run in self.runs}
        differences = [value(by_name[a]) - value(by_name[b]) for a, b in names]
        if not np.isfinite(differences).all():
            return ""
        if len(differences) == 1:
            return f"{differences[0]:+.2f}"
        return in_words(seed_interval(differences, CONFIDENCE))

    def by_task(self):
        """The primary comparison task by task."""
        ours, theirs = self.comparison.compared[0]
        rows = []
        for task in self.comparison.tasks:
            found = interval(self.tables.paired(ours.name, theirs.name, tasks=[task]), CONFIDENCE)
            rows.append([task, in_words(found)])
        return table(["task", f"{ours.title} minus {theirs.title}"], rows)

    def trainings(self):
        """What the pretraining of each model took and reached, and the ranks of its last layer."""
        taus = [f"{tau:g}" for tau in self.comparison.taus]
        header = ["model", "learning rate", "updates", "loss, bits", "CPU seconds", "TFLOP"]
        for tau in taus:
            header += [f"rank at {tau}: without [MASK]", "with [MASK]"]
        rows = []
        for run in self.runs:
            if run.updates:
                last, options = self.numbers[run.name]["validations"][-1], self.numbers[run.name]["options"]
                row = [run.name, options[options.index("--lr") + 1], last["update"], f"{last['loss']:.3f}"]
                row += [f"{last['cpu_seconds']:,.0f}", f"{last['gflop'] / 1000:,.1f}"]
                for tau in taus:
                    ranks = self.numbers[run.name]["ranks"][tau] if "ranks" in self.numbers[run.name] else {}
                    row += [ranks.get(family, [""])[-1] for family in ("without_mask", "with_mask")]
                rows.append(row)
        return table(header, rows)

    def power(self):
        """What the primary comparison can detect, from the spread of its seeds; empty for a single seed."""
        ours, theirs = self.comparison.compared[0]
        if self.seeds == 1:
            return ""
        return self.tables.power(self.tables.paired(ours.name, theirs.name, tasks=self.tasks))

    # Numbers of figures and claims

    def ranks(self, run, family="without_mask"):
        """The ranks of a run's model by layer, int (L + 1,)."""
        return np.array(self.numbers[run.name]["ranks"][TAU][family])

    def ranked(self, model):
        """The runs of a model of which ranks have been measured."""
        return [run for run in self.arm(model) if "ranks" in self.numbers[run.name]]

    def scores_by_layer(self, run):
        """The score of each layer, averaged over tasks: (L + 1,)."""
        return np.mean([self.outcomes[run.name][task][1]["mean"].by_layer() for task in self.tasks], 0)

    # Text

    def summary(self, figures):
        """The section for a page of results; the names of figures begin with `figures`."""
        comparison, size, text = self.comparison, self.comparison.size, self.comparison.text
        claims = rank_claims(self, MAE_LM, MLM)
        sections = [
            f"## {comparison.title}",
            f"Printed on {datetime.date.today()} (Python {platform.python_version()}, {platform.machine()}) from "
            f"`recipes/scores/records/{comparison.name}`, which comes from",
            f"```\n{self.command}\n```",
            f"Encoders of {size.encoder_layers} layers, width {size.encoder_embed_dim}; batches of {text.batch_size} "
            f"sequences of up to {text.tokens_per_sample} tokens. All models of a seed start from the same weights of "
            "the encoder and see the same text and masks. What is tested, and how, was written down before the runs: "
            "`recipes/scores/comparison.py`.\n",
            self.claim() + "\n",
            "Frozen features, mean of tokens. Differences are paired; the interval of a single seed is over examples "
            "only, and so for these models. The tasks that are not in the mean were not looked at when shared layers "
            "were designed:\n",
            self.scores(),
            self.differences(),
            "Other features, and fine-tuning; intervals are over seeds, for fine-tuning over seeds and examples:\n",
            self.other_differences(),
            self.by_task(),
            self.power(),
            "Pretraining, and effective ranks of the last layer:\n",
            self.trainings(),
            *(
                [f"The paper's claims on ranks, at tau = {TAU}; none is corrected for their number:\n", claims]
                * bool(claims)
            ),
            f"![{comparison_figures.CAPTION}]({figures}{self.figure()})",
        ]
        return "\n".join(section for section in sections if section) + "\n"

    def figure(self):
        """The name of the figure's file."""
        return f"{self.comparison.name}.png"

    def write(self, page=None):
        """Prints the summary, or puts it into a page of results, with its figure beside the page in scores/."""
        if not page:
            print(self.summary(""))
            return
        import_pyplot()
        with tempfile.TemporaryDirectory() as folder:
            drawn = os.path.join(folder, self.figure())
            comparison_figures.draw(drawn, self)
            put_section(page, self.summary("scores/"), {drawn: "scores/" + self.figure()})
        print(self.claim())
