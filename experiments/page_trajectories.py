"""Sections of the page on what changes while encoders are pretrained and fine-tuned."""

import pandas as pd

from maelm_fairseq.evaluation.report import frame_to_markdown
from page_arms import ARM_TITLES, MLMS
from page_claims import claims
from page_pictures import COLORS, draw_lines


def trajectories(results):
    """Fine-tuned scores from checkpoints within runs, against updates and time."""
    frames = results.scores_by_update
    minutes = results.seconds.groupby("arm").value.median() / 60
    by_minutes = {}
    for arm, frame in frames.items():
        by_minutes[arm] = frame.set_axis(frame.columns * minutes[arm], axis=1)
    panels = {
        ("", "updates of pretraining"): frames,
        ("", "minutes of pretraining"): by_minutes,
    }
    title = "Fine-tuned accuracy by pretraining, mean of two tasks, dotted where the MLM ends"
    picture = draw_lines(results, "trajectories", "accuracy in percent", title, panels)
    for axis, panel in zip(results.pictures["trajectories"].axes, panels.values()):
        axis.axhline(panel["D"].mean().iloc[-1], color=COLORS["D"], linestyle=":")
        axis.axvline(panel["D"].columns[-1], color=COLORS["D"], linestyle=":")
    return f"{picture}{table_of_means(frames)}\n{claims(results, MLMS, 'A', ['earlier'])}"


def tuning(results):
    """The ranks of the last layer during fine-tuning, from its start on."""
    frames = {}
    for arm, frame in results.ranks_during_tuning.items():
        start = results.by_layer(arm, "without_mask").iloc[:, -1].rename(0)
        frames[arm] = pd.concat([start, frame], axis=1, join="inner")
    panels = {("text without [MASK], last layer", "tenths of fine-tuning"): frames}
    title = "Ranks of the last layer during fine-tuning"
    picture = draw_lines(results, "tuning", "dimensions", title, panels)
    return f"{picture}{table_of_means(frames)}\n{claims(results, MLMS, 'A', ['tuned'])}"


def table_of_means(frames):
    """The table of what `by_x` returned, means over tasks and seeds."""
    rows = {}
    for arm, frame in frames.items():
        rows[ARM_TITLES[arm]] = {"seeds": len(frame), **frame.mean().map("{:.2f}".format)}
    return frame_to_markdown(pd.DataFrame(rows).T)
