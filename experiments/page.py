#!/usr/bin/env python3
"""Remakes the tables and pictures of RESULTS.md from the records alone.

    python page.py

Between <!-- NAME --> and <!-- end --> of the page stands what the method NAME of `Page` returns.
"""

import copy
import functools
import itertools
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy import stats

from arms import (
    ARMS,
    FINE_TUNING_RATE,
    FINE_TUNING_RATES,
    PILOT_SEEDS,
    PILOTS,
    TRAJECTORIES,
    encoders,
)
from maelm_fairseq.base.errors import MissingFileError
from maelm_fairseq.base.files import atomic_write
from maelm_fairseq.base.running import run
from maelm_fairseq.evaluation.few_shot import SHOTS
from maelm_fairseq.evaluation.report import markdown
from maelm_fairseq.evaluation.votes import BAG_OF_WORDS
from measure import NATURAL, ORDER, TEXT, TRAJECTORY_TASKS

HERE = Path(__file__).resolve().parent

PRIMARY = "fine-tuned", "last"  # feature and layer of the instrument, which the pilots chose
MAIN = [name for name, arm in ARMS.items() if arm.seeds > 1]
ABLATIONS = [name for name, arm in ARMS.items() if arm.seeds == 1]
MLMS = ["D", "D2", "B"]  # those that MAE-LM is compared with
MARGIN = 1.0  # points within which two arms are equivalent
EQUIVALENT = f"equivalent within {MARGIN:g} point (90% interval)"
LEAST = 4  # seeds that a test needs; fewer are described
# {what is tested: (tasks, (feature, layer), pairs of arms)}. The first test is the primary one, the
# others are corrected (Holm).
TESTED = {
    "fine-tuned": (NATURAL, PRIMARY, [("A", "B"), ("A", "D"), ("A2", "D"), ("E", "D")]),
    "last layer": (NATURAL, ("mean", "last"), [("A", "B"), ("A", "D"), ("E", "D")]),
    "last but one": (NATURAL, ("mean", "11"), [("A", "B"), ("A", "D"), ("E", "D")]),
    "word order": (ORDER, ("mean", "chosen"), [("A", "B"), ("E", "D")]),
}
# Equivalence is tested for these pairs, and for these instruments, which tell trained layers from
# new ones.
EQUIVALENCE = [("A", "B"), ("E", "D")]
SENSITIVE = ["fine-tuned", "word order"]
TREC = ["trec", "trec_fine"]  # two tasks with the same questions
WITHOUT = {
    "trec_fine": [task for task in NATURAL if task != "trec_fine"],
    "rotten_tomatoes": [task for task in NATURAL if task != "rotten_tomatoes"],
    "trec and trec_fine": [task for task in NATURAL if task not in TREC],
}
WITHOUT_TREC = "fine-tuned, without trec and trec_fine"
DESCRIBED = {  # not planned, and not tested
    "fine-tuned": (NATURAL, PRIMARY, [("B", "D"), ("A", "D2"), ("D2", "D"), ("A2", "A")]),
    "fine-tuned, without trec_fine": (
        WITHOUT["trec_fine"],
        PRIMARY,
        [("A", "B"), ("A", "D"), ("A2", "D")],
    ),
    WITHOUT_TREC: (
        WITHOUT["trec and trec_fine"],
        PRIMARY,
        [("A", "B"), ("A", "D"), ("A2", "D"), ("E", "D"), ("A", "D2")],
    ),
    "fine-tuned, without rotten_tomatoes": (
        WITHOUT["rotten_tomatoes"],
        PRIMARY,
        [("A", "D2"), ("D2", "D")],
    ),
    "last layer": (NATURAL, ("mean", "last"), [("A2", "A")]),
    "`<s>`, last layer": (NATURAL, ("first", "last"), [("A2", "A")]),
    "word order": (ORDER, ("mean", "chosen"), [("A", "D")]),
}
OLD = {
    "mlm": "MLM, masks only",
    "shared_long": "shared layers, the MLM's compute",
    "shared": "shared layers",
    "mae_lm": "MAE-LM",
    "scratch": "no pretraining",
}
TITLES = {name: arm.title for name, arm in ARMS.items()}
TITLES.update(OLD)
MAIN_CLAIM = "The main claim: fine-tuned, MAE-LM scores higher than the MLM"
MAIN_CLAIM_WITHOUT_TREC = "The same without the questions of trec and trec_fine"
# The paper's other claims. An estimate is positive where its claim holds; ranks are those of the
# last layer.
CLAIMS = {
    "rises": "Lemma 2.1, Figure 1b: in the MLM, [MASK] has a higher rank than in the embeddings",
    "gap": "Figure 1a: in the MLM, text with [MASK] has a higher rank than text without",
    "own": "Theorem 2.2: [MASK] has more dimensions outside those of real tokens in the MLM "
    "than in MAE-LM",
    "closes": "Figure 5a: text with [MASK] exceeds text without by more in the MLM than in MAE-LM",
    "plain": "Abstract: text without [MASK] has a higher rank in MAE-LM than in the MLM",
    "tuned": "Figure 5b: while it is fine-tuned, this rank is higher in MAE-LM than in the MLM",
    "earlier": "Figure 3: after three quarters of its updates, MAE-LM scores higher than the MLM "
    "at its end",
}
NOT_RUN = "Not run yet."
NO_BAG = "The bag of words has no record yet."
SCORES = ["accuracy", "100 x Pearson", "pearson"]
RANK_LAYERS = ["0", "1", "2", "3", "5", "8", "12"]
FEW_SEEDS = 2  # up to so many are drawn each, instead of a standard deviation
EMPTY = pd.DataFrame(columns=[1, 2], dtype=float)
FAMILIES = {
    "without_mask": "text without [MASK]",
    "with_mask": "text with [MASK]",
    "mask_tokens": "[MASK] itself",
}
GAP = "text with [MASK] minus text without"
OWN = "[MASK] outside real tokens"
SIX = "fine-tuned, all six tasks"
WORD_ORDER = "chosen layer, word order"
FEATURES = {  # {column: (feature, layer)}
    "chosen layer": ("mean", "chosen"),
    "last layer": ("mean", "last"),
    "`<s>`, last layer": ("first", "last"),
    "side by side": ("side_by_side", "last"),
    "fine-tuned": ("fine-tuned", "last"),
}
CONTINUED = {
    "base": "the RoBERTa",
    "mlm": "as an MLM",
    "shared": "all layers shared",
    "shared-fade": "the same, fading",
}
COLORS = dict(zip(ARMS, plt.cm.tab10.colors))
COLORS["mlm"] = COLORS["D2"]
COLORS["shared_long"] = "black"
COLORS["shared"] = COLORS["E"]
COLORS["mae_lm"] = COLORS["A"]
COLORS["scratch"] = "0.6"
MARKERS = dict(zip(COLORS, itertools.cycle("os^DvPX")))  # by the order of the colors


class Page:
    """What stands on the page, from a table of records."""

    def __init__(self, folder):
        files = sorted([*folder.glob("*-*.csv"), *folder.glob("width256.csv.gz")])
        tables = [pd.read_csv(path, dtype={"seed": "Int64", "layer": str}) for path in files]
        if not tables:
            fault = "found no records, expected csv files that measure.py writes"
            raise MissingFileError(f"{folder}: {fault}")
        self.records = pd.concat(tables, ignore_index=True).drop_duplicates()
        self.trial = read_if_there(folder / "continuing.csv")
        self.seconds = read_if_there(folder / "seconds.csv")
        self.bag = scores_of_bag(folder / "bag_of_words.csv")
        self.pictures = {}
        last_updates = self.records.groupby("arm").updates.transform("max")
        final = self.records[self.records.updates == last_updates]
        is_pilot = final.seed.isin(PILOT_SEEDS)
        self.final = final[~is_pilot]
        self.pilots = copy.copy(self)
        self.pilots.final = final[is_pilot]

    def values(self, arm, tasks, feature, layer):
        """The mean over tasks for each seed that has a score of all: a Series."""
        rows = self.final.query("arm == @arm and task in @tasks")
        rows = rows.query("feature == @feature and layer == @layer")
        rows = rows[rows.metric.isin(SCORES)]
        counts = rows.groupby("seed").value.agg(["mean", "size"])
        return counts["mean"][counts["size"] == len(tasks)]

    def by_layer(self, arm, family, metric="rank"):
        """Ranks, or another metric of layers: a DataFrame of seeds by layers."""
        rows = self.final.query("arm == @arm and task == @TEXT")
        rows = rows.query("feature == @family and metric == @metric")
        frame = rows.pivot(index="seed", columns="layer", values="value")
        frame = frame[sorted(frame, key=int)]
        if metric == "rank":
            return frame.replace(0, np.nan)  # 0 was recorded where there are no such tokens
        return frame

    def recorded(self, arms):
        """Those of `arms` that have ranks or scores."""
        names = set(self.final.arm)
        return [arm for arm in arms if arm in names]

    # Blocks of the page

    def missing(self):
        """How many encoders are recorded, and which are not."""
        pairs = self.records[["arm", "seed"]].dropna().itertuples(index=False)
        recorded = {f"{arm}-{seed}" for arm, seed in pairs}
        missing = [name for name in encoders() if name not in recorded]
        count = len(encoders())
        text = f"{count - len(missing)} of {count} encoders are recorded"
        if missing:
            text += f"; missing: {', '.join(missing)}."
        return text

    def rates(self):
        """The losses of the pilots with different learning rates."""
        rows = self.pilots.final
        rows = rows[rows.arm.str.contains("-lr") & (rows.metric == "bits")]
        parts = rows.arm.str.extract("(.*)-lr(.*)")
        rows = rows.assign(arm=parts[0].map(TITLES), rate=parts[1])
        frame = rows.pivot_table(index="arm", columns="rate", values="value")
        return markdown(frame[sorted(frame, key=float)])

    def tuning_rates(self):
        """The scores of pilots that were fine-tuned with different learning rates."""
        features = {rate: f"fine-tuned, {rate}" for rate in FINE_TUNING_RATES}
        features[FINE_TUNING_RATE] = "fine-tuned"
        rows = {}
        for arm in PILOTS:
            cells = {}
            for rate in sorted(features, key=float):
                scores = self.pilots.values(arm, NATURAL, features[rate], "last")
                cells[rate] = scores.get(PILOT_SEEDS[0])
            rows[TITLES[arm]] = cells
        frame = pd.DataFrame.from_dict(rows, orient="index").rename_axis("arm")
        return markdown(frame.dropna(axis=1, how="all"))

    def instrument(self):
        """How well each candidate tells trained layers from newly initialised ones."""
        rows = []
        tasks_of = {SIX: NATURAL, WORD_ORDER: ORDER}
        for title, (feature, layer) in instruments().items():
            tasks = tasks_of.get(title, WITHOUT["trec_fine"])  # whose classes are too small
            scores = self.trained_and_new(tasks, feature, layer)
            gains = scores.trained - scores.new
            if len(gains) > 1:
                ratio = gains.mean() / stats.sem(gains)
                rows.append([title, len(gains), *scores.mean(), gains.mean(), ratio])
        ratio_name = "gain over its standard error"
        names = ["features", "encoders", "trained", "new layers", "gain", ratio_name]
        frame = pd.DataFrame(rows, columns=names).set_index("features")
        return markdown(frame.sort_values(ratio_name, ascending=False))

    def trained_and_new(self, tasks, feature, layer):
        """The scores of pilots with trained layers, and with new ones: two columns."""
        frames = []
        for arm in PILOTS:
            trained = self.pilots.values(arm, tasks, feature, layer)
            new = self.pilots.values(f"{arm}-reset", tasks, feature, layer)
            frames.append(pd.concat([trained, new], axis=1, keys=["trained", "new"]))
        return pd.concat(frames).dropna()

    def masked(self):
        """The scores of pilots with 15% and 30% of the tokens predicted."""
        first = copy.copy(self)
        first.final = self.pilots.final[self.pilots.final.seed == PILOT_SEEDS[0]]
        arms = []
        for pilot in PILOTS:
            arms += [f"{pilot}-masked15", pilot]
        return first.scores_of(arms)

    def scores_of(self, arms):
        """The table of losses, scores and ranks of some arms, means over seeds."""
        rows = [self.score_row(arm) for arm in self.recorded(arms)]
        if not rows:
            return NOT_RUN
        is_fine_tuned = any(isinstance(row["fine-tuned"], str) for row in rows)  # else it is nan
        if is_fine_tuned and len(self.bag):
            mean = f"{self.bag[NATURAL].mean():.2f}"
            rows.append({"arm": BAG_OF_WORDS, "seeds": "", "fine-tuned": mean})
        return markdown(pd.DataFrame(rows).set_index("arm").dropna(axis=1, how="all"))

    def score_row(self, arm):
        """The row of an arm in the table of `scores_of`."""
        of_arm = self.final[self.final.arm == arm]
        loss = of_arm[of_arm.metric == "bits"].value
        row = {"seeds": of_arm.seed.nunique(), "arm": TITLES[arm]}
        row["bits"] = loss.mean() if len(loss) else np.nan
        for title, (feature, layer) in FEATURES.items():
            row[title] = mean_and_error(self.values(arm, NATURAL, feature, layer))
        for title, tasks in {"word order": ORDER, "agreement": ["agreement"]}.items():
            row[title] = mean_and_error(self.values(arm, tasks, "mean", "chosen"))
        row["rank gap"] = f"{self.gap(arm).iloc[:, -1].mean():+.1f}"
        return row

    def by_task(self):
        """Fine-tuned scores of each task, means over seeds."""
        means_by_task = self.task_means()
        if len(self.bag):
            means_by_task.loc[BAG_OF_WORDS] = self.bag[NATURAL]
        return markdown(means_by_task)

    def task_means(self):
        """Fine-tuned scores, means over seeds: a DataFrame of arms by tasks."""
        rows = {}
        for arm in MAIN:
            scores = {task: self.values(arm, [task], *PRIMARY) for task in NATURAL}
            rows[TITLES[arm]] = {task: values.mean() for task, values in scores.items()}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("arm").dropna()

    def arm_means(self):
        """Fine-tuned scores, means over the natural tasks and over seeds: a Series by arms."""
        means = {TITLES[arm]: self.values(arm, NATURAL, *PRIMARY).mean() for arm in MAIN}
        return pd.Series(means).dropna()

    def yardstick(self):
        """How the arms of the main experiment compare with a bag of words."""
        arms = self.task_means()
        arms.insert(0, "mean", self.arm_means())
        best, worst = arms["mean"].max(), arms["mean"].min()
        scores_of_arms = f"the fine-tuned arms of the main experiment {worst:.1f} to {best:.1f}"
        if not len(self.bag):
            return f"Mean of the natural tasks: {scores_of_arms}. {NO_BAG}"
        bag = pd.Series({"mean": self.bag[NATURAL].mean(), **self.bag[NATURAL]})
        lower = int((arms["mean"] < bag["mean"]).sum())
        text = f"Mean of the natural tasks: the bag of words scores {bag['mean']:.1f}; "
        text += f"{scores_of_arms}. {lower} of {len(arms)} arms score lower than the bag of words."
        table = pd.DataFrame({BAG_OF_WORDS: bag, "best arm of each column": arms.max()}).T
        return f"{text}\n\n{markdown(table.rename_axis(''))}"

    scores = functools.partialmethod(scores_of, MAIN)
    old_scores = functools.partialmethod(scores_of, OLD)

    def ablations(self):
        """Scores of the ablations, and the losses of MAE-LM at as many updates."""
        last = ARMS[ABLATIONS[0]].updates
        if not self.recorded(ABLATIONS):
            return NOT_RUN
        rows = self.records[(self.records.metric == "bits") & (self.records.updates == last)]
        rows = rows[rows.arm.isin(["A", *ABLATIONS]) & (rows.seed == 1)]
        bits = rows.set_index("arm").value.rename(f"bits after {last:,} updates")
        losses = markdown(bits.rename(TITLES).to_frame())
        return f"{losses}\n{self.scores_of(ABLATIONS)}"

    def seconds_of_an_update(self):
        """The time of an update of each arm, and its ratio to the MLM's."""
        rounds = self.seconds.pivot(index="seed", columns="arm", values="value")
        ratios = rounds.div(rounds["D"], axis=0).quantile([0.5, 0.25, 0.75]).T
        ratios.columns = ["over the MLM's, median", "lower quartile", "upper quartile"]
        return markdown(ratios.assign(seconds=rounds.median()).rename(TITLES))

    def lines(self, name, ylabel, what, panels):
        """Draws means over seeds, with standard deviations or, where there are few, each seed.

        Args:
            name: of the picture
            ylabel: label of the y-axis
            what: says in the caption what is drawn
            panels: {(title, label of the x-axis): {arm: seeds by x, a DataFrame}}

        Returns: Markdown, the picture with its caption
        """
        size = max(6.5, 1 + 3.4 * len(panels)), 3.8
        options = dict(sharey=True, squeeze=False, layout="constrained")
        figure, axes = plt.subplots(1, len(panels), figsize=size, **options)
        for axis, ((title, xlabel), frames) in zip(axes[0], panels.items()):
            for arm, frame in frames.items():
                draw_seeds(axis, arm, frame)
            axis.set(title=title, xlabel=xlabel)
            axis.grid(alpha=0.3)
        axes[0, 0].set_ylabel(ylabel)
        handles_and_labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(*handles_and_labels, loc="outside lower center", ncols=2)
        self.pictures[name] = figure
        seeds = []
        for frames in panels.values():
            seeds += [len(frame) for frame in frames.values()]
        fewest_to_most = " to ".join(map(str, sorted({min(seeds), max(seeds)})))
        caption = f"{what}; means and standard deviations over {fewest_to_most} seeds"
        if max(seeds) <= FEW_SEEDS:
            caption = f"{what}; lines are means of {fewest_to_most} seeds, open marks the seeds"
        return f"![{caption}](pictures/{name}.png)\n\n*{caption}.*\n\n"

    @functools.cached_property
    def tracked(self):
        """Fine-tuned scores from checkpoints within runs: {arm: seeds by updates}."""
        rows = self.records[self.records.task.isin(TRAJECTORY_TASKS)]
        rows = rows[(rows.feature == "fine-tuned") & (rows.metric == "accuracy")]
        rows = rows[rows.arm.isin(TRAJECTORIES) & (rows.seed <= 2)]
        return by_x(rows.astype({"updates": int}), "updates")

    @functools.cached_property
    def tuned(self):
        """The rank of text in the last layer by tenths of fine-tuning: {arm: seeds by tenths}."""
        is_tuning = self.final.task.str.startswith("fine-tuning ", na=False)
        rows = self.final[is_tuning & (self.final.layer == "12")]
        tenths = rows.task.str.extract(r"(\d+)/", expand=False).astype(int)
        return by_x(rows.assign(tenth=tenths), "tenth")

    def trajectories(self):
        """Fine-tuned scores from checkpoints within runs, against updates and time."""
        frames = self.tracked
        minutes = self.seconds.groupby("arm").value.median() / 60
        by_minutes = {}
        for arm, frame in frames.items():
            by_minutes[arm] = frame.set_axis(frame.columns * minutes[arm], axis=1)
        panels = {
            ("", "updates of pretraining"): frames,
            ("", "minutes of pretraining"): by_minutes,
        }
        what = "Fine-tuned accuracy by pretraining, mean of two tasks, dotted where the MLM ends"
        picture = self.lines("trajectories", "accuracy in percent", what, panels)
        for axis, panel in zip(self.pictures["trajectories"].axes, panels.values()):
            axis.axhline(panel["D"].mean().iloc[-1], color=COLORS["D"], linestyle=":")
            axis.axvline(panel["D"].columns[-1], color=COLORS["D"], linestyle=":")
        return f"{picture}{means(frames)}\n{self.claims(MLMS, 'A', ['earlier'])}"

    def tuning(self):
        """The ranks of the last layer during fine-tuning, from its start on."""
        frames = {}
        for arm, frame in self.tuned.items():
            start = self.by_layer(arm, "without_mask").iloc[:, -1].rename(0)
            frames[arm] = pd.concat([start, frame], axis=1, join="inner")
        panels = {("text without [MASK], last layer", "tenths of fine-tuning"): frames}
        what = "Ranks of the last layer during fine-tuning"
        picture = self.lines("tuning", "dimensions", what, panels)
        return f"{picture}{means(frames)}\n{self.claims(MLMS, 'A', ['tuned'])}"

    def pairs(self, pairs, tasks, feature, layer):
        """Differences of arms, paired by seed: a table with intervals and p."""
        rows = []
        for first, second in pairs:
            ours = self.values(first, tasks, feature, layer)
            theirs = self.values(second, tasks, feature, layer)
            seeds = ours.index.intersection(theirs.index)
            low = high = p = np.nan
            equivalent = ""
            if len(seeds) > 1:
                result = stats.ttest_rel(ours[seeds], theirs[seeds])
                low, high = result.confidence_interval(0.95)
            if len(seeds) >= LEAST:
                p = result.pvalue
                if (first, second) in EQUIVALENCE:
                    equivalent = equivalence(*result.confidence_interval(0.9))
            difference = f"{TITLES[first]} minus {TITLES[second]}"
            points = (ours - theirs).mean()
            rows.append([difference, len(seeds), points, low, high, p, equivalent])
        names = ["difference", "seeds", "points", "from", "to", "p", EQUIVALENT]
        return pd.DataFrame(rows, columns=names).set_index("difference")

    def pairs_of(self, groups):
        """The differences in TESTED or DESCRIBED: a DataFrame, whose column `on` has the key."""
        frames = []
        for on, (tasks, (feature, layer), pairs) in groups.items():
            frames.append(self.pairs(pairs, tasks, feature, layer).assign(on=on))
        return pd.concat(frames)

    @functools.cached_property
    def tested(self):
        """All planned tests, the first of which is primary, and what is only described.

        A DataFrame.
        """
        # Imported here, because it changes the filters of warnings.
        from statsmodels.stats.multitest import multipletests

        planned = self.pairs_of(TESTED)
        others = planned.p.iloc[1:].fillna(1)  # the correction also counts tests that are not run
        corrected = [planned.p.iloc[0], *multipletests(others, method="holm")[1]]
        planned.insert(5, "p, Holm", planned.p.where(planned.p.isna(), corrected))
        described = self.pairs_of(DESCRIBED).assign(p=np.nan)
        frame = pd.concat([planned, described]).reset_index()
        frame[EQUIVALENT] = frame[EQUIVALENT].where(frame.on.isin(SENSITIVE), "")
        p = frame["p, Holm"]
        conditions = [frame.seeds == 0, p.isna(), p >= 0.05, frame.points > 0]
        results = ["not run", "described", "not shown", "shown"]
        frame["result"] = np.select(conditions, results, "reversed")
        for name in ["p", "p, Holm"]:
            frame[name] = frame[name].map("{:.2g}".format).replace("nan", "")
        frame.loc[0, "p, Holm"] = ""  # the primary test is not corrected
        return frame

    def tests(self):
        """The planned tests, and the intervals of those with enough seeds drawn."""
        drawn = self.tested[self.tested.p != ""]
        is_order = drawn.on == "word order"
        self.pictures["differences"] = draw_differences(drawn[~is_order], drawn[is_order])
        picture = "![Differences of arms with 95% intervals](pictures/differences.png)"
        return f"{picture}\n\n{markdown(self.tested.set_index('on'))}"

    def summary(self):
        """What became of the paper's claims."""
        columns = {}
        for mlm in MLMS:
            rows = [self.main_claim(mlm), self.claim_without_trec(mlm)]
            rows += self.claims_of([mlm], "A", CLAIMS)
            cells = {}
            for claim, _, seeds, estimate, result in rows:
                cells[claim] = f"{estimate}; seeds: {seeds}; {result}"
            columns[TITLES[mlm]] = cells
        return markdown(pd.DataFrame(columns).fillna("not run").rename_axis("claim"))

    def main_claim(self, mlm):
        """The row of the main claim, as of `claims_of`."""
        difference = f"{TITLES['A']} minus {TITLES[mlm]}"
        row = self.tested.set_index(["on", "difference"]).loc["fine-tuned", difference]
        estimate = f"{with_interval(row)} points"
        if row.p:
            estimate += f", p {row['p, Holm'] or row.p}"
        return [MAIN_CLAIM, "", row.seeds, estimate, row.result]

    def claim_without_trec(self, mlm):
        """The row of the main claim without the questions that two tasks share."""
        difference = f"{TITLES['A']} minus {TITLES[mlm]}"
        row = self.tested.set_index(["on", "difference"]).loc[WITHOUT_TREC, difference]
        estimate = f"{with_interval(row)} points"
        return [MAIN_CLAIM_WITHOUT_TREC, "", row.seeds, estimate, row.result]

    def without_trec(self):
        """Differences of fine-tuned scores with and without the questions that two tasks share."""
        tasks_by_title = {"all six tasks": NATURAL}
        for left_out in ["trec_fine", "trec and trec_fine"]:
            tasks_by_title[f"without {left_out}"] = WITHOUT[left_out]
        _, _, pairs = TESTED["fine-tuned"]
        columns = {}
        for title, tasks in tasks_by_title.items():
            rows = self.pairs([*pairs, ("A", "D2")], tasks, *PRIMARY)
            columns[title] = [with_interval(row) for _, row in rows.iterrows()]
        return markdown(pd.DataFrame(columns, index=rows.index))

    def ranks_by_layer(self):
        """Ranks of text without [MASK] in some layers, means over seeds."""
        ranks = {arm: self.by_layer(arm, "without_mask") for arm in self.recorded(MAIN)}
        rows = {TITLES[arm]: seeds.mean() for arm, seeds in ranks.items()}
        table = pd.DataFrame.from_dict(rows, orient="index")[RANK_LAYERS]
        table.columns = ["embeddings", *(f"layer {layer}" for layer in RANK_LAYERS[1:])]
        return markdown(table.rename_axis("arm").map("{:.1f}".format))

    def gap(self, arm):
        """The ranks of text with [MASK] minus those of text without, seeds by layers."""
        return self.by_layer(arm, "with_mask") - self.by_layer(arm, "without_mask")

    def own(self, arm):
        """The dimensions of [MASK] outside those of real tokens, seeds by layers."""
        return self.by_layer(arm, "mask_tokens", "dimensions outside real tokens")

    def ranks_of(self, name, arms, titles, keys, mlms=MLMS, mae="A"):
        """Draws ranks by layer, and says what they show of the claims with these keys."""
        sources = {GAP: self.gap, OWN: self.own}
        for family, title in FAMILIES.items():
            sources[title] = functools.partial(self.by_layer, family=family)
        arms = [arm for arm in self.recorded(arms) if len(self.by_layer(arm, "without_mask"))]
        panels = {}
        for title in titles:
            panels[title, "layer (0: embeddings)"] = {arm: sources[title](arm) for arm in arms}
        what = f"Dimensions by layer: {', '.join(titles)}"
        return self.lines(name, "dimensions", what, panels) + self.claims(mlms, mae, keys)

    def lemma(self):
        return self.ranks_of("lemma", [*MLMS, "A"], [FAMILIES["mask_tokens"]], ["rises"])

    def theorem(self):
        return self.ranks_of("theorem", [*MLMS, "A"], [GAP, OWN], ["gap", "own"])

    def closing(self):
        titles = [FAMILIES["without_mask"], FAMILIES["with_mask"]]
        return self.ranks_of("closing", MAIN, titles, ["closes", "plain"])

    def old_ranks(self):
        keys = ["rises", "gap", "own", "closes", "plain"]
        return self.ranks_of("old-ranks", OLD, FAMILIES.values(), keys, ["mlm"], "mae_lm")

    def claims(self, mlms, mae, keys):
        """The table of `claims_of`."""
        columns = ["claim", "MLM", "seeds", "estimate", "result"]
        rows = self.claims_of(mlms, mae, keys)
        return markdown(pd.DataFrame(rows, columns=columns).set_index("claim"))

    def claims_of(self, mlms, mae, keys):
        """The rows of the claims with these keys: claim, MLM, seeds, estimate, result.

        Estimates have an interval over seeds. The main claim is not among them.
        """
        rows = []
        for mlm in mlms:
            values = self.values_of_claims(mlm, mae)
            for key in keys:
                of_seeds = values[key].dropna()
                if len(of_seeds):
                    rows.append([CLAIMS[key], TITLES[mlm], *verdict(of_seeds, key != "earlier")])
        return rows

    def values_of_claims(self, mlm, mae):
        """What is above 0 where a claim of MAE-LM and an MLM holds: {key: Series by seeds}."""
        masks = self.by_layer(mlm, "mask_tokens")
        plain_of_mlm = self.by_layer(mlm, "without_mask").iloc[:, -1]
        plain_of_mae = self.by_layer(mae, "without_mask").iloc[:, -1]
        tuned_gains = self.tuned.get(mae, EMPTY) - self.tuned.get(mlm, EMPTY)
        before_end_of_mae = self.tracked.get(mae, EMPTY).iloc[:, -2]
        end_of_mlm = self.tracked.get(mlm, EMPTY).iloc[:, -1]
        return {
            "rises": masks.iloc[:, -1] - masks.iloc[:, 0],
            "gap": self.gap(mlm).iloc[:, -1],
            "own": self.own(mlm).iloc[:, -1] - self.own(mae).iloc[:, -1],
            "closes": self.gap(mlm).iloc[:, -1] - self.gap(mae).iloc[:, -1],
            "plain": plain_of_mae - plain_of_mlm,
            "tuned": tuned_gains.mean(axis=1),
            "earlier": before_end_of_mae - end_of_mlm,
        }

    def continuing(self):
        """What continued MLMs score, each seed."""
        is_count = self.trial.metric == "count"
        scores = self.trial[self.trial.updates.isna() & ~is_count]
        names = scores.task.replace(TEXT, "bits per token") + ", " + scores.feature
        names[scores.task == "halves"] = "halves found, %"
        values = scores.assign(what=names).groupby(["what", "arm"]).value
        cells = values.agg(lambda seeds: ", ".join(f"{value:.2f}" for value in seeds))
        table = cells.unstack("arm").loc[names.unique(), scores.arm.unique()]
        counts = self.trial[is_count].drop_duplicates("task")
        sizes = " and ".join(f"{row.value:.0f} of {row.task}" for row in counts.itertuples())
        return f"{markdown(table.rename(columns=CONTINUED))}\nExamples: {sizes}.\n"


def read_if_there(path):
    """The table in a csv file; None if there is no such file."""
    return pd.read_csv(path) if path.exists() else None


def instruments():
    """The candidates for the instrument of the experiment: {title: (feature, layer)}."""
    candidates = dict(FEATURES)
    for layer in range(1, 12):
        candidates[f"layer {layer}"] = "mean", str(layer)
        candidates[f"`<s>`, layer {layer}"] = "first", str(layer)
    for shots in SHOTS:
        title = f"{shots} examples per class"
        candidates[title] = title, "chosen"
    candidates[SIX] = PRIMARY
    candidates[WORD_ORDER] = "mean", "chosen"
    return candidates


def scores_of_bag(path):
    """The recorded scores of a bag of words by task; an empty Series where there is no record."""
    if not path.exists():
        return pd.Series(dtype=float)
    rows = pd.read_csv(path)
    rows = rows[(rows.arm == BAG_OF_WORDS) & rows.metric.isin(SCORES)]
    return rows.groupby("task").value.mean()


def with_interval(row):
    """A difference of `Page.pairs` with its interval, as text."""
    return f"{row.points:+.2f} ({row['from']:+.2f} to {row.to:+.2f})"


def equivalence(low, high):
    """What a 90% interval says of equivalence, as two one-sided tests at 5% do."""
    is_within = -MARGIN < low and high < MARGIN
    result = "equivalent" if is_within else "not shown"
    return f"{result} ({low:.2f} to {high:.2f})"


def draw_seeds(axis, arm, frame):
    """Draws the mean over seeds of an arm, with standard deviations or each of a few seeds.

    `frame` has seeds by x.
    """
    x = frame.columns.astype(float)
    style = dict(color=COLORS[arm], marker=MARKERS[arm], label=TITLES[arm])
    if len(frame) > FEW_SEEDS:
        axis.errorbar(x, frame.mean(), frame.std(), markersize=4, capsize=2, **style)
        return
    axis.plot(x, frame.mean(), markersize=5, **style)
    for _, values in frame.iterrows():
        axis.plot(x, values, MARKERS[arm], color=COLORS[arm], markersize=5, fillstyle="none")


def draw_differences(natural, order):
    """A figure of differences with 95% intervals; those on word order have an axis of their own."""
    rows = [max(1, len(natural)), max(1, len(order))]
    size = 9, 2 + 0.32 * sum(rows)
    figure, axes = plt.subplots(2, figsize=size, height_ratios=rows, layout="constrained")
    count = int(natural.on.isin(SENSITIVE).sum())  # they come first
    axes[0].fill_betweenx([-0.6, count - 0.5], -MARGIN, MARGIN, color="0.92")
    for axis, frame in zip(axes, [natural, order]):
        places = range(len(frame))
        names = frame.on.where(frame.index > 0, "primary, fine-tuned")
        axis.axvline(0, color="0.5")
        axis.hlines(places, frame["from"], frame["to"])
        axis.plot(frame.points, places, "o")
        axis.set_yticks(places, names + ": " + frame.difference)
        axis.set_ylim(len(frame) - 0.4, -0.6)
    axes[0].set_xlabel("points on the natural tasks, with 95% intervals")
    axes[1].set_xlabel("points on word order, on a wider scale")
    figure.align_ylabels(axes)
    return figure


def by_x(rows, x):
    """Rows of records as {arm: seeds by the values of a column, a DataFrame}.

    The arms are in the order of ARMS.
    """
    names = set(rows.arm)
    frames = {}
    for arm in ARMS:
        if arm in names:
            of_arm = rows[rows.arm == arm]
            frames[arm] = of_arm.pivot_table(index="seed", columns=x, values="value")
    return frames


def means(frames):
    """The table of what `by_x` returned, means over tasks and seeds."""
    rows = {}
    for arm, frame in frames.items():
        rows[TITLES[arm]] = {"seeds": len(frame), **frame.mean().map("{:.2f}".format)}
    return markdown(pd.DataFrame(rows).T)


def mean_and_error(values):
    """Mean and standard error over seeds, as text; nan for none."""
    if not len(values):
        return np.nan
    text = f"{round(values.mean(), 9):.2f}"
    if len(values) > 1:
        text += f" ± {stats.sem(values):.2f}"
    return text


def verdict(values, is_rank=True):
    """What values of seeds show of a claim that they are above 0.

    Returns: the number of seeds, the mean with its interval as text, and the result as text
    """
    n = len(values)
    mean = round(values.mean(), 9)
    error = values.sem()
    unit = "dimensions" if is_rank else "points"
    if not error > 0:  # ranks are whole numbers: without any spread, no interval is known
        text = f"{mean:+.1f} {unit}"
        if n > 1:
            text += " in each seed"
        return n, text, "described"
    low, high = stats.t.interval(0.95, n - 1, mean, error)
    text = f"{mean:+.1f} ({low:+.1f} to {high:+.1f}) {unit}"
    if n < LEAST:
        return n, text, "described"
    if low > 0:
        return n, text, "shown"
    if high < 0:
        return n, text, "reversed"
    return n, text, "not shown"


def with_blocks(text, blocks):
    """The text of a page in which each block has what the method of its name returns."""

    def replace(match):
        return f"<!-- {match[1]} -->\n{getattr(blocks, match[1])().strip()}\n<!-- end -->"

    return re.sub(r"<!-- (\w+) -->\n.*?<!-- end -->", replace, text, flags=re.S)


def remake(page, records, pictures):
    """Writes the page with new blocks, and the pictures."""
    blocks = Page(records)
    text = with_blocks(page.read_text(encoding="utf-8"), blocks)
    pictures.mkdir(exist_ok=True)
    for name, figure in blocks.pictures.items():
        with atomic_write(pictures / f"{name}.png", "wb") as stream:
            figure.savefig(stream, dpi=110, metadata={"Software": None})
    with atomic_write(page) as stream:
        stream.write(text)


if __name__ == "__main__":
    run(lambda: remake(HERE / "RESULTS.md", HERE / "records", HERE / "pictures"))
