#!/usr/bin/env python3
"""Remakes the tables and pictures of RESULTS.md from the records alone.

python page.py            between <!-- NAME --> and <!-- end --> of the page stands what the function NAME returns
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

from arms import ARMS, FINE_TUNING_RATE, FINE_TUNING_RATES, PILOT_SEEDS, PILOTS, TRAJECTORIES, encoders
from maelm_fairseq.base.errors import MissingFileError, run
from maelm_fairseq.base.files import atomic_write
from maelm_fairseq.evaluation.few_shot import SHOTS
from maelm_fairseq.evaluation.report import markdown
from maelm_fairseq.evaluation.votes import BAG_OF_WORDS
from measure import NATURAL, ORDER, TEXT, TRAJECTORY_TASKS

HERE = Path(__file__).resolve().parent

PRIMARY = "fine-tuned", "last"  # feature and layer of the instrument, chosen by the pilots
MAIN = [name for name, arm in ARMS.items() if arm.seeds > 1]
ABLATIONS = [name for name, arm in ARMS.items() if arm.seeds == 1]
MLMS = ["D", "D2", "B"]  # that MAE-LM is compared with
MARGIN = 1.0  # points, of equivalence
EQUIVALENT = f"equivalent within {MARGIN:g} point (90% interval)"
LEAST = 4  # seeds of a test; fewer are described
# {what is tested: (tasks, (feature, layer), pairs of arms)}: the first is primary, the others are corrected (Holm).
TESTED = {
    "fine-tuned": (NATURAL, PRIMARY, [("A", "B"), ("A", "D"), ("A2", "D"), ("E", "D")]),
    "last layer": (NATURAL, ("mean", "last"), [("A", "B"), ("A", "D"), ("E", "D")]),
    "last but one": (NATURAL, ("mean", "11"), [("A", "B"), ("A", "D"), ("E", "D")]),
    "word order": (ORDER, ("mean", "chosen"), [("A", "B"), ("E", "D")]),
}
# Pairs that may be equivalent, where the instrument tells trained layers from new ones.
EQUIVALENCE = [("A", "B"), ("E", "D")]
SENSITIVE = ["fine-tuned", "word order"]
TREC = ["trec", "trec_fine"]  # the same questions
WITHOUT = {
    "trec_fine": [task for task in NATURAL if task != "trec_fine"],
    "rotten_tomatoes": [task for task in NATURAL if task != "rotten_tomatoes"],
    "trec and trec_fine": [task for task in NATURAL if task not in TREC],
}
WITHOUT_TREC = "fine-tuned, without trec and trec_fine"
DESCRIBED = {  # not planned, and not tested
    "fine-tuned": (NATURAL, PRIMARY, [("B", "D"), ("A", "D2"), ("D2", "D"), ("A2", "A")]),
    "fine-tuned, without trec_fine": (WITHOUT["trec_fine"], PRIMARY, [("A", "B"), ("A", "D"), ("A2", "D")]),
    WITHOUT_TREC: (
        WITHOUT["trec and trec_fine"],
        PRIMARY,
        [("A", "B"), ("A", "D"), ("A2", "D"), ("E", "D"), ("A", "D2")],
    ),
    "fine-tuned, without rotten_tomatoes": (WITHOUT["rotten_tomatoes"], PRIMARY, [("A", "D2"), ("D2", "D")]),
    "last layer": (NATURAL, ("mean", "last"), [("A2", "A")]),
    "`<s>`, last layer": (NATURAL, ("first", "last"), [("A2", "A")]),
    "word order": (ORDER, ("mean", "chosen"), [("A", "D")]),
}
OLD = dict(mlm="MLM, masks only", shared_long="shared layers, the MLM's compute", shared="shared layers")
OLD.update(mae_lm="MAE-LM", scratch="no pretraining")
TITLES = {**{name: arm.title for name, arm in ARMS.items()}, **OLD}
MAIN_CLAIM = "The main claim: fine-tuned, MAE-LM scores higher than the MLM"
MAIN_CLAIM_WITHOUT_TREC = "The same without the questions of trec and trec_fine"
CLAIMS = {  # of which the estimates are, positive where a claim holds; ranks are those of the last layer
    "rises": "Lemma 2.1, Figure 1b: in the MLM, [MASK] has a higher rank than in the embeddings",
    "gap": "Figure 1a: in the MLM, text with [MASK] has a higher rank than text without",
    "own": "Theorem 2.2: [MASK] has more dimensions outside those of real tokens in the MLM than in MAE-LM",
    "closes": "Figure 5a: text with [MASK] exceeds text without by more in the MLM than in MAE-LM",
    "plain": "Abstract: text without [MASK] has a higher rank in MAE-LM than in the MLM",
    "tuned": "Figure 5b: while it is fine-tuned, this rank is higher in MAE-LM than in the MLM",
    "earlier": "Figure 3: after three quarters of its updates, MAE-LM scores higher than the MLM at its end",
}
NOT_RUN = "Not run yet."
NO_BAG = "The bag of words has no record yet."
SCORES = ["accuracy", "100 x Pearson", "pearson"]
RANK_LAYERS = ["0", "1", "2", "3", "5", "8", "12"]
FEW_SEEDS = 2  # of which each is drawn, instead of a standard deviation
EMPTY = pd.DataFrame(columns=[1, 2], dtype=float)
FAMILIES = {"without_mask": "text without [MASK]", "with_mask": "text with [MASK]", "mask_tokens": "[MASK] itself"}
GAP, OWN = "text with [MASK] minus text without", "[MASK] outside real tokens"
SIX = "fine-tuned, all six tasks"
WORD_ORDER = "chosen layer, word order"
FEATURES = {  # {column: (feature, layer)}
    "chosen layer": ("mean", "chosen"),
    "last layer": ("mean", "last"),
    "`<s>`, last layer": ("first", "last"),
    "side by side": ("side_by_side", "last"),
    "fine-tuned": ("fine-tuned", "last"),
}
CONTINUED = dict(base="the RoBERTa", mlm="as an MLM", shared="all layers shared")
CONTINUED["shared-fade"] = "the same, fading"
COLORS = dict(zip(ARMS, plt.cm.tab10.colors))
COLORS.update(mlm=COLORS["D2"], shared_long="black", shared=COLORS["E"], mae_lm=COLORS["A"], scratch="0.6")
MARKERS = dict(zip(COLORS, itertools.cycle("os^DvPX")))


class Page:
    """What stands on the page, from a table of records."""

    def __init__(self, folder):
        files = sorted([*folder.glob("*-*.csv"), *folder.glob("width256.csv.gz")])
        apart = [folder / "continuing.csv", folder / "seconds.csv"]
        self.trial, self.seconds = (pd.read_csv(path) if path.exists() else None for path in apart)
        tables = [pd.read_csv(path, dtype={"seed": "Int64", "layer": str}) for path in files]
        if not tables:
            raise MissingFileError(f"{folder}: found no records, expected csv files that measure.py writes")
        self.records, self.pictures = pd.concat(tables, ignore_index=True).drop_duplicates(), {}
        self.bag = scores_of_bag(folder / "bag_of_words.csv")
        final = self.records[self.records.updates == self.records.groupby("arm").updates.transform("max")]
        is_pilot = final.seed.isin(PILOT_SEEDS)
        self.final, self.pilots = final[~is_pilot], copy.copy(self)
        self.pilots.final = final[is_pilot]

    def values(self, arm, tasks, feature, layer):
        """The mean over tasks for each seed; a Series, empty where any is missing."""
        rows = self.final.query("arm == @arm and task in @tasks and feature == @feature and layer == @layer")
        rows = rows[rows.metric.isin(SCORES)]
        counts = rows.groupby("seed").value.agg(["mean", "size"])
        return counts["mean"][counts["size"] == len(tasks)]

    def by_layer(self, arm, family, metric="rank"):
        """Seeds by layers of ranks, a DataFrame."""
        rows = self.final.query("arm == @arm and task == @TEXT and feature == @family and metric == @metric")
        frame = rows.pivot(index="seed", columns="layer", values="value")
        frame = frame[sorted(frame, key=int)]
        return frame.replace(0, np.nan) if metric == "rank" else frame  # 0 where there are no such tokens

    def recorded(self, arms):
        """Those of `arms` that have ranks or scores."""
        there = set(self.final.arm)
        return [arm for arm in arms if arm in there]

    # Blocks of the page

    def missing(self):
        there = {f"{arm}-{seed}" for arm, seed in self.records[["arm", "seed"]].dropna().itertuples(index=False)}
        names = [name for name in encoders() if name not in there]
        done = f"{len(encoders()) - len(names)} of {len(encoders())} encoders are recorded"
        return done + f"; missing: {', '.join(names)}." * bool(names)

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
        features = {FINE_TUNING_RATE: "fine-tuned", **{rate: f"fine-tuned, {rate}" for rate in FINE_TUNING_RATES}}
        found = {
            TITLES[arm]: {rate: self.pilots.values(arm, NATURAL, features[rate], "last").get(PILOT_SEEDS[0])
                          for rate in sorted(features, key=float)} for arm in PILOTS
        }  # fmt: skip
        return markdown(pd.DataFrame.from_dict(found, orient="index").rename_axis("arm").dropna(axis=1, how="all"))

    def instrument(self):
        """How well each candidate tells trained layers from newly initialised ones."""
        candidates, rows = dict(FEATURES), []
        for layer, (start, feature) in itertools.product(range(1, 12), {"": "mean", "`<s>`, ": "first"}.items()):
            candidates[f"{start}layer {layer}"] = feature, str(layer)
        candidates.update({f"{n} examples per class": (f"{n} examples per class", "chosen") for n in SHOTS})
        candidates.update({SIX: PRIMARY, WORD_ORDER: ("mean", "chosen")})
        tasks_of = {SIX: NATURAL, WORD_ORDER: ORDER}
        for title, (feature, layer) in candidates.items():
            tasks = tasks_of.get(title, WITHOUT["trec_fine"])  # whose classes are too small
            of = functools.partial(self.pilots.values, tasks=tasks, feature=feature, layer=layer)
            both = ([of(arm), of(f"{arm}-reset")] for arm in PILOTS)
            scores = pd.concat([pd.concat(each, axis=1, keys=["trained", "new"]) for each in both]).dropna()
            if len(gains := scores.trained - scores.new) > 1:
                rows.append([title, len(gains), *scores.mean(), gains.mean(), gains.mean() / stats.sem(gains)])
        names = ["features", "encoders", "trained", "new layers", "gain", "gain over its standard error"]
        return markdown(pd.DataFrame(rows, columns=names).set_index("features").sort_values(names[-1], ascending=False))

    def masked(self):
        """The scores of pilots with 15% and 30% of the tokens predicted."""
        first = copy.copy(self)
        first.final = self.pilots.final[self.pilots.final.seed == PILOT_SEEDS[0]]
        return first.scores_of([name for pilot in PILOTS for name in (f"{pilot}-masked15", pilot)])

    def scores_of(self, arms):
        rows = []
        for arm in self.recorded(arms):
            loss = self.final[(self.final.arm == arm) & (self.final.metric == "bits")].value
            row = {"arm": TITLES[arm], "bits": loss.mean() if len(loss) else np.nan}
            for title, (feature, layer) in FEATURES.items():
                row[title] = mean_and_error(self.values(arm, NATURAL, feature, layer))
            for title, tasks in {"word order": ORDER, "agreement": ["agreement"]}.items():
                row[title] = mean_and_error(self.values(arm, tasks, "mean", "chosen"))
            row["rank gap"] = f"{self.gap(arm).iloc[:, -1].mean():+.1f}"
            rows.append({"seeds": self.final[self.final.arm == arm].seed.nunique(), **row})
        is_fine_tuned = any(isinstance(row["fine-tuned"], str) for row in rows)  # else it is nan
        if is_fine_tuned and len(self.bag):
            mean = f"{self.bag[NATURAL].mean():.2f}"
            rows.append({"arm": BAG_OF_WORDS, "seeds": "", "fine-tuned": mean})
        return markdown(pd.DataFrame(rows).set_index("arm").dropna(axis=1, how="all")) if rows else NOT_RUN

    def by_task(self):
        """Fine-tuned scores of each task, means over seeds."""
        found = self.task_means()
        if len(self.bag):
            found.loc[BAG_OF_WORDS] = self.bag[NATURAL]
        return markdown(found)

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
        """Where the arms of the main experiment stand beside a bag of words."""
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
        rows = self.records[(self.records.metric == "bits") & (self.records.updates == last)]
        bits = rows[rows.arm.isin(["A", *ABLATIONS]) & (rows.seed == 1)].set_index("arm").value
        found = markdown(bits.rename(f"bits after {last:,} updates").rename(TITLES).to_frame())
        return f"{found}\n{self.scores_of(ABLATIONS)}" if self.recorded(ABLATIONS) else NOT_RUN

    def seconds_of_an_update(self):
        rounds = self.seconds.pivot(index="seed", columns="arm", values="value")
        ratios = rounds.div(rounds["D"], axis=0).quantile([0.5, 0.25, 0.75]).T
        ratios.columns = ["over the MLM's, median", "lower quartile", "upper quartile"]
        return markdown(ratios.assign(seconds=rounds.median()).rename(TITLES))

    def lines(self, name, ylabel, what, panels):
        """Draws means over seeds, with standard deviations or, where there are few, each seed.

        Returns Markdown with a caption that says `what` is drawn.

        Panels are {(title, label of the x-axis): {arm: seeds by x, a DataFrame}}.
        """
        size = max(6.5, 1 + 3.4 * len(panels)), 3.8
        figure, axes = plt.subplots(1, len(panels), figsize=size, sharey=True, squeeze=False, layout="constrained")
        for axis, ((title, xlabel), frames) in zip(axes[0], panels.items()):
            for arm, frame in frames.items():
                draw_seeds(axis, arm, frame)
            axis.set(title=title, xlabel=xlabel)
            axis.grid(alpha=0.3)
        axes[0, 0].set_ylabel(ylabel)
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        self.pictures[name] = figure
        seeds = [len(frame) for frames in panels.values() for frame in frames.values()]
        several = " to ".join(map(str, sorted({min(seeds), max(seeds)})))
        caption = f"{what}; means and standard deviations over {several} seeds"
        if max(seeds) <= FEW_SEEDS:
            caption = f"{what}; lines are means of {several} seeds, open marks the seeds"
        return f"![{caption}](pictures/{name}.png)\n\n*{caption}.*\n\n"

    @functools.cached_property
    def tracked(self):
        """Fine-tuned scores from checkpoints within runs: {arm: seeds by updates}."""
        rows = self.records[(self.records.feature == "fine-tuned") & self.records.task.isin(TRAJECTORY_TASKS)]
        rows = rows[rows.arm.isin(TRAJECTORIES) & (rows.seed <= 2) & (rows.metric == "accuracy")]
        return by_x(rows.astype({"updates": int}), "updates")

    @functools.cached_property
    def tuned(self):
        """The rank of text in the last layer by tenths of fine-tuning: {arm: seeds by tenths}."""
        rows = self.final[self.final.task.str.startswith("fine-tuning ", na=False) & (self.final.layer == "12")]
        return by_x(rows.assign(tenth=rows.task.str.extract(r"(\d+)/", expand=False).astype(int)), "tenth")

    def trajectories(self):
        """Fine-tuned scores from checkpoints within runs, against updates and time."""
        frames = self.tracked
        minutes = self.seconds.groupby("arm").value.median() / 60
        scaled = {arm: frame.set_axis(frame.columns * minutes[arm], axis=1) for arm, frame in frames.items()}
        panels = {("", "updates of pretraining"): frames, ("", "minutes of pretraining"): scaled}
        what = "Fine-tuned accuracy by pretraining, mean of two tasks, dotted where the MLM ends"
        picture = self.lines("trajectories", "accuracy in percent", what, panels)
        for axis, panel in zip(self.pictures["trajectories"].axes, panels.values()):
            axis.axhline(panel["D"].mean().iloc[-1], color=COLORS["D"], linestyle=":")
            axis.axvline(panel["D"].columns[-1], color=COLORS["D"], linestyle=":")
        return f"{picture}{means(frames)}\n{self.claims(MLMS, 'A', ['earlier'])}"

    def tuning(self):
        start = {arm: self.by_layer(arm, "without_mask").iloc[:, -1].rename(0) for arm in self.tuned}
        frames = {arm: pd.concat([start[arm], frame], axis=1, join="inner") for arm, frame in self.tuned.items()}
        panels = {("text without [MASK], last layer", "tenths of fine-tuning"): frames}
        picture = self.lines("tuning", "dimensions", "Ranks of the last layer during fine-tuning", panels)
        return f"{picture}{means(frames)}\n{self.claims(MLMS, 'A', ['tuned'])}"

    def pairs(self, pairs, tasks, feature, layer):
        """Differences of arms, paired by seed: a table with intervals and p."""
        rows = []
        for first, second in pairs:
            ours, theirs = (self.values(arm, tasks, feature, layer) for arm in (first, second))
            seeds = ours.index.intersection(theirs.index)
            row = [f"{TITLES[first]} minus {TITLES[second]}", len(seeds), (ours - theirs).mean(), *[np.nan] * 3, ""]
            if len(seeds) > 1:
                result = stats.ttest_rel(ours[seeds], theirs[seeds])
                row[3:5] = result.confidence_interval(0.95)
            if len(seeds) >= LEAST:
                row[5] = result.pvalue
                if (first, second) in EQUIVALENCE:
                    row[6] = equivalence(*result.confidence_interval(0.9))
            rows.append(row)
        names = ["difference", "seeds", "points", "from", "to", "p", EQUIVALENT]
        return pd.DataFrame(rows, columns=names).set_index("difference")

    @functools.cached_property
    def tested(self):
        """All planned tests, the first of which is primary: a DataFrame."""
        from statsmodels.stats.multitest import multipletests  # it changes the filters of warnings

        planned, described = (
            pd.concat(self.pairs(pairs, tasks, *of).assign(on=on) for on, (tasks, of, pairs) in group.items())
            for group in [TESTED, DESCRIBED]
        )
        corrected = [planned.p.iloc[0], *multipletests(planned.p.iloc[1:].fillna(1), method="holm")[1]]  # also of none
        planned.insert(5, "p, Holm", planned.p.where(planned.p.isna(), corrected))
        frame = pd.concat([planned, described.assign(p=np.nan)]).reset_index()
        frame[EQUIVALENT] = frame[EQUIVALENT].where(frame.on.isin(SENSITIVE), "")
        kinds = [frame.seeds == 0, frame["p, Holm"].isna(), frame["p, Holm"] >= 0.05, frame.points > 0]
        frame["result"] = np.select(kinds, ["not run", "described", "not shown", "shown"], "reversed")
        for name in ["p", "p, Holm"]:
            frame[name] = frame[name].map("{:.2g}".format).replace("nan", "")
        frame.loc[0, "p, Holm"] = ""  # of the primary test, which is not corrected
        return frame

    def tests(self):
        """The planned tests, and the intervals of those with enough seeds drawn."""
        drawn = self.tested[self.tested.p != ""]
        is_order = drawn.on == "word order"
        self.pictures["differences"] = draw_differences(drawn[~is_order], drawn[is_order])
        table = markdown(self.tested.set_index("on"))
        return f"![Differences of arms with 95% intervals](pictures/differences.png)\n\n{table}"

    def summary(self):
        """What became of the paper's claims."""
        tests, cells = self.tested.set_index(["on", "difference"]), {}
        for mlm in MLMS:
            test = tests.loc["fine-tuned", f"{TITLES['A']} minus {TITLES[mlm]}"]
            here = f"{with_interval(test)} points"
            here += f", p {test['p, Holm'] or test.p}" * bool(test.p)
            rows = [[MAIN_CLAIM, "", test.seeds, here, test.result]]
            rows.append(self.claim_without_trec(mlm))
            rows += self.claims_of([mlm], "A", CLAIMS)
            cells[TITLES[mlm]] = {claim: f"{here}; seeds: {n}; {result}" for claim, _, n, here, result in rows}
        return markdown(pd.DataFrame(cells).fillna("not run").rename_axis("claim"))

    def claim_without_trec(self, mlm):
        """The row of the main claim without the questions that two tasks share."""
        difference = f"{TITLES['A']} minus {TITLES[mlm]}"
        row = self.tested.set_index(["on", "difference"]).loc[WITHOUT_TREC, difference]
        estimate = f"{with_interval(row)} points"
        return [MAIN_CLAIM_WITHOUT_TREC, "", row.seeds, estimate, row.result]

    def without_trec(self):
        """Differences of fine-tuned scores with and without the questions that two tasks share."""
        means = {"all six tasks": NATURAL}
        for left in ["trec_fine", "trec and trec_fine"]:
            means[f"without {left}"] = WITHOUT[left]
        _, _, pairs = TESTED["fine-tuned"]
        columns = {}
        for title, tasks in means.items():
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
        of = {title: functools.partial(self.by_layer, family=family) for family, title in FAMILIES.items()}
        of.update({GAP: self.gap, OWN: self.own})
        arms = [arm for arm in self.recorded(arms) if len(self.by_layer(arm, "without_mask"))]
        drawn = {(title, "layer (0: embeddings)"): {arm: of[title](arm) for arm in arms} for title in titles}
        what = f"Dimensions by layer: {', '.join(titles)}"
        return self.lines(name, "dimensions", what, drawn) + self.claims(mlms, mae, keys)

    lemma = functools.partialmethod(ranks_of, "lemma", [*MLMS, "A"], [FAMILIES["mask_tokens"]], ["rises"])
    theorem = functools.partialmethod(ranks_of, "theorem", [*MLMS, "A"], [GAP, OWN], ["gap", "own"])
    closing = functools.partialmethod(ranks_of, "closing", MAIN, [*FAMILIES.values()][:2], ["closes", "plain"])
    old_ranks = functools.partialmethod(ranks_of, "old-ranks", OLD, FAMILIES.values(), [*CLAIMS][:5], ["mlm"], "mae_lm")

    def claims(self, *of):
        columns = ["claim", "MLM", "seeds", "estimate", "result"]
        return markdown(pd.DataFrame(self.claims_of(*of), columns=columns).set_index("claim"))

    def claims_of(self, mlms, mae, keys):
        """Claims but the main one: rows of claim, MLM, seeds, estimate with an interval over seeds, result."""
        rows = []
        for mlm in mlms:
            masks, plain, other = (self.by_layer(*of) for of in [
                (mlm, "mask_tokens"), (mlm, "without_mask"), (mae, "without_mask")])  # fmt: skip
            tuned, tracked = ([of.get(arm, EMPTY) for arm in (mae, mlm)] for of in (self.tuned, self.tracked))
            values = {
                "rises": masks.iloc[:, -1] - masks.iloc[:, 0],
                "gap": self.gap(mlm).iloc[:, -1],
                "own": self.own(mlm).iloc[:, -1] - self.own(mae).iloc[:, -1],
                "closes": self.gap(mlm).iloc[:, -1] - self.gap(mae).iloc[:, -1],
                "plain": other.iloc[:, -1] - plain.iloc[:, -1],
                "tuned": (tuned[0] - tuned[1]).mean(axis=1),
                "earlier": tracked[0].iloc[:, -2] - tracked[1].iloc[:, -1],
            }
            there = {key: found for key in keys if len(found := values[key].dropna())}
            rows += [[CLAIMS[key], TITLES[mlm], *verdict(found, key != "earlier")] for key, found in there.items()]
        return rows

    def continuing(self):
        """What continued MLMs score, each seed."""
        trial, counts = self.trial[self.trial.updates.isna()], self.trial[self.trial.metric == "count"]
        trial = trial[trial.metric != "count"]
        names = trial.task.replace(TEXT, "bits per token") + ", " + trial.feature
        names[trial.task == "halves"] = "halves found, %"
        values = trial.assign(what=names).groupby(["what", "arm"]).value
        cells = values.agg(lambda seeds: ", ".join(f"{value:.2f}" for value in seeds)).unstack("arm")
        sizes = " and ".join(f"{row.value:.0f} of {row.task}" for row in counts.drop_duplicates("task").itertuples())
        note = f"\nExamples: {sizes}.\n"
        return markdown(cells.loc[names.unique(), trial.arm.unique()].rename(columns=CONTINUED)) + note


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
    """What a 90% interval says of equivalence; two one-sided tests at 5% say the same."""
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
    """Rows of records as {arm: seeds by the values of a column, a DataFrame}, in the order of the arms."""
    there = [arm for arm in ARMS if arm in set(rows.arm)]
    return {arm: rows[rows.arm == arm].pivot_table(index="seed", columns=x, values="value") for arm in there}


def means(frames):
    """The table of what `by_x` gave, means over tasks and seeds."""
    rows = {TITLES[arm]: {"seeds": len(frame), **frame.mean().map("{:.2f}".format)} for arm, frame in frames.items()}
    return markdown(pd.DataFrame(rows).T)


def mean_and_error(values):
    """Mean and standard error over seeds, as text; nan for none."""
    if not len(values):
        return np.nan
    return f"{round(values.mean(), 9):.2f}" + (f" ± {stats.sem(values):.2f}" if len(values) > 1 else "")


def verdict(values, is_rank=True):
    """Seeds, the mean with its interval, and what it shows of a claim that the values are above 0."""
    n, mean, error, unit = len(values), round(values.mean(), 9), values.sem(), "dimensions" if is_rank else "points"
    if not error > 0:  # ranks are whole numbers: without any spread, no interval is known
        return n, f"{mean:+.1f} {unit}" + " in each seed" * (n > 1), "described"
    low, high = stats.t.interval(0.95, n - 1, mean, error)
    result = "described" if n < LEAST else "shown" if low > 0 else "reversed" if high < 0 else "not shown"
    return n, f"{mean:+.1f} ({low:+.1f} to {high:+.1f}) {unit}", result


def with_blocks(text, blocks):
    """A page in which each block has what the method of its name returns."""

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
