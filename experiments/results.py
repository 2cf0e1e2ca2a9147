"""The section of results of a comparison, made from the records that are kept, and from them alone."""

import datetime
import platform
from functools import partial

import numpy as np

import figures
from comparison import CONFIDENCE, FINE_TUNED_TASKS, MADE, MAE_LM, MLM, TASKS, UNSEEN
from evaluation.few_shot import SHOTS
from evaluation.outcomes import CHOSEN, LAST
from evaluation.report import Report, in_words, table
from evaluation.statistics import crossed_interval, seed_interval
from kept_records import FINE_TUNED
from maelm_fairseq.engine.errors import UsageError
from rank_claims import TAU, rank_claims


class Results:
    """The results as tables and text.

    Args:
        comparison: :class:`~comparison.Comparison`
        records: :class:`~kept_records.Records`
        command: that made them
    Attributes:
        runs: those that have been evaluated
        numbers: {name of a run: its record}
    Raises:
        UsageError: there is no seed for which the first two models that are compared have been evaluated
    """

    def __init__(self, comparison, records, command):
        self.comparison, self.command = comparison, command
        self.runs = [run for run in comparison.runs() if records.has(run)]
        self.numbers = {run.name: records.read(run) for run in self.runs}
        self.tables = Report({run.name: records.outcomes(run) for run in self.runs} or {"": {}})
        self.tasks = [task for task in TASKS if task in comparison.tasks]
        self.seeds = len(self.seeds_of(comparison.compared[0]))
        if not self.seeds:
            names = " and ".join(f"{model.name}-1" for model in comparison.compared[0])
            raise UsageError(f"{records.folder}: nothing to report yet, expected the records of {names}")

    def of(self, model):
        """The evaluated runs of a model."""
        return [run for run in self.runs if run.model == model]

    def models(self):
        """The models that have been evaluated."""
        return [arm.model for arm in self.comparison.arms if self.of(arm.model)]

    def seeds_of(self, pair):
        """The names of the runs of two models for the seeds that both have: list of (name, name)."""
        return self.tables.seeds(*(model.name for model in pair))

    def paired(self, pair, tasks=None, kind="mean"):
        """The differences of two models on tasks, by seed and example."""
        return self.tables.paired(*(model.name for model in pair), kind, tasks=tasks)

    # Numbers of a run

    def score(self, name, task, selection=CHOSEN, kind="mean"):
        return self.numbers[name]["scores"][task][kind][selection]

    def mean_score(self, name, selection=CHOSEN, kind="mean"):
        return np.mean([self.score(name, task, selection, kind) for task in self.tasks])

    def scores_by_layer(self, run):
        """The score of each layer, averaged over tasks: (L + 1,)."""
        return np.mean([self.score(run.name, task, "by_layer") for task in self.tasks], 0)

    def few_labels(self, place, name):
        """The mean few-shot score of a run over the tasks that have one; nan if none has.

        Args:
            place: in SHOTS
        """
        found = [self.numbers[name]["scores"][task].get("few_shot") for task in self.tasks]
        return np.mean([scores[CHOSEN][place] for scores in found if scores] or [np.nan])

    def ranks(self, run, tau=TAU, family="without_mask"):
        """The ranks of a run's model by layer."""
        return self.numbers[run.name]["ranks"][tau][family]

    # The question

    def claim(self):
        """The difference that is tested, in words."""
        pair = ours, theirs = self.comparison.compared[0]
        found = crossed_interval(self.paired(pair, self.tasks), CONFIDENCE)
        planned = min(arm.seeds for arm in self.comparison.arms if arm.model in pair)
        if not self.comparison.tested:
            verdict = "explorations decide nothing"
        elif self.seeds < planned:
            verdict = f"not decided: {self.seeds} of {planned} seeds, and no test before all of them"
        else:
            verdict = "better" if found.low > 0 else "worse" if found.high < 0 else "no difference is shown"
        text = f"**{ours.title} minus {theirs.title}, in points: {in_words(found)}; {verdict}.** "
        if self.seeds == 1:
            return text + "The interval is for these two models only: examples vary."
        return text + f"{self.seeds} seeds; {CONFIDENCE:.0%} interval over seeds and examples."

    # Tables

    def scores(self):
        """The mean over tasks and each task, for all models: means over seeds, and the standard error of the mean."""
        rows = []
        for model in self.models():
            names = [run.name for run in self.of(model)]
            found = [[self.score(name, task) for task in self.comparison.tasks] for name in names]
            mean = seed_interval([self.mean_score(name) for name in names])
            text = f"{mean.estimate:.2f}" + f" ± {mean.error:.2f}" * (len(names) > 1)
            rows.append([model.title, len(names), text, *(f"{score:.2f}" for score in np.mean(found, 0))])
        return table(["model", "seeds", f"mean over {len(self.tasks)} tasks", *self.comparison.tasks], rows)

    def differences(self):
        """All pairs of models: the mean over tasks, the mean without the made probes, and the unseen tasks."""
        columns = {
            f"mean over {len(self.tasks)} tasks": self.over_examples(self.tasks),
            "without made probes": self.over_examples([task for task in self.tasks if task not in MADE]),
        }
        unseen = [task for task in UNSEEN if task in self.comparison.tasks]
        return self.table_of_pairs({**columns, **{task: self.over_examples([task]) for task in unseen}})

    def other_differences(self):
        """The same for other representations: last layer, `<s>`, few labels, fine-tuning."""
        columns = {
            "last layer": self.over_seeds(lambda name: self.mean_score(name, LAST)),
            "`<s>`": self.over_seeds(lambda name: self.mean_score(name, kind="first")),
        }
        for place, shots in enumerate(SHOTS):
            columns[f"{shots} examples a class"] = self.over_seeds(partial(self.few_labels, place))
        tuned = f"fine-tuned, {' and '.join(FINE_TUNED_TASKS)}"
        return self.table_of_pairs({**columns, tuned: self.over_examples(kind=FINE_TUNED)})

    def over_examples(self, tasks=None, kind="mean"):
        """A function of a pair of models: their difference on tasks, with an interval over seeds and examples."""

        def found(pair):
            paired = self.paired(pair, tasks, kind)
            return crossed_interval(paired, CONFIDENCE) if paired else None

        return found

    def over_seeds(self, value):
        """The same for a number that a run has as a whole, with an interval over seeds; `value`: function of a name."""
        return lambda pair: seed_interval([value(a) - value(b) for a, b in self.seeds_of(pair)], CONFIDENCE)

    def table_of_pairs(self, columns):
        """A row for each pair of models that is compared, and has a seed in common.

        Args:
            columns: {title: function of a pair that gives an interval, or None}
        """
        rows = []
        for pair in filter(self.seeds_of, self.comparison.compared):
            cells = [column(pair) for column in columns.values()]
            cells = [in_words(cell) if cell and np.isfinite(cell.estimate) else "" for cell in cells]
            rows.append([" minus ".join(model.title for model in pair), len(self.seeds_of(pair)), *cells])
        return table(["difference", "seeds", *columns], rows)

    def trainings(self):
        """What the pretraining of each model took and reached, and the ranks of its last layer."""
        taus, families = [f"{tau:g}" for tau in self.comparison.taus], ("without_mask", "with_mask")
        header = ["model", "learning rate", "updates", "loss, bits", "seconds", "TFLOP"]
        for tau in taus:
            header += [f"rank at {tau}: without [MASK]", "with [MASK]"]
        rows = []
        for run in self.runs:
            if run.updates:
                last, options = self.numbers[run.name]["validations"][-1], self.numbers[run.name]["options"]
                row = [run.name, options[options.index("--lr") + 1], last["update"], f"{last['loss']:.3f}"]
                row += [f"{last['seconds']:,.0f}", f"{last['gflop'] / 1000:,.1f}"]
                rows.append(row + [self.ranks(run, tau, family)[-1] for tau in taus for family in families])
        return table(header, rows)

    def claims(self):
        """The paper's claims on ranks, for the seeds that both models have."""
        pairs = [[self.numbers[name] for name in names] for names in self.seeds_of((MAE_LM, MLM))]
        return rank_claims(pairs, MAE_LM.title, MLM.title)

    # Text

    def summary(self, figure=None):
        """The section for a page of results; with a link to a figure, if there is one."""
        comparison, size, text = self.comparison, self.comparison.size, self.comparison.text
        claims, plan = self.claims(), "Nothing is tested: what is run is in `experiments/plans.py`."
        if comparison.tested:
            plan = "What is tested, and how, was written down before the runs: `experiments/comparison.py`."
        sections = [
            f"## {comparison.title}",
            f"Printed on {datetime.date.today()} (Python {platform.python_version()}, {platform.machine()}) from "
            f"`experiments/records/{comparison.name}`, which comes from",
            f"```\n{self.command}\n```",
            f"Encoders of {size.encoder_layers} layers, width {size.encoder_embed_dim}; batches of {text.batch_size} "
            f"sequences of up to {text.tokens_per_sample} tokens. All models of a seed start from the same weights of "
            f"the encoder and see the same text and masks. {plan}\n",
            self.claim() + "\n",
            "Frozen features, mean of tokens. Differences are paired; the interval of a single seed is over examples "
            "only, and so for these models. The tasks that are not in the mean were not looked at when shared layers "
            "were designed:\n",
            self.scores(),
            self.differences(),
            "Other features, and fine-tuning; intervals are over seeds, for fine-tuning over seeds and examples:\n",
            self.other_differences(),
            "Pretraining, and effective ranks of the last layer:\n",
            self.trainings(),
            f"The paper's claims on ranks, at tau = {TAU}; none is corrected for their number:\n" if claims else "",
            claims,
            f"![{figures.CAPTION}]({figure})" if figure else "",
        ]
        return "\n".join(section for section in sections if section) + "\n"
