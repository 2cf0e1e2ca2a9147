"""Sections of the page on scores: of arms, of tasks, of a bag of words; and what updates cost."""

import numpy as np
import pandas as pd
from scipy import stats

from arms import ARMS
from maelm_fairseq.baselines.baseline_scores import BAG_OF_WORDS
from maelm_fairseq.evaluation.report import frame_to_markdown
from measure import NATURAL_TASKS, WORD_ORDER_TASKS
from page_arms import ABLATIONS, ARM_TITLES, MAIN, OLD
from results import PRIMARY_SCORE

NOT_RUN = "Not run yet."
NO_BAG = "The bag of words has no record yet."
FEATURE_OF_COLUMN = {  # {column: (feature, layer)}
    "chosen layer": ("mean", "chosen"),
    "last layer": ("mean", "last"),
    "`<s>`, last layer": ("first", "last"),
    "side by side": ("side_by_side", "last"),
    "fine-tuned": ("fine-tuned", "last"),
}


def scores(results):
    """Losses, scores and ranks of the main experiment."""
    return score_table(results, MAIN)


def old_scores(results):
    """Losses, scores and ranks of the older, smaller encoders."""
    return score_table(results, OLD)


def score_table(results, arms):
    """The table of losses, scores and ranks of some arms, means over seeds."""
    rows = [score_row(results, arm) for arm in results.recorded(arms)]
    if not rows:
        return NOT_RUN
    is_fine_tuned = any(isinstance(row["fine-tuned"], str) for row in rows)  # else it is nan
    if is_fine_tuned and len(results.bag_of_words):
        mean = f"{results.bag_of_words[NATURAL_TASKS].mean():.2f}"
        rows.append({"arm": BAG_OF_WORDS, "seeds": "", "fine-tuned": mean})
    return frame_to_markdown(pd.DataFrame(rows).set_index("arm").dropna(axis=1, how="all"))


def score_row(results, arm):
    """The row of an arm in the table of `score_table`."""
    rows_of_arm = results.final[results.final.arm == arm]
    loss = rows_of_arm[rows_of_arm.metric == "bits"].value
    row = {"seeds": rows_of_arm.seed.nunique(), "arm": ARM_TITLES[arm]}
    row["bits"] = loss.mean() if len(loss) else np.nan
    for title, (feature, layer) in FEATURE_OF_COLUMN.items():
        row[title] = mean_and_error(results.values(arm, NATURAL_TASKS, feature, layer))
    for title, tasks in {"word order": WORD_ORDER_TASKS, "agreement": ["agreement"]}.items():
        row[title] = mean_and_error(results.values(arm, tasks, "mean", "chosen"))
    row["rank gap"] = f"{results.mask_rank_gap(arm).iloc[:, -1].mean():+.1f}"
    return row


def by_task(results):
    """Fine-tuned scores of each task, means over seeds."""
    means_by_task = task_means(results)
    if len(results.bag_of_words):
        means_by_task.loc[BAG_OF_WORDS] = results.bag_of_words[NATURAL_TASKS]
    return frame_to_markdown(means_by_task)


def baseline(results):
    """How the arms of the main experiment compare with a bag of words."""
    arms = task_means(results)
    arms.insert(0, "mean", arm_means(results))
    best, worst = arms["mean"].max(), arms["mean"].min()
    scores_of_arms = f"the fine-tuned arms of the main experiment {worst:.1f} to {best:.1f}"
    if not len(results.bag_of_words):
        return f"Mean of the natural tasks: {scores_of_arms}. {NO_BAG}"
    bag = pd.Series(
        {"mean": results.bag_of_words[NATURAL_TASKS].mean(), **results.bag_of_words[NATURAL_TASKS]}
    )
    lower = int((arms["mean"] < bag["mean"]).sum())
    text = f"Mean of the natural tasks: the bag of words scores {bag['mean']:.1f}; "
    text += f"{scores_of_arms}. {lower} of {len(arms)} arms score lower than the bag of words."
    table = pd.DataFrame({BAG_OF_WORDS: bag, "best arm of each column": arms.max()}).T
    return f"{text}\n\n{frame_to_markdown(table.rename_axis(''))}"


def task_means(results):
    """Fine-tuned scores, means over seeds: a DataFrame of arms by tasks."""
    rows = {}
    for arm in MAIN:
        scores = {task: results.values(arm, [task], *PRIMARY_SCORE) for task in NATURAL_TASKS}
        rows[ARM_TITLES[arm]] = {task: values.mean() for task, values in scores.items()}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("arm").dropna()


def arm_means(results):
    """Fine-tuned scores, means over the natural tasks and over seeds: a Series by arms."""
    means = {
        ARM_TITLES[arm]: results.values(arm, NATURAL_TASKS, *PRIMARY_SCORE).mean() for arm in MAIN
    }
    return pd.Series(means).dropna()


def ablations(results):
    """Scores of the ablations, and the losses of MAE-LM at as many updates."""
    last = ARMS[ABLATIONS[0]].updates
    if not results.recorded(ABLATIONS):
        return NOT_RUN
    rows = results.records[(results.records.metric == "bits") & (results.records.updates == last)]
    rows = rows[rows.arm.isin(["A", *ABLATIONS]) & (rows.seed == 1)]
    bits = rows.set_index("arm").value.rename(f"bits after {last:,} updates")
    losses = frame_to_markdown(bits.rename(ARM_TITLES).to_frame())
    return f"{losses}\n{score_table(results, ABLATIONS)}"


def seconds_of_an_update(results):
    """The time of an update of each arm, and its ratio to the MLM's."""
    rounds = results.seconds.pivot(index="seed", columns="arm", values="value")
    ratios = rounds.div(rounds["D"], axis=0).quantile([0.5, 0.25, 0.75]).T
    ratios.columns = ["over the MLM's, median", "lower quartile", "upper quartile"]
    return frame_to_markdown(ratios.assign(seconds=rounds.median()).rename(ARM_TITLES))


def mean_and_error(values):
    """Mean and standard error over seeds, as text; nan for none."""
    if not len(values):
        return np.nan
    text = f"{round(values.mean(), 9):.2f}"
    if len(values) > 1:
        text += f" ± {stats.sem(values):.2f}"
    return text
