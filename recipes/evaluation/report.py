"""The tables of an evaluation, in Markdown."""

import re

import numpy as np

from .few_shot import SHOTS
from .intervals import Paired, crossed_interval
from .labelled_tasks import SECONDARY
from .outcomes import CHOSEN, LAST, pair

TITLES = {
    "mean": "mean of tokens",
    "first": "`<s>`",
    "fine-tuned-first": "fine-tuned on `<s>`",
    "fine-tuned-mean": "fine-tuned on the mean of tokens",
}


def table(header, rows):
    """A table in Markdown; empty without rows."""
    lines = [header, ["---"] * len(header), *rows] if rows else []
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n" * bool(rows)


def models_of_arm(names, arm):
    """Those of `names` that are ARM-SEED: {seed: name}, sorted."""
    matches = [re.fullmatch(re.escape(arm) + r"-(\d+)", name) for name in names]
    return dict(sorted((int(match[1]), match[0]) for match in matches if match))


class Report:
    """The tables of models.

    Args:
        results: {model: {task: (record, {kind: outcome})}}; all models have the same tasks
        comparisons: list of (arm, reference arm)
    """

    def __init__(self, results, comparisons=()):
        self.results, self.comparisons = results, list(comparisons)
        self.tasks = list(next(iter(results.values())))
        self.averaged = [task for task in self.tasks if task not in SECONDARY] or self.tasks

    def outcomes(self, model, kind, tasks):
        """The outcomes of a model for each of `tasks`; None where it was not measured."""
        return [self.results[model][task][1].get(kind) for task in tasks]

    def scores(self, kind, selection=CHOSEN, errors=False):
        """A table of models by tasks; with `errors`, the standard error of each mean over examples."""
        rows = []
        for model in self.results:
            if all(self.outcomes(model, kind, self.tasks)):
                averaged = self.outcomes(model, kind, self.averaged)
                mean = f"{np.mean([outcome.score(selection) for outcome in averaged]):.2f}"
                if errors:
                    alone = [Paired(outcome.contributions()[None], outcome.ids) for outcome in averaged]
                    mean += f" ± {crossed_interval(alone).error:.2f}"
                scores = [f"{outcome.score(selection):.2f}" for outcome in self.outcomes(model, kind, self.tasks)]
                rows.append([model, *scores, mean])
        return table(["model", *self.tasks, "mean"], rows)

    def few_shot(self):
        """Few-shot probes of the selected layer: means over repetitions."""
        records = {model: [tasks[task][0] for task in self.averaged] for model, tasks in self.results.items()}
        places = [i for i in range(len(self.averaged)) if all(each[i].get("few_shot") for each in records.values())]
        rows = []
        for model, record in records.items() if places else []:
            for shots, values in zip(SHOTS, np.transpose([record[i]["few_shot"][CHOSEN] for i in places])):
                rows.append([model, shots, *(f"{value:.2f}" for value in [*values, np.mean(values)])])
        return table(["model", "examples per class", *(self.averaged[i] for i in places), "mean"], rows)

    def layers(self):
        """Scores of each layer, averaged over tasks, for the mean of tokens and `<s>`."""
        rows = []
        for model in self.results:
            for kind in ["mean", "first"]:
                scores = np.mean([each.by_layer() for each in self.outcomes(model, kind, self.averaged)], 0)
                rows.append([model, TITLES[kind], *(f"{score:.2f}" for score in scores)])
        most = max(map(len, rows))
        rows = [row + [""] * (most - len(row)) for row in rows]
        return table(["model", "representation", *(f"layer {i}" for i in range(most - 2))], rows)

    def measured(self, kind):
        """The tasks, of those in the mean, for which some model has this kind of outcome."""
        return [task for task in self.averaged if any(kind in tasks[task][1] for tasks in self.results.values())]

    def seeds(self, ours, theirs, kind="mean"):
        """The models of the seeds that both arms have, with this outcome for all tasks: list of (name, name)."""
        tasks, (ours, theirs) = self.measured(kind), (models_of_arm(self.results, arm) for arm in (ours, theirs))
        both = [(model, theirs[seed]) for seed, model in ours.items() if seed in theirs]
        return [names for names in both if all(all(self.outcomes(name, kind, tasks)) for name in names)]

    def paired(self, ours, theirs, kind="mean", selection=CHOSEN, tasks=None):
        """The differences between two arms on tasks, by default the measured ones of the mean: list of Paired.

        It is empty if the arms have no seed in common.
        """
        sides = list(zip(*self.seeds(ours, theirs, kind)))
        tasks = (tasks or self.measured(kind)) if sides else []
        return [
            pair(*([self.results[name][task][1][kind] for name in side] for side in sides), selection) for task in tasks
        ]

    def comparison(self, ours, theirs):
        """The differences between two arms with their intervals, the primary one first."""
        seeds = len(self.seeds(ours, theirs))
        differences = {"**mean over tasks** (primary)": self.paired(ours, theirs)}
        differences.update({task: self.paired(ours, theirs, tasks=[task]) for task in self.tasks})
        differences["mean over tasks, last layer"] = self.paired(ours, theirs, selection=LAST)
        others = [kind for kind in TITLES if kind != "mean"]
        differences.update({f"mean over tasks, {TITLES[kind]}": self.paired(ours, theirs, kind) for kind in others})
        rows = []
        for title, tasks in differences.items():
            if tasks:
                each = crossed_interval(tasks)
                shown = [f"{x:+.2f}" for x in (each.estimate, each.low, each.high)]
                rows.append([title, *shown, f"{each.error:.2f}"])
        kind = "over seeds and examples" if seeds > 1 else "over examples, for these two models only"
        text = f"{count(seeds)}; 95% intervals {kind}.\n\n"
        return text + table(["", f"{ours} minus {theirs}", "from", "to", "error"], rows)

    def text(self):
        """All tables."""
        mean, first = TITLES["mean"], TITLES["first"]
        sections = {
            f"Score: {mean}, layer selected inside the training folds (primary)": self.scores("mean", errors=True),
            f"Last layer, {mean}": self.scores("mean", LAST),
            f"{first}, layer selected inside the training folds": self.scores("first"),
            "Few-shot, layer selected by the training examples": self.few_shot(),
            "By layer, mean over tasks": self.layers(),
        }
        sections.update({title.capitalize(): self.scores(kind) for kind, title in list(TITLES.items())[2:]})
        sections.update({f"{a} minus {b}": self.comparison(a, b) for a, b in self.comparisons})
        return "\n".join(f"## {title}\n{text}" for title, text in sections.items() if text)


def count(seeds):
    """The number of seeds in words."""
    return f"{seeds} seed{'s' * (seeds > 1)}"


def in_words(interval, digits=2):
    """An estimate, and its interval if it has one."""
    low_high = f" ({interval.low:+.{digits}f} to {interval.high:+.{digits}f})"
    return f"{interval.estimate:+.{digits}f}" + low_high * (interval.high > interval.low)
