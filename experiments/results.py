"""The results of a comparison as a section of a page, made from the committed records alone.

It is the same on every machine and day, so that a page that contains it can be compared with the records.
"""

from functools import partial

import numpy as np

import exploratory
import figures
from evaluation.few_shot import SHOTS
from evaluation.intervals import crossed_interval, seed_interval
from evaluation.outcomes import CHOSEN, LAST
from evaluation.report import Report, count, in_words, table
from maelm_fairseq.base import provenance
from maelm_fairseq.base.errors import UsageError
from preregistration import CONFIDENCE, FINE_TUNED_TASKS, MADE, MLM, TASKS, TAU, UNSEEN
from rank_claims import rank_claims
from record_store import COST, FINE_TUNED, PROBED


class Results:
    """The results as tables and text.

    Args:
        comparison: :class:`~preregistration.Comparison`
        records: :class:`~record_store.Records`
        command: the one that made the records
    Attributes:
        runs, numbers: those that have been evaluated, and {name of a run: its record}
        costs, probed: what measure_cost.py and probe_checkpoints.py recorded
    Raises:
        UsageError: there is no seed for which both models of the first comparison have been evaluated
    """

    def __init__(self, comparison, records, command):
        self.comparison, self.command = comparison, command
        self.costs, self.probed = records.read(COST) or [], records.read(PROBED)
        self.runs = [run for run in comparison.runs() if records.has(run)]
        self.numbers = {run.name: records.read(run.name) for run in self.runs}
        self.tables = Report({run.name: records.outcomes(run) for run in self.runs} or {"": {}})
        self.tasks, self.unseen = ([task for task in names if task in comparison.tasks] for names in (TASKS, UNSEEN))
        self.seeds = len(self.seeds_of(comparison.compared[0]))
        if not self.seeds:
            names = " and ".join(f"{model.name}-1" for model in comparison.compared[0])
            raise UsageError(f"{records.folder}: nothing to report yet, expected the records of {names}")

    def of(self, model):
        """The evaluated runs of a model."""
        return [run for run in self.runs if run.model == model]

    def updates(self, model):
        return next(arm.updates for arm in self.comparison.arms if arm.model == model)

    def models(self):
        """The models that have been evaluated."""
        return [arm.model for arm in self.comparison.arms if self.of(arm.model)]

    def seeds_of(self, pair):
        """The names of the runs of two models for the seeds that both have: list of (name, name)."""
        return self.tables.seeds(*(model.name for model in pair))

    # Numbers of a run

    def score(self, name, task, selection=CHOSEN, kind="mean"):
        return self.numbers[name]["scores"][task][kind][selection]

    def mean_score(self, name, selection=CHOSEN, kind="mean"):
        return np.mean([self.score(name, task, selection, kind) for task in self.tasks])

    def scores_by_layer(self, run, tasks=None):
        """The score of each layer, averaged over tasks, by default those of the mean: (L + 1,)."""
        return np.mean([self.score(run.name, task, "by_layer") for task in tasks or self.tasks], 0)

    def fine_tuned(self, name):
        """The mean score of a run that was fine-tuned, else None."""
        scores = [self.numbers[name]["scores"].get(task, {}).get(FINE_TUNED) for task in FINE_TUNED_TASKS]
        return np.mean([score[CHOSEN] for score in scores]) if all(scores) else None

    def few_labels(self, place, name):
        """The mean few-shot score of a run, at a place in SHOTS, over the tasks that have one; nan if none has."""
        scores = [self.numbers[name]["scores"][task].get("few_shot") for task in self.tasks]
        return np.mean([score[CHOSEN][place] for score in scores if score] or [np.nan])

    # The question

    def claim(self):
        """The difference that is tested, in words."""
        pair = ours, theirs = self.comparison.compared[0]
        interval = self.difference(pair, self.tasks)
        planned = min(arm.seeds for arm in self.comparison.arms if arm.model in pair)
        verdict = "better" if interval.low > 0 else "worse" if interval.high < 0 else "no difference is shown"
        if not self.comparison.tested:
            verdict = "nothing is tested"
        elif self.seeds < planned:
            verdict = f"not decided: {self.seeds} of {planned} seeds, and no test before all of them"
        how = f"{self.seeds} seeds; {CONFIDENCE:.0%} interval over seeds and examples."
        if self.seeds == 1:
            how = "The interval is over examples, for these two models only."
        return f"**{ours.title} minus {theirs.title}, in points: {in_words(interval)}; {verdict}.** {how}"

    # Tables

    def table_of_models(self, columns, models=None):
        """A row for each model, by default all; empty columns, {title: function of a model}, are left out."""
        models = models or self.models()
        cells = {title: [cell(model) for model in models] for title, cell in columns.items()}
        cells = {"model": [model.title for model in models], **{key: cells[key] for key in cells if any(cells[key])}}
        return table(list(cells), zip(*cells.values()))

    def by_seed(self, value):
        """A function of a model: a list of its runs' numbers; `value`: function of a name, None if it has none."""
        return lambda model: [x for x in (value(run.name) for run in self.of(model)) if x is not None]

    def mean_of(self, value):
        """A cell for the mean over seeds of what :meth:`by_seed` gives, and its standard error."""

        def cell(model):
            numbers = self.by_seed(value)(model)
            if not numbers:
                return ""
            mean = seed_interval(numbers)
            error = f" ± {mean.error:.2f}" * (len(numbers) > 1)
            return f"{mean.estimate:.2f}{error}" + fewer(len(numbers), len(self.of(model)))

        return cell

    def arms(self):
        """The cost and the scores of each model: means over seeds."""
        cost = partial(self.cost, self.costs[0] if self.costs else {"models": {}})

        def last(key, template, unit=1):
            """A cell for the mean of a number of the last validation, if there was pretraining."""
            values = self.by_seed(lambda name: self.numbers[name]["validations"][-1][key] / unit)
            return lambda model: template.format(np.mean(values(model))) if self.updates(model) else ""

        columns = {
            "seeds": lambda model: len(self.of(model)),
            "updates": lambda model: f"{self.updates(model):,}",
            "TFLOP": last("gflop", "{:,.1f}", 1000),
            "seconds per update (ratio)": partial(cost, "{seconds:.3f} ({ratio:.2f})"),
            "time of a run (ratio)": partial(cost, "{run:.2f}"),
            "memory, MiB": partial(cost, "{memory_mib:,}"),
            "loss, bits": last("loss", "{:.3f}"),
            f"mean over {len(self.tasks)} tasks": self.mean_of(self.mean_score),
            f"minus {MLM.title}": lambda model: "" if model == MLM else self.cell((model, MLM), self.tasks),
            **self.columns_of(self.unseen),
            "fine-tuned": self.mean_of(self.fine_tuned),
        }
        return self.table_of_models(columns)

    def cost(self, measured, template, model):
        """What an update of a model costs, in words; empty if it was not measured.

        Args:
            measured: by measure_cost.py, on one machine
            template: with the names of measured values, `title`, and `run`: the time of a run over that of the MLM's
        """
        cost, length = measured["models"].get(model.name), self.updates(model) / self.updates(MLM)
        return template.format(title=model.title, run=cost["ratio"] * length, **cost) if cost else ""

    def costs_in_words(self):
        """How seconds and memory were measured; and the values of all machines but the first, which has columns."""
        text = ""
        for number, measured in enumerate(self.costs):
            where = f"on {measured['date']} ({measured['machine']})"
            spread = max(cost["highest"] - cost["lowest"] for cost in measured["models"].values())
            how = f"medians of {measured['rounds']} rounds, between which ratios differ by {spread:.2f} at most"
            if number == 0:
                text += "Time and memory were measured after the runs, with `experiments/measure_cost.sh`, "
                text += f"{where}: {how}. Ratios are to the MLM's time; memory is the peak of the process.\n"
            else:
                words = "{title} {seconds:.3f} ({ratio:.2f}), {run:.2f}"
                values = "; ".join(filter(None, (self.cost(measured, words, model) for model in self.models())))
                text += f"\nSeconds per update (ratio) and time of a run {where}: {values}; {how}.\n"
        return text

    def columns_of(self, tasks):
        """Columns of a table of models: the scores of tasks."""
        return {task: self.mean_of(partial(self.score, task=task)) for task in tasks}

    def differences(self):
        """All pairs of models: the mean over tasks, the mean without the synthetic probes, and the unseen tasks."""
        natural = [task for task in self.tasks if task not in MADE]
        columns = {f"mean over {len(self.tasks)} tasks": self.tasks, "without synthetic probes": natural}
        columns.update({task: [task] for task in self.unseen})
        return self.table_of_pairs({title: partial(self.cell, tasks=tasks) for title, tasks in columns.items()})

    def other_differences(self):
        """The same for other features: last layer, few labels, fine-tuning."""
        columns = {"last layer": self.over_seeds(lambda name: self.mean_score(name, LAST))}
        for place, shots in enumerate(SHOTS):
            columns[f"{shots} examples per class"] = self.over_seeds(partial(self.few_labels, place))
        columns[f"fine-tuned, {' and '.join(FINE_TUNED_TASKS)}"] = partial(self.cell, kind=FINE_TUNED)
        return self.table_of_pairs(columns)

    def difference(self, pair, tasks=None, kind="mean"):
        """The difference of two models on tasks, with an interval over seeds and examples; None if not measured."""
        paired = self.tables.paired(*(model.name for model in pair), kind, tasks=tasks)
        return crossed_interval(paired, CONFIDENCE) if paired else None

    def cell(self, pair, tasks=None, kind="mean"):
        """The same in words, with the number of seeds where only some were measured."""
        seeds = len(self.tables.seeds(*(model.name for model in pair), kind))
        return in_cell(self.difference(pair, tasks, kind)) + fewer(seeds, len(self.seeds_of(pair)))

    def over_seeds(self, value):
        """The same for one number per run, with an interval over seeds; `value`: function of a run's name."""
        return lambda pair: in_cell(seed_interval([value(a) - value(b) for a, b in self.seeds_of(pair)], CONFIDENCE))

    def table_of_pairs(self, columns):
        """A row for each pair that is compared, and has a seed in common; columns: {title: function of a pair}."""
        rows = []
        for pair in filter(self.seeds_of, self.comparison.compared):
            cells = [column(pair) for column in columns.values()]
            rows.append([" minus ".join(model.title for model in pair), len(self.seeds_of(pair)), *cells])
        return table(["difference", "seeds", *columns], rows)

    def trainings(self):
        """The loss, score and ranks of the last layer of each seed."""

        def each(value):
            return lambda model: " ".join(map(str, self.by_seed(value)(model)))

        options = {model.name: self.numbers[self.of(model)[0].name]["options"] for model in self.models()}
        columns = {
            "learning rate": lambda model: provenance.by_option(options[model.name])["--lr"][0],
            "loss, bits": each(lambda name: f"{self.numbers[name]['validations'][-1]['loss']:.3f}"),
            "score": each(lambda name: f"{self.mean_score(name):.2f}"),
            "rank without [MASK]": each(lambda name: self.numbers[name]["ranks"][TAU]["without_mask"][-1]),
            "with": each(lambda name: self.numbers[name]["ranks"][TAU]["with_mask"][-1]),
        }
        return self.table_of_models(columns, [model for model in self.models() if self.of(model)[0].updates])

    # Text

    def missing(self):
        """The runs of the plan that have not been evaluated or fine-tuned."""
        plan, evaluated = self.comparison, {run.name for run in self.runs}
        tuned = {name for name in evaluated if self.fine_tuned(name) is not None}
        text = ""
        for what, done, runs in [("evaluated", evaluated, plan.runs()), ("fine-tuned", tuned, plan.fine_tuned_runs())]:
            names = [run.name for run in runs if run.name not in done]
            text += f"Planned but not {what}: {', '.join(names)}.\n" if names else ""
        return text

    def summary(self, figure=None):
        """The section for a page of results; with links to the figures, if they are drawn."""
        comparison, size, text = self.comparison, self.comparison.size, self.comparison.text
        claims = rank_claims(self)
        plan = "Nothing is tested; `experiments/plans.py` defines the runs."
        if comparison.tested:
            plan = "What is tested, and how, was written before the runs: `experiments/preregistration.py`."
        sections = [
            f"## {comparison.title}",
            f"Made from `experiments/records/{comparison.name}` alone, which was recorded by",
            f"```\n{self.command}\n```",
            f"Encoders of {size.encoder_layers} layers, width {size.encoder_embed_dim}; batches of {text.batch_size} "
            f"sequences of up to {text.tokens_per_sample} tokens. For one seed, all models start from the same encoder "
            f"weights and see the same text and masks. {plan}\n",
            self.claim() + "\n",
            f"![{figures.CAPTION}]({figure})\n" if figure else "",
            "### Planned analyses",
            "Scores are of frozen features, averaged over tokens: means over seeds, ± standard error. Differences "
            f"are paired, with {CONFIDENCE:.0%} intervals over seeds and examples; with one seed, over examples, for "
            f"these models only. {' and '.join(self.unseen)}, which are in no mean, had not been looked at when shared "
            f"layers were designed. Fine-tuned is the mean over {' and '.join(FINE_TUNED_TASKS)}.\n",
            self.arms(),
            self.missing(),
            self.costs_in_words(),
            "The tasks of the mean:\n",
            self.table_of_models(self.columns_of(self.tasks)),
            "Differences:\n",
            self.differences(),
            "Other features, and fine-tuning; intervals are over seeds, for fine-tuning also over examples:\n",
            self.other_differences(),
            f"Each seed, with the effective rank of its last layer at tau = {TAU}:\n",
            self.trainings(),
            f"The paper's claims on ranks, at tau = {TAU}, not corrected for multiple comparisons:\n" if claims else "",
            claims,
            f"### Exploratory analyses, added after the runs\n{exploratory.text(self)}",
            f"![{figures.ORDER_CAPTION}]({figures.order_path(figure)})\n" if figure and exploratory.order(self) else "",
        ]
        return "\n".join(section for section in sections if section) + "\n"


def in_cell(interval):
    """An interval in words; empty if nothing was measured."""
    return in_words(interval) if interval and np.isfinite(interval.estimate) else ""


def fewer(seeds, planned):
    """The suffix of a cell that has fewer seeds than its row."""
    return f", {count(seeds)}" if 0 < seeds < planned else ""
