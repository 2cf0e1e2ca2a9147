"""The tables of an evaluation, in Markdown."""

import re

import numpy as np
import pandas as pd
from scipy import stats

from ..base.errors import UsageError
from ..base.markdown import markdown_table
from .minimal_pairs import (
    BOOTSTRAP_DRAWS,
    bootstrap_interval,
    is_over_paradigms,
    pairs_by_group,
    pairs_interval,
    percent_right,
)
from .model_record import CHOSEN_LAYER, GROUPS_KEY, LAST_LAYER, PAIRS_FEATURE, TEXT_FEATURE
from .probes import score_predictions

FEATURE_TITLES = {"mean": "mean of tokens", "first": "`<s>`", "side_by_side": "layers side by side"}


OVER_PAIRS = "over pairs, within groups"
PAIRS_NOTE = (
    "Minimal pairs, in points, with 95% intervals: of one seed, for these two models only; of "
    "more, over seeds, too. *Differing* is the number of pairs that at least one seed decides "
    "differently."
)


def frame_to_markdown(frame):
    """A table in Markdown of a DataFrame, or of what makes one; its index is the first column."""
    frame = pd.DataFrame(frame)
    rows = []
    for name, *cells in frame.itertuples():
        rows.append([name, *("" if pd.isna(cell) else cell for cell in cells)])
    return markdown_table([frame.index.name or "", *frame.columns], rows)


def models_of_arm(names, arm):
    """Those of `names` that are ARM-SEED: {seed: name}."""
    matches = [re.fullmatch(re.escape(arm) + r"-([0-9]+)", name) for name in names]
    return {match[1]: match[0] for match in matches if match}


def seeds_in_common(names, arms):
    """The seeds that two arms have in common: {seed: (model of the first, model of the second)}."""
    first, second = (models_of_arm(names, arm) for arm in arms)
    return {seed: (first[seed], second[seed]) for seed in first if seed in second}


class Report:
    """The tables of models.

    Args:
        records: list of `model_record.ModelRecord`
        tasks: their names, in order
        pairs: names of sets of minimal pairs
        secondary: names of tasks that are in no mean
        baselines: list of ModelRecord of what needs no encoder: a row of every table of scores
    """

    def __init__(self, records, tasks, pairs=(), secondary=(), baselines=()):
        self.records = {record.model: record for record in records}
        self.tasks = tasks
        self.pairs = pairs
        self.averaged = [task for task in tasks if task not in secondary] or tasks
        self.baselines = [record.model for record in baselines]
        table = pd.concat([record.table() for record in [*records, *baselines]])
        table = table[table.task.isin(tasks) & ~table.feature.str.startswith(PAIRS_FEATURE)]
        is_baseline = table.model.isin(self.baselines)
        self.table = table[~is_baseline]
        self.without_encoder = table[is_baseline]

    def scores(self, feature, layer=CHOSEN_LAYER):
        """Scores of models by tasks, and their mean over the tasks that are averaged.

        Models that lack a task are left out.
        """
        chosen = self.table[(self.table.feature == feature) & (self.table.layer == layer)]
        beside = self.baselines_for(feature)
        chosen = pd.concat([chosen, beside[beside.task.isin(chosen.task)]])
        rows = [*self.records, *self.baselines]
        frame = chosen.pivot(index="model", columns="task", values="value").reindex(rows)
        frame = frame.reindex(columns=[task for task in self.tasks if task in frame]).dropna()
        averaged = [task for task in self.averaged if task in frame]
        frame["mean"] = frame[averaged].mean(axis=1)
        return frame

    def baselines_for(self, feature):
        """The rows of baselines to compare a feature with.

        For a few-shot feature, these are the baselines that were trained on as few examples, or on
        all examples where there are no such baselines.
        """
        table = self.without_encoder
        few = table[table.feature == feature]
        has_no_few = ~table.model.isin(few.model)
        with_all = (table.feature == TEXT_FEATURE) & (table.layer == CHOSEN_LAYER)
        return pd.concat([few, table[has_no_few & with_all]])

    def layers(self, feature):
        """Scores of models by layer, mean over tasks.

        A baseline, which has no layers, has one score.
        """
        chosen = self.table[(self.table.feature == feature) & self.table.task.isin(self.averaged)]
        chosen = chosen[chosen.layer.map(lambda layer: isinstance(layer, int))]
        frame = chosen.pivot_table(index="model", columns="layer", values="value")
        frame = frame.reindex(list(self.records))
        beside = self.baselines_for(feature)
        for name in self.baselines:
            rows = beside[(beside.model == name) & beside.task.isin(self.averaged)]
            frame.loc[name] = rows.value.mean()
        return frame.rename(columns=lambda layer: f"layer {layer}")

    def differences(self, arms, feature="mean", layer=CHOSEN_LAYER):
        """The first of two arms minus the second, by task and for their mean, with 95% intervals.

        With two seeds or more, an interval is Student's t over seeds, paired; with one, a bootstrap
        over examples, for these models only.
        """
        frame = self.scores(feature, layer)
        seeds = seeds_in_common(frame.index, arms)
        first = [models[0] for models in seeds.values()]
        second = [models[1] for models in seeds.values()]
        averaged = [task for task in self.averaged if task in frame]
        rows = []
        for task in ["mean", *frame.columns[:-1]]:
            tasks = averaged if task == "mean" else [task]
            if len(seeds) > 1:
                interval = paired_interval(frame.loc[first, task], frame.loc[second, task])
            elif seeds and self.has_predictions(first[0], tasks[0], feature):
                records = self.records[first[0]], self.records[second[0]]
                estimate = frame.loc[first[0], task] - frame.loc[second[0], task]
                interval = interval_over_examples(estimate, *records, tasks, feature, layer)
            else:
                continue
            rows.append([task, *interval, len(seeds), len(tasks)])
        columns = ["", f"{arms[0]} minus {arms[1]}", "from", "to", "seeds", "tasks"]
        return pd.DataFrame(rows, columns=columns).set_index("")

    def pair_differences(self, arms):
        """The first of two arms minus the second, in how they decide sets of minimal pairs.

        In points of the share of right decisions, paired by seed, with `pairs_interval`; and
        how many pairs at least one seed decides differently.
        """
        seeds = seeds_in_common(self.records, arms)
        rows = []
        for name in self.pairs:
            decisions = self.decisions(name)
            _, groups = next(iter(decisions.values()))
            gaps = []
            for first, second in seeds.values():
                gaps.append(decisions[first][0] - decisions[second][0])
            interval = pairs_interval(np.stack(gaps), groups)
            differing = np.count_nonzero(np.any(gaps, axis=0))
            counts = [len(seeds), len(groups), differing]
            rows.append([name, 100 * np.mean(gaps), *interval, *counts])
        columns = ["", f"{arms[0]} minus {arms[1]}", "from", "to", "seeds", "pairs", "differing"]
        return pd.DataFrame(rows, columns=columns).set_index("")

    def has_predictions(self, model, task, feature):
        """Whether a model's predictions of each example are recorded; few-shot probes have none."""
        return f"{task}/{feature}" in self.records[model].arrays

    def decided(self, name):
        """How minimal pairs are decided: models by the right share, its interval, and how many."""
        rows = {}
        for model, (decisions, groups) in self.decisions(name).items():
            share, _ = percent_right(decisions, groups)
            low, high = bootstrap_interval(decisions, groups)
            rows[model] = {"right": share, "from": low, "to": high, "pairs": len(groups)}
        return pd.DataFrame.from_dict(rows, orient="index")

    def decided_by_group(self, name):
        """The shares of right decisions: groups by models, with the number of pairs."""
        columns = {}
        for model, (decisions, groups) in self.decisions(name).items():
            _, columns[model] = percent_right(decisions, groups)
        columns["pairs"] = pairs_by_group(groups)
        return pd.DataFrame(columns).rename_axis("group")

    def decisions(self, name):
        """{model: how it decides each pair, (N,), and the groups of the pairs, (N,)}."""
        keys = [f"{name}/{key}" for key in [PAIRS_FEATURE, GROUPS_KEY]]
        decisions = {}
        for model, record in self.records.items():
            decisions[model] = [record.arrays[key] for key in keys]
        return decisions

    def source_of_interval(self, name):
        """What the intervals of a set of minimal pairs are over, in words."""
        _, groups = next(iter(self.decisions(name).values()))
        if is_over_paradigms(groups):
            return f"over {len(np.unique(groups))} paradigms"
        return OVER_PAIRS

    def pairs_text(self, name):
        """The section on minimal pairs."""
        over = self.source_of_interval(name)
        if over != OVER_PAIRS:
            over += ", the groups TERM/UID"
        text = f"## Minimal pairs: {name}\n"
        text += f"Right in percent, with 95% intervals {over}; by chance, 50% are right.\n\n"
        text += frame_to_markdown(self.decided(name))
        by_group = self.decided_by_group(name)
        if len(by_group):
            text += f"\nBy group:\n\n{frame_to_markdown(by_group)}"
        return text

    def text(self, comparisons=()):
        """All tables; `comparisons` are pairs of arms."""
        features = [feature for feature in self.table.feature.unique() if feature != "mean"]
        titles = {feature: FEATURE_TITLES.get(feature, feature) for feature in features}
        parts = [self.pairs_text(name) for name in self.pairs]
        for title, frame in self.sections(titles).items():
            if len(frame) and len(self.tasks) == 1:
                frame = frame.drop(columns="mean", errors="ignore")
            if len(frame):
                parts.append(f"## {title}\n{frame_to_markdown(frame)}")
        parts += [self.comparison_text(arms, titles) for arms in comparisons]
        return "\n".join(parts)

    def sections(self, titles):
        """The tables of scores, {title: DataFrame}.

        `titles` has a title for each feature but mean: {feature: title}.
        """
        sections = {}
        mean = FEATURE_TITLES["mean"]
        if self.tasks:
            sections[f"Score: {mean}, layer selected inside the training folds"] = self.scores(
                "mean"
            )
            sections[f"Last layer, {mean}"] = self.scores("mean", LAST_LAYER)
        for feature, title in titles.items():
            sections[title[0].upper() + title[1:]] = self.scores(feature)
        if self.tasks:
            for feature in ["mean", "first"]:
                title = f"By layer, mean over tasks, {FEATURE_TITLES[feature]}"
                sections[title] = self.layers(feature)
        return sections

    def comparison_text(self, arms, titles):
        """The section on the difference of two arms; `titles` as for `sections`."""
        text = f"## {arms[0]} minus {arms[1]}\n"
        if self.tasks:
            text += self.comparison_on_tasks(arms, titles)
        if self.pairs:
            rows = frame_to_markdown(self.pair_differences(arms))
            text += f"{PAIRS_NOTE}\n\n{rows}\n"
        return text

    def comparison_on_tasks(self, arms, titles):
        """The scores of the first of two arms minus those of the second, as text."""
        frame = self.differences(arms)
        others = {"mean, last layer": self.differences(arms, layer=LAST_LAYER)}
        for feature, title in titles.items():
            others[f"mean, {title}"] = self.differences(arms, feature)
        means = [other.iloc[:1].set_axis([title]) for title, other in others.items() if len(other)]
        rows = frame_to_markdown(pd.concat([frame, *means]))
        over = "over seeds, or where there is one, over examples, for these two models only"
        return f"95% intervals {over}.\n\n{rows}\n"


def paired_interval(first_scores, second_scores):
    """The mean difference of the scores of several seeds, and its 95% interval.

    The scores are paired by seed; the interval is Student's t.
    """
    test = stats.ttest_rel(first_scores.to_numpy(), second_scores.to_numpy())
    low, high = test.confidence_interval(0.95)
    return (first_scores.to_numpy() - second_scores.to_numpy()).mean(), low, high


def interval_over_examples(estimate, first, second, tasks, feature, layer):
    """A difference of scores, the mean over tasks, and its 95% interval over their examples.

    Args:
        estimate: the difference
        first, second: the `ModelRecord` of both models
    """
    errors = [bootstrap_error(first, second, task, feature, layer) for task in tasks]
    margin = stats.norm.ppf(0.975) * np.sqrt(np.sum(np.square(errors))) / len(tasks)
    return estimate, estimate - margin, estimate + margin


def bootstrap_error(first, second, task, feature, layer):
    """The standard error of a difference of scores over the examples of a task."""
    first_predictions = first.predictions(task, feature, layer)
    second_predictions = second.predictions(task, feature, layer)
    targets = first.arrays[f"{task}/targets"]
    if not np.array_equal(targets, second.arrays[f"{task}/targets"]):
        names = f"{first.model} and {second.model}"
        raise UsageError(f"{names}: evaluated on different examples of {task}; evaluate both again")
    rng = np.random.default_rng(1)
    differences = []
    for _ in range(BOOTSTRAP_DRAWS):
        rows = rng.integers(len(targets), size=len(targets))
        first_score = score_predictions(first_predictions[rows], targets[rows])
        second_score = score_predictions(second_predictions[rows], targets[rows])
        differences.append(first_score - second_score)
    return np.std(differences)
