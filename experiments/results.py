"""The records of all encoders, and what is computed from them for each seed."""

import copy
import functools

import numpy as np
import pandas as pd

from arms import ARMS, PILOT_SEEDS, TRAJECTORIES
from maelm_fairseq.base.errors import MissingFileError
from maelm_fairseq.baselines.baseline_scores import BAG_OF_WORDS
from measure import TRAJECTORY_TASKS
from measurements import HELD_OUT_TEXT

PRIMARY_SCORE = "fine-tuned", "last"  # feature and layer of the instrument, which the pilots chose
SCORE_METRICS = ["accuracy", "100 x Pearson", "pearson"]


class Results:
    """The records, as tables, and the pictures that are drawn from them."""

    def __init__(self, folder):
        files = sorted([*folder.glob("*-*.csv"), *folder.glob("width256.csv.gz")])
        tables = [pd.read_csv(path, dtype={"seed": "Int64", "layer": str}) for path in files]
        if not tables:
            fault = "found no records, expected csv files that measure.py writes"
            raise MissingFileError(f"{folder}: {fault}")
        self.records = pd.concat(tables, ignore_index=True).drop_duplicates()
        self.trial = read_if_there(folder / "continuing.csv")
        self.seconds = read_if_there(folder / "seconds.csv")
        self.bag_of_words = scores_of_bag(folder / "bag_of_words.csv")
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
        rows = rows[rows.metric.isin(SCORE_METRICS)]
        counts = rows.groupby("seed").value.agg(["mean", "size"])
        return counts["mean"][counts["size"] == len(tasks)]

    def by_layer(self, arm, group, metric="rank"):
        """Ranks, or another metric of layers: a DataFrame of seeds by layers."""
        rows = self.final[self.final.task == HELD_OUT_TEXT]
        rows = rows.query("arm == @arm and feature == @group and metric == @metric")
        frame = rows.pivot(index="seed", columns="layer", values="value")
        frame = frame[sorted(frame, key=int)]
        if metric == "rank":
            return frame.replace(0, np.nan)  # 0 was recorded where there are no such tokens
        return frame

    def mask_rank_gap(self, arm):
        """The ranks of text with [MASK] minus those of text without, seeds by layers."""
        return self.by_layer(arm, "with_mask") - self.by_layer(arm, "without_mask")

    def mask_dimensions(self, arm):
        """The dimensions of [MASK] outside those of real tokens, seeds by layers."""
        return self.by_layer(arm, "mask_tokens", "dimensions outside real tokens")

    def recorded(self, arms):
        """Those of `arms` that have ranks or scores."""
        names = set(self.final.arm)
        return [arm for arm in arms if arm in names]

    @functools.cached_property
    def scores_by_update(self):
        """Fine-tuned scores from checkpoints within runs: {arm: seeds by updates}."""
        rows = self.records[self.records.task.isin(TRAJECTORY_TASKS)]
        rows = rows[(rows.feature == "fine-tuned") & (rows.metric == "accuracy")]
        rows = rows[rows.arm.isin(TRAJECTORIES) & (rows.seed <= 2)]
        return by_x(rows.astype({"updates": int}), "updates")

    @functools.cached_property
    def ranks_during_tuning(self):
        """The rank of text in the last layer by tenths of fine-tuning: {arm: seeds by tenths}."""
        is_tuning = self.final.task.str.startswith("fine-tuning ", na=False)
        rows = self.final[is_tuning & (self.final.layer == "12")]
        tenths = rows.task.str.extract(r"(\d+)/", expand=False).astype(int)
        return by_x(rows.assign(tenth=tenths), "tenth")


def read_if_there(path):
    """The table in a csv file; None if there is no such file."""
    return pd.read_csv(path) if path.exists() else None


def scores_of_bag(path):
    """The recorded scores of a bag of words by task; an empty Series where there is no record."""
    if not path.exists():
        return pd.Series(dtype=float)
    rows = pd.read_csv(path)
    rows = rows[(rows.arm == BAG_OF_WORDS) & rows.metric.isin(SCORE_METRICS)]
    return rows.groupby("task").value.mean()


def by_x(rows, x):
    """Rows of records as {arm: seeds by the values of a column, a DataFrame}.

    The arms are in the order of ARMS.
    """
    names = set(rows.arm)
    frames = {}
    for arm in ARMS:
        if arm in names:
            rows_of_arm = rows[rows.arm == arm]
            frames[arm] = rows_of_arm.pivot_table(index="seed", columns=x, values="value")
    return frames
