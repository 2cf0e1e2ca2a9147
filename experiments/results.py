"""The section of results of a comparison, made from the records that are kept, and from them alone."""

import datetime
import os
import platform

import numpy as np

import figures
from comparison import CONFIDENCE, FINE_TUNED_TASKS, MADE, MAE_LM, MLM, TASKS, UNSEEN
from evaluation.few_shot import SHOTS
from evaluation.outcomes import CHOSEN, LAST
from evaluation.report import Report, in_words, interval, table
from evaluation.statistics import bootstrap_interval, mean_and_error, seed_interval
from kept_records import FINE_TUNED, Records
from maelm_fairseq.analysis.rank_report import import_pyplot
from maelm_fairseq.engine.errors import UsageError
from maelm_fairseq.engine.files import atomic_write
from rank_claims import TAU, rank_claims

PICTURES = "pictures"  # beside a page of results


class Results:
    """The results as tables and text.

    Args:
        comparison: :class:`~comparison.Comparison`
        records: the folder of its records
        command: that made them
    Attributes:
        runs: those that have been evaluated
        numbers: {name of a run: its record}
    Raises:
        UsageError: there is no seed for which the first two models that are compared have been evaluated
    """

    def __init__(self, comparison, records, command):
        self.comparison, self.command = comparison, command
        kept = Records(comparison, records)
        self.runs = [run for run in comparison.runs() if kept.has(run, "scores")]
        self.numbers = {run.name: kept.read(run) for run in self.runs}
        self.tables = Report({run.name: kept.outcomes(run) for run in self.runs} or {"": {}})
        self.tasks = [task for task in TASKS if task in comparison.tasks]
        self.seeds = len(self.seeds_of(comparison.compared[0]))
        if not self.seeds:
            names = " and ".join(f"{model.name}-1" for model in comparison.compared[0])
            raise UsageError(f"{kept.folder}: nothing to report yet, expected the records of {names}")

    def of(self, model):
        """The evaluated runs of a model."""
        return [run for run in self.runs if run.model == model]

    def models(self):
        """The models that have been evaluated."""
        return [arm.model for arm in self.comparison.arms if self.of(arm.model)]

    def seeds_of(self, pair):
        """The names of the runs of two models for the seeds that both have: list of (name, name)."""
        return self.tables.seeds(*(model.name for model in pair))

    def pairs(self):
        """The pairs of models that are compared, and have a seed in common."""
        return [pair for pair in self.comparison.compared if self.seeds_of(pair)]

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

    def few_labels(self, name, place):
        """The mean few-shot score of a run over the tasks that have one; nan if none has."""
        found = [self.numbers[name]["scores"][task].get("few_shot") for task in self.tasks]
        return np.mean([scores[CHOSEN][place] for scores in found if scores] or [np.nan])

    def ranks(self, run, tau=TAU, family="without_mask"):
        """The ranks of a run's model by layer; empty if they have not been measured."""
        return self.numbers[run.name].get("ranks", {}).get(tau, {}).get(family, [])

    # The question

    def claim(self):
        """The difference that is tested, in words."""
        pair = ours, theirs = self.comparison.compared[0]
        tasks = self.paired(pair, self.tasks)
        found = interval(tasks, CONFIDENCE)
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
            names = [run.name for run in self.of(model)]
            found = [[self.score(name, task) for task in self.comparison.tasks] for name in names]
            (mean,), (error,) = mean_and_error([[self.mean_score(name)] for name in names])
            text = f"{mean:.2f}" + f" ± {error:.2f}" * (len(names) > 1)
            rows.append([model.title, len(names), text, *(f"{score:.2f}" for score in np.mean(found, 0))])
        return table(["model", "seeds", f"mean over {len(self.tasks)} tasks", *self.comparison.tasks], rows)

    def differences(self):
        """All pairs of models: the mean over tasks, the mean without the made probes, and the unseen tasks."""
        sets = {f"mean over {len(self.tasks)} tasks": self.tasks}
        sets["without made probes"] = [task for task in self.tasks if task not in MADE]
        sets.update({task: [task] for task in UNSEEN if task in self.comparison.tasks})
        cells = {title: lambda pair, tasks=tasks: self.paired(pair, tasks) for title, tasks in sets.items()}
        return self.table_of_pairs(cells)

    def other_differences(self):
        """The same for other representations, whose intervals are over seeds: last layer, few labels, fine-tuning."""
        columns = {"last layer": lambda name: self.mean_score(name, LAST)}
        columns["`<s>`"] = lambda name: self.mean_score(name, kind="first")
        for place, shots in enumerate(SHOTS):
            columns[f"{shots} examples a class"] = lambda name, place=place: self.few_labels(name, place)
        cells = {
            title: lambda pair, value=value: [value(a) - value(b) for a, b in self.seeds_of(pair)]
            for title, value in columns.items()
        }
        tuned = f"fine-tuned, {' and '.join(FINE_TUNED_TASKS)}"
        return self.table_of_pairs({**cells, tuned: lambda pair: self.paired(pair, kind=FINE_TUNED)})

    def table_of_pairs(self, columns):
        """A row for each pair of models.

        Args:
            columns: {title: function of a pair that gives differences: of seeds and examples, or numbers by seed}
        """
        rows = []
        for pair in self.pairs():
            cells = [difference(column(pair)) for column in columns.values()]
            rows.append([" minus ".join(model.title for model in pair), len(self.seeds_of(pair)), *cells])
        return table(["difference", "seeds", *columns], rows)

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
                families = ("without_mask", "with_mask")
                rows.append(row + [(self.ranks(run, tau, each) or [""])[-1] for tau in taus for each in families])
        return table(header, rows)

    def claims(self):
        """The paper's claims on ranks, for the seeds of which both models have them."""
        theirs = {run.seed: run for run in self.of(MLM) if self.ranks(run)}
        pairs = [(run, theirs[run.seed]) for run in self.of(MAE_LM) if run.seed in theirs and self.ranks(run)]
        pairs = [[self.numbers[run.name] for run in both] for both in pairs]
        return rank_claims(pairs, MAE_LM.title, MLM.title)

    # Text

    def summary(self, pictures):
        """The section for a page of results, whose pictures are in a folder."""
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
            f"![{figures.CAPTION}]({pictures}/{comparison.name}.png)",
        ]
        return "\n".join(section for section in sections if section) + "\n"

    def write(self, page=None):
        """Prints the summary, or puts it into a page of results, with its figure beside the page."""
        if not page:
            print(self.summary(PICTURES))
            return
        import_pyplot()
        pictures = os.path.join(os.path.dirname(os.path.abspath(page)), PICTURES)
        os.makedirs(pictures, exist_ok=True)
        with atomic_write(os.path.join(pictures, self.comparison.name + ".png"), "wb") as stream:
            figures.draw(stream, self)
        put_section(page, self.summary(PICTURES))
        print(self.claim())


def difference(found):
    """A mean difference in words, with its interval; empty if there is none.

    Args:
        found: list of :class:`~evaluation.statistics.Paired`, or of numbers by seed
    """
    if len(found) == 0:
        return ""
    if not isinstance(found[0], (float, np.floating)):
        return in_words(interval(found, CONFIDENCE))
    if not np.isfinite(found).all():
        return ""
    return f"{found[0]:+.2f}" if len(found) == 1 else in_words(seed_interval(found, CONFIDENCE))


def put_section(path, section):
    """Puts a section, Markdown that begins with `## ...`, into a page in place of that with its heading, or at the end.

    Args:
        path: of the page
    """
    text, heading = "", section.partition("\n")[0]
    if os.path.exists(path):
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
    before, found, after = text.partition(heading + "\n")
    _, next_heading, rest = after.partition("\n## ")
    with atomic_write(path) as stream:
        stream.write(before if found or not text else text.rstrip("\n") + "\n\n")
        stream.write(section + next_heading + rest)
