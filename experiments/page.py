#!/usr/bin/env python3
"""Remakes the tables and pictures of RESULTS.md from the records alone.

python page.py            between <!-- NAME --> and <!-- end --> of the page stands what the function NAME returns
"""

import re
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy import stats

from arms import ARMS, PILOT_SEEDS, PILOTS, TRAJECTORIES, encoders
from maelm_fairseq.base.errors import MissingFileError, Parser, run
from maelm_fairseq.base.files import atomic_write
from measure import NATURAL, ORDER, PARTS, TEXT, TRAJECTORY_TASKS

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "recipes"))
from evaluation.few_shot import SHOTS  # noqa: E402
from evaluation.report import markdown  # noqa: E402

PRIMARY = None  # (feature, layer) of the instrument; set from the pilots before the main runs
MAIN = [name for name, arm in ARMS.items() if arm.seeds]
MARGIN = 1.0  # points, of equivalence
LEAST = 4  # seeds of a test; fewer are described
# {what is tested: (tasks, (feature, layer) or None for PRIMARY, pairs of arms)}: the first is primary, the others
# are corrected (Holm).
TESTED = {
    "primary instrument": (NATURAL, None, [("A", "B"), ("A", "D"), ("A2", "D"), ("E", "D")]),
    "last layer": (NATURAL, ("mean", "last"), [("A", "B"), ("A", "D"), ("E", "D")]),
    "last but one": (NATURAL, ("mean", "11"), [("A", "B"), ("A", "D"), ("E", "D")]),
    "word order": (ORDER, ("mean", "chosen"), [("A", "B"), ("E", "D")]),
}
EQUIVALENCE = [("A", "B"), ("E", "D")]
OLD = {
    "mlm": "MLM, masks only",
    "shared_long": "shared layers, the MLM's compute",
    "shared": "shared layers",
    "mae_lm": "MAE-LM",
    "scratch": "no pretraining",
}
OLD_PAIRS = [("shared_long", "mlm"), ("shared", "mlm"), ("mae_lm", "mlm"), ("shared", "mae_lm"), ("mlm", "scratch")]
TITLES = {**{name: arm.title for name, arm in ARMS.items()}, **OLD}
FAMILIES = {"without_mask": "text without [MASK]", "with_mask": "text with [MASK]", "mask_tokens": "[MASK] itself"}
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
    "shared-fade": "all layers shared, masks fading",
}
COLORS = dict(zip([*OLD, *ARMS], [*plt.cm.tab10.colors[:5], *plt.cm.tab10.colors]))


class Page:
    """What stands on the page, from a table of records."""

    def __init__(self, folder):
        files = sorted([*folder.glob("*.csv"), *folder.glob("width256.csv.gz")])
        apart = [folder / name for name in ["continuing.csv", "seconds.csv", "fading.csv"]]
        self.trial, self.seconds, _ = (pd.read_csv(path) if path in files else None for path in apart)
        tables = [pd.read_csv(path, dtype={"layer": str}) for path in files if path not in apart]
        if not tables:
            raise MissingFileError(f"{folder}: found no records, expected csv files that measure.py writes")
        self.records, self.pictures = pd.concat(tables, ignore_index=True), {}
        final = self.records[self.records.updates == self.records.groupby("arm").updates.transform("max")]
        is_pilot = final.seed.isin(PILOT_SEEDS)
        self.final, self.pilots = final[~is_pilot], final[is_pilot]

    def values(self, arm, tasks, feature, layer, table=None):
        """The mean over tasks for each seed; a Series, empty where any is missing. Without pilots, but for `table`."""
        rows = self.final if table is None else table
        rows = rows[(rows.arm == arm) & rows.task.isin(tasks) & (rows.feature == feature)]
        rows = rows[(rows.layer == layer) & rows.metric.isin(["accuracy", "100 x Pearson", "pearson"])]
        counts = rows.groupby("seed").value.agg(["mean", "size"])
        return counts["mean"][counts["size"] == len(tasks)]

    def by_layer(self, arm, family, metric="rank"):
        """Seeds by layers of ranks, a DataFrame."""
        rows = self.final[(self.final.arm == arm) & (self.final.task == TEXT) & (self.final.feature == family)]
        frame = rows[rows.metric == metric].pivot(index="seed", columns="layer", values="value")
        return frame[sorted(frame, key=int)]

    def recorded(self, arms):
        """Those of `arms` that have ranks or scores."""
        there = set(self.final.arm)
        return [arm for arm in arms if arm in there]

    # Blocks of the page

    def missing(self):
        there = {f"{arm}-{seed}" for arm, seed in self.records[["arm", "seed"]].dropna().itertuples(index=False)}
        names = [name for name in encoders() if name not in there]
        done = len(encoders()) - len(names)
        return f"{done} of {len(encoders())} encoders are recorded" + f"; missing: {', '.join(names)}." * bool(names)

    def rates(self):
        """The losses of the pilots with different learning rates."""
        rows = self.pilots[self.pilots.arm.str.contains("-lr") & (self.pilots.metric == "bits")]
        if not len(rows):
            return "Not run yet."
        parts = rows.arm.str.extract("(.*)-lr(.*)")
        rows = rows.assign(arm=parts[0].map(TITLES), rate=parts[1])
        frame = rows.pivot_table(index="arm", columns="rate", values="value")
        return markdown(frame[sorted(frame, key=float)])

    def instrument(self):
        """How well each candidate tells trained layers from newly initialised ones."""
        candidates, rows = [(title, NATURAL, *of) for title, of in FEATURES.items()], []
        for layer in map(str, range(1, 13)):
            candidates.append((f"layer {layer}", NATURAL, "mean", layer))
            candidates.append((f"`<s>`, layer {layer}", NATURAL, "first", layer))
        few = [task for task in NATURAL if task != "trec_fine"]  # which has 50 classes
        for feature in [f"{shots} examples per class" for shots in SHOTS]:
            candidates.append((feature, few, feature, "chosen"))
        for title, tasks, feature, layer in candidates:
            gains = []
            for arm in PILOTS:
                names = arm, f"{arm}-reset"
                trained, reset = (self.values(name, tasks, feature, layer, self.pilots) for name in names)
                gains += (trained - reset).dropna().tolist()
            if len(gains) > 1:
                rows.append([title, len(gains), np.mean(gains), np.mean(gains) / stats.sem(gains)])
        if not rows:
            return "Not measured yet."
        frame = pd.DataFrame(rows, columns=["features", "encoders", "points gained", "gain over its standard error"])
        return markdown(frame.set_index("features").sort_values(frame.columns[-1], ascending=False))

    def masked(self):
        """The scores of pilots with 15% and 30% of the tokens predicted."""
        rows = {}
        for arm in [name for pilot in PILOTS for name in (f"{pilot}-masked15", pilot)]:
            values = {title: self.values(arm, NATURAL, *of, self.pilots) for title, of in FEATURES.items()}
            if PILOT_SEEDS[0] in values["fine-tuned"]:
                rows[TITLES[arm]] = {title: each.get(PILOT_SEEDS[0]) for title, each in values.items()}
        if not rows:
            return "Not measured yet."
        return markdown(pd.DataFrame.from_dict(rows, orient="index").rename_axis("arm"))

    def scores_of(self, arms):
        rows = []
        for arm in self.recorded(arms):
            loss = self.final[(self.final.arm == arm) & (self.final.metric == "bits")].value
            row = {"arm": TITLES[arm], "bits": loss.mean() if len(loss) else np.nan}
            for title, (feature, layer) in FEATURES.items():
                row[title] = mean_and_error(self.values(arm, NATURAL, feature, layer))
            for title, tasks in {"word order": ORDER, "agreement": ["agreement"]}.items():
                row[title] = mean_and_error(self.values(arm, tasks, "mean", "chosen"))
            rows.append({"seeds": self.final[self.final.arm == arm].seed.nunique(), **row})
        return markdown(pd.DataFrame(rows).set_index("arm").dropna(axis=1, how="all")) if rows else "Not run yet."

    def scores(self):
        return self.scores_of(MAIN)

    def old_scores(self):
        return self.scores_of(OLD)

    def fractions(self):
        """Scores and the gap of ranks by the fraction of masks that the encoder sees."""
        arms, rows = self.recorded(["A", "C", "B"]), []
        if len(arms) < 2:
            return "Not run yet."
        for arm in arms:
            gap = self.by_layer(arm, "with_mask").iloc[:, -1] - self.by_layer(arm, "without_mask").iloc[:, -1]
            cells = {title: mean_and_error(self.values(arm, NATURAL, *FEATURES[title])) for title in FEATURES}
            rows.append({"arm": TITLES[arm], "seeds": len(gap), **cells, "rank gap, last layer": f"{gap.mean():+.1f}"})
        return markdown(pd.DataFrame(rows).set_index("arm"))

    def trajectories(self):
        """Fine-tuned scores from checkpoints within runs, against updates and time; dotted, where the MLM ends."""
        rows = self.records[(self.records.feature == "fine-tuned") & self.records.task.isin(TRAJECTORY_TASKS)]
        rows = rows[rows.arm.isin(TRAJECTORIES) & (rows.seed <= 2) & (rows.metric == "accuracy")]
        if rows.groupby("arm").updates.nunique().max() in (1, np.nan):
            return "Not run yet."
        frame = rows.pivot_table(index="arm", columns="updates", values="value")
        panels = {"updates of pretraining": dict.fromkeys(TRAJECTORIES, 1)}
        if self.seconds is not None:
            panels["minutes of pretraining"] = self.seconds.groupby("arm").value.median() / 60
        figure, axes = plt.subplots(1, len(panels), figsize=(5.5 * len(panels), 3.6), sharey=True, squeeze=False,
                                    layout="constrained")  # fmt: skip
        for axis, (title, scale) in zip(axes[0], panels.items()):
            for arm, scores in frame.iterrows():
                axis.plot(frame.columns * scale[arm], scores, "o-", label=TITLES[arm], color=COLORS[arm])
            if "D" in frame.index:
                axis.axhline(frame.loc["D"].iloc[-1], color=COLORS["D"], linestyle=":")
                axis.axvline(frame.columns[-1] * scale["D"], color=COLORS["D"], linestyle=":")
            axis.set(xlabel=title)
            axis.grid(alpha=0.3)
        axes[0, 0].set_ylabel("fine-tuned, accuracy")
        axes[0, 0].legend()
        self.pictures["trajectories"] = figure
        table = markdown(frame.rename(index=TITLES))
        return f"![Fine-tuned accuracy by updates and minutes of pretraining](pictures/trajectories.png)\n\n{table}"

    def tuning(self):
        """The rank of text in the last layer during fine-tuning, by tenths."""
        rows = self.final[self.final.task.str.startswith("fine-tuning ", na=False) & (self.final.layer == "12")]
        if not len(rows):
            return "Not run yet."
        rows = rows.assign(tenth=rows.task.str.extract(r"(\d+)/", expand=False).astype(int))
        frame = rows.pivot_table(index="arm", columns="tenth", values="value").rename(index=TITLES)
        return markdown(frame.rename(columns=lambda tenth: f"{tenth}/{PARTS}"))

    def pairs(self, pairs, tasks, feature, layer):
        """Differences of arms, paired by seed: table with intervals and p."""
        from statsmodels.stats.weightstats import ttost_paired  # here, since it changes the filters of warnings

        rows = []
        for first, second in pairs:
            ours, theirs = (self.values(arm, tasks, feature, layer) for arm in (first, second))
            seeds = ours.index.intersection(theirs.index)
            row = [f"{TITLES[first]} minus {TITLES[second]}", len(seeds), np.nan, "", np.nan, ""]
            if len(seeds) > 1:
                result = stats.ttest_rel(ours[seeds], theirs[seeds])
                low, high = result.confidence_interval(0.95)
                row[2:4] = [(ours - theirs)[seeds].mean(), f"{low:+.2f} to {high:+.2f}"]
            if len(seeds) >= LEAST:
                row[4] = result.pvalue
                if (first, second) in EQUIVALENCE:
                    same = ttost_paired(ours[seeds].to_numpy(), theirs[seeds].to_numpy(), -MARGIN, MARGIN)[0]
                    row[5] = "equivalent" if same < 0.05 else "not shown to be equivalent"
            rows.append(row)
        names = ["difference", "seeds", "points", "95% interval", "p", f"within {MARGIN:g} point"]
        return pd.DataFrame(rows, columns=names).set_index("difference")

    def tests(self):
        from statsmodels.stats.multitest import multipletests

        if PRIMARY is None:
            return "The instrument is not chosen yet."
        frames = [
            self.pairs(pairs, tasks, *of or PRIMARY).assign(on=what) for what, (tasks, of, pairs) in TESTED.items()
        ]
        frame = pd.concat(frames).reset_index().set_index("on")
        secondary = np.flatnonzero(frame.p.notna() & (np.arange(len(frame)) > 0))
        frame["p, Holm"] = np.nan
        if len(secondary):
            frame.iloc[secondary, -1] = multipletests(frame.p.iloc[secondary], method="holm")[1]
        return markdown(frame)

    def old_tests(self):
        parts = {"Natural tasks, chosen layer": (NATURAL, "mean", "chosen"), "Last layer": (NATURAL, "mean", "last"),
                 "Word order, chosen layer": (ORDER, "mean", "chosen")}  # fmt: skip
        frames = {title: self.pairs(OLD_PAIRS, *part).iloc[:, :3] for title, part in parts.items()}
        return "\n".join(f"{title}:\n\n{markdown(frame)}" for title, frame in frames.items())

    def ranks_of(self, arms, name):
        """The ranks of three families by layer, a picture and a table of means over seeds."""
        arms, rows = [arm for arm in self.recorded(arms) if len(self.by_layer(arm, "without_mask"))], []
        if not arms:
            return "Not run yet."
        figure, axes = plt.subplots(1, len(FAMILIES), figsize=(11, 3.6), sharey=True, layout="constrained")
        for axis, (family, title) in zip(axes, FAMILIES.items()):
            for arm in arms:
                frame = self.by_layer(arm, family)
                rows.append([TITLES[arm], title, *(f"{value:.1f}" for value in frame.mean())])
                drawn = frame.mean().replace(0, np.nan)
                axis.errorbar(drawn.index.astype(int), drawn, frame.std(), label=TITLES[arm], color=COLORS[arm],
                              marker="o", markersize=3, capsize=2)  # fmt: skip
            axis.set(title=title, xlabel="layer (0: embeddings)")
            axis.grid(alpha=0.3)
        axes[0].set_ylabel("effective rank, $\\tau$ = 0.9")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        self.pictures[name] = figure
        columns = ["arm", "tokens", *(f"layer {layer}" for layer in frame)]
        table = markdown(pd.DataFrame(rows, columns=columns).set_index("arm"))
        return f"![Effective ranks by layer; means and standard deviations over seeds](pictures/{name}.png)\n\n{table}"

    def ranks(self):
        return self.ranks_of(MAIN, "ranks")

    def old_ranks(self):
        return self.ranks_of(OLD, "ranks-width256")

    def claims_of(self, mlm, mae):
        """The paper's claims on ranks: estimate for the last layer with an interval over seeds."""
        if {mlm, mae} - set(self.recorded([mlm, mae])):
            return "Not run yet."
        ranks = {(arm, family): self.by_layer(arm, family) for arm in (mlm, mae) for family in FAMILIES}
        gap = {arm: ranks[arm, "with_mask"] - ranks[arm, "without_mask"] for arm in (mlm, mae)}
        own = {arm: self.by_layer(arm, "mask_tokens", "dimensions outside real tokens") for arm in (mlm, mae)}
        rises = ranks[mlm, "mask_tokens"].iloc[:, -1] - ranks[mlm, "mask_tokens"].iloc[:, 0]
        plain = ranks[mae, "without_mask"].iloc[:, -1] - ranks[mlm, "without_mask"].iloc[:, -1]
        claims = {
            "Lemma 2.1, Figure 1b: the MLM's [MASK] has a higher rank in the last layer than in the embeddings": rises,
            "Figure 1a: the MLM's text with [MASK] has a higher rank than text without, in the last layer":
                gap[mlm].iloc[:, -1],
            "Theorem 2.2: the MLM's [MASK] has more dimensions outside those of real tokens than MAE-LM's, in the last "
            "layer": own[mlm].iloc[:, -1] - own[mae].iloc[:, -1],
            "Figure 5a: that gap is smaller in MAE-LM, in the last layer": gap[mlm].iloc[:, -1] - gap[mae].iloc[:, -1],
            "Abstract: MAE-LM's text without [MASK] has a higher rank than the MLM's, in the last layer": plain,
        }  # fmt: skip
        rows = [[claim, *verdict(values.dropna())] for claim, values in claims.items()]
        return markdown(pd.DataFrame(rows, columns=["claim", "seeds", "measured", "result"]).set_index("claim"))

    def claims(self):
        mlms = [mlm for mlm in self.recorded(["D", "B"]) if self.recorded(["A"])]
        tables = [f"The MLM is that of arm {mlm}, {TITLES[mlm]}:\n\n{self.claims_of(mlm, 'A')}" for mlm in mlms]
        return "\n".join(tables) or "Not run yet."

    def continuing(self):
        """What continued MLMs score, each seed."""
        if self.trial is None:
            return "Not run yet."
        trial, counts = self.trial[self.trial.updates.isna()], self.trial[self.trial.metric == "count"]
        trial = trial[trial.metric != "count"]
        names = trial.task.replace(TEXT, "bits per token") + ", " + trial.feature
        names[trial.task == "halves"] = "halves found, %"
        values = trial.assign(what=names).groupby(["what", "arm"]).value
        cells = values.agg(lambda seeds: ", ".join(f"{value:.2f}" for value in seeds)).unstack("arm")
        bits = self.trial[(self.trial.arm == "base") & (self.trial.metric == "bits")]
        learned = ", ".join(f"{row.value:g} bits after {row.updates:,.0f} updates" for row in bits.itertuples())
        sizes = " and ".join(f"{row.value:.0f} of {row.task}" for row in counts.drop_duplicates("task").itertuples())
        note = f"\nValidation of the RoBERTa, on film reviews: {learned}. Examples: {sizes}.\n"
        return markdown(cells.loc[names.unique(), trial.arm.unique()].rename(columns=CONTINUED)) + note

    def old_claims(self):
        return self.claims_of("mlm", "mae_lm")


def mean_and_error(values):
    """Mean and standard error over seeds, as text; nan for none."""
    if not len(values):
        return np.nan
    return f"{values.mean():.2f}" + (f" ± {stats.sem(values):.2f}" if len(values) > 1 else "")


def verdict(values):
    """Seeds, the mean with its interval, and what it shows of a claim that the values are above 0."""
    if len(values) < LEAST:
        return len(values), f"{values.mean():+.1f}", "described"
    low, high = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values)) if values.std() else (
        values.mean(), values.mean())  # fmt: skip
    result = "shown" if low > 0 else "reversed" if high < 0 else "not shown"
    return len(values), f"{values.mean():+.1f} ({low:+.1f} to {high:+.1f})", result


def remake(page, records, pictures):
    """Writes the page with new blocks, and the pictures."""
    blocks, text = Page(records), page.read_text(encoding="utf-8")

    def replace(match):
        return f"<!-- {match[1]} -->\n{getattr(blocks, match[1])().strip()}\n<!-- end -->"

    text = re.sub(r"<!-- (\w+) -->\n.*?<!-- end -->", replace, text, flags=re.S)
    pictures.mkdir(exist_ok=True)
    for name, figure in blocks.pictures.items():
        with atomic_write(pictures / f"{name}.png", "wb") as stream:
            figure.savefig(stream, dpi=110, metadata={"Software": None})
    with atomic_write(page) as stream:
        stream.write(text)


def main():
    parser = Parser(description=__doc__)
    parser.parse_args()
    remake(HERE / "RESULTS.md", HERE / "records", HERE / "pictures")


if __name__ == "__main__":
    run(main)
