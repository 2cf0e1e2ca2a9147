"""The tables of an evaluation, in Markdown."""

import re

import numpy as np
import pandas as pd
from scipy import stats

from ..base.errors import UsageError
from ..base.markdown import table
from .minimal_pairs import interval, is_over_paradigms, shares
from .outcomes import CHOSEN, GROUPS, LAST, PAIRS, TEXT
from .probes import score

TITLES = {"mean": "mean of tokens", "first": "`<s>`", "side_by_side": "layers side by side"}
DRAWS = 1000  # of the bootstrap


def markdown(frame):
    """A table in Markdown, whose index is its first column, of a DataFrame or what makes one."""
    frame = pd.DataFrame(frame)
    rows = [[name, *("" if pd.isna(cell) else cell for cell in row)] for name, *row in frame.itertuples()]
    return table([frame.index.name or "", *frame.columns], rows)


def models_of_arm(names, arm):
    """Those of `names` that are ARM-SEED: {seed: name}."""
    matches = [re.fullmatch(re.escape(arm) + r"-([0-9]+)", name) for name in names]
    return {match[1]: match[0] for match in matches if match}


class Report:
    """The tables of models.

    Args:
        records: list of `outcomes.Records`
        tasks: their names, in order
        pairs: names of sets of minimal pairs
        secondary: names of tasks that are in no mean
        yardsticks: list of Records of what needs no encoder: a row of every table of scores
    """

    def __init__(self, records, tasks, pairs=(), secondary=(), yardsticks=()):
        self.records, self.tasks, self.pairs = {each.model: each for each in records}, tasks, pairs
        self.averaged = [task for task in tasks if task not in secondary] or tasks
        table = pd.concat([each.table() for each in [*records, *yardsticks]])
        table = table[table.task.isin(tasks) & ~table.feature.str.startswith(PAIRS)]
        self.yardsticks = [each.model for each in yardsticks]
        is_yardstick = table.model.isin(self.yardsticks)
        self.table, self.without_encoder = table[~is_yardstick], table[is_yardstick]

    def scores(self, feature, layer=CHOSEN):
        """Scores of models by tasks, and their mean over those of the mean; without models that lack a task."""
        chosen = self.table[(self.table.feature == feature) & (self.table.layer == layer)]
        chosen = pd.concat([chosen, self.beside(feature)])
        rows = [*self.records, *self.yardsticks]
        frame = chosen.pivot(index="model", columns="task", values="value").reindex(rows)
        frame = frame.reindex(columns=[task for task in self.tasks if task in frame]).dropna()
        frame["mean"] = frame[[task for task in self.averaged if task in frame]].mean(axis=1)
        return frame

    def beside(self, feature):
        """The rows of yardsticks beside a feature: of all examples, or of as few."""
        table = self.without_encoder
        few = table[table.feature == feature]
        others = ~table.model.isin(few.model)
        return pd.concat([few, table[others & (table.feature == TEXT) & (table.layer == CHOSEN)]])

    def layers(self, feature):
        """Scores of models by layer, mean over tasks; a yardstick, which has no layers, has one score."""
        chosen = self.table[(self.table.feature == feature) & self.table.task.isin(self.averaged)]
        chosen = chosen[chosen.layer.map(lambda layer: isinstance(layer, int))]
        frame = chosen.pivot_table(index="model", columns="layer", values="value").reindex(list(self.records))
        beside = self.beside(feature)
        for name in self.yardsticks:
            rows = beside[(beside.model == name) & beside.task.isin(self.averaged)]
            frame.loc[name] = rows.value.mean()
        return frame.rename(columns=lambda layer: f"layer {layer}")

    def differences(self, arms, feature="mean", layer=CHOSEN):
        """The first of two arms minus the second, by task and for their mean: estimate and 95% interval.

        From two seeds on, Student's t over seeds, paired; from one, a bootstrap over examples, for these models only.
        """
        frame = self.scores(feature, layer)
        ours, theirs = (models_of_arm(frame.index, arm) for arm in arms)
        seeds = [seed for seed in ours if seed in theirs]
        rows, averaged = [], [task for task in self.averaged if task in frame]
        pair = [self.records[side[seed]] for side in (ours, theirs) for seed in seeds[:1]]
        answered = pair and f"{frame.columns[0]}/{feature}" in pair[0].arrays  # few-shot probes record scores alone
        for task in ["mean", *frame.columns[:-1]] if len(seeds) > 1 or answered else []:
            values = [frame.loc[[side[seed] for seed in seeds], task].to_numpy() for side in (ours, theirs)]
            estimate = (values[0] - values[1]).mean()
            if len(seeds) > 1:
                low, high = stats.ttest_rel(*values).confidence_interval(0.95)
            else:
                tasks = averaged if task == "mean" else [task]
                errors = [bootstrap_error(*pair, name, feature, layer) for name in tasks]
                width = stats.norm.ppf(0.975) * np.sqrt(np.sum(np.square(errors))) / len(tasks)
                low, high = estimate - width, estimate + width
            rows.append([task, estimate, low, high])
        frame = pd.DataFrame(rows, columns=["", f"{arms[0]} minus {arms[1]}", "from", "to"]).set_index("")
        return frame.assign(seeds=len(seeds), tasks=[len(averaged) if task == "mean" else 1 for task in frame.index])

    def decided(self, name):
        """How minimal pairs are decided: models by the right share, its interval, and how many."""
        rows = {}
        for model, (decisions, groups) in self.decisions(name).items():
            share, _ = shares(decisions, groups)
            low, high = interval(decisions, groups)
            rows[model] = {"right": share, "from": low, "to": high, "pairs": len(groups)}
        return pd.DataFrame.from_dict(rows, orient="index")

    def decided_by_group(self, name):
        """The shares of right decisions: groups by models."""
        columns = {}
        for model, (decisions, groups) in self.decisions(name).items():
            _, columns[model] = shares(decisions, groups)
        return pd.DataFrame(columns).rename_axis("group")

    def decisions(self, name):
        """{model: how it decides each pair, (N,), and the groups of the pairs, (N,)}."""
        keys = [f"{name}/{key}" for key in [PAIRS, GROUPS]]
        return {model: [of.arrays[key] for key in keys] for model, of in self.records.items()}

    def pairs_text(self, name):
        """The section on minimal pairs."""
        _, groups = next(iter(self.decisions(name).values()))
        if is_over_paradigms(groups):
            over = f"over {len(np.unique(groups))} paradigms, the groups TERM/UID"
        else:
            over = "over pairs, within groups"
        text = f"## Minimal pairs: {name}\nRight in percent, with 95% intervals {over}.\n\n"
        text += markdown(self.decided(name))
        by_group = self.decided_by_group(name)
        if len(by_group):
            text += f"\nBy group:\n\n{markdown(by_group)}"
        return text

    def text(self, comparisons=()):
        """All tables; `comparisons` are pairs of arms."""
        sections = {}
        if self.tasks:
            sections[f"Score: {TITLES['mean']}, layer selected inside the training folds"] = self.scores("mean")
            sections[f"Last layer, {TITLES['mean']}"] = self.scores("mean", LAST)
        titles = {feature: TITLES.get(feature, feature) for feature in self.table.feature.unique() if feature != "mean"}
        for feature, title in titles.items():
            sections[title[0].upper() + title[1:]] = self.scores(feature)
        for feature in ["mean", "first"] if self.tasks else []:
            sections[f"By layer, mean over tasks, {TITLES[feature]}"] = self.layers(feature)
        parts = [self.pairs_text(name) for name in self.pairs]
        parts += [f"## {title}\n{markdown(frame)}" for title, frame in sections.items() if len(frame)]
        for arms in comparisons:
            frame, others = self.differences(arms), {"mean, last layer": self.differences(arms, layer=LAST)}
            others.update({f"mean, {title}": self.differences(arms, feature) for feature, title in titles.items()})
            more = [other.iloc[:1].set_axis([title]) for title, other in others.items() if len(other)]
            table = markdown(pd.concat([frame, *more]))
            over = "over seeds, or where there is one, over examples, for these two models only"
            parts.append(f"## {arms[0]} minus {arms[1]}\n95% intervals {over}.\n\n{table}")
        return "\n".join(parts)


def bootstrap_error(ours, theirs, task, feature, layer):
    """The standard error of a difference of scores over the examples of a task."""
    answers, targets = [each.answers(task, feature, layer) for each in (ours, theirs)], ours.arrays[f"{task}/targets"]
    if not np.array_equal(targets, theirs.arrays[f"{task}/targets"]):
        names = f"{ours.model} and {theirs.model}"
        raise UsageError(f"{names}: evaluated on different examples of {task}; evaluate both again")
    rng = np.random.default_rng(1)
    draws = (rng.integers(len(targets), size=len(targets)) for _ in range(DRAWS))
    return np.std([score(answers[0][rows], targets[rows]) - score(answers[1][rows], targets[rows]) for rows in draws])
