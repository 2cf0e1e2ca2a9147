"""Section of the page on a published RoBERTa that is trained further, in several ways."""

from maelm_fairseq.evaluation.report import frame_to_markdown
from measurements import HELD_OUT_TEXT

CONTINUED = {
    "base": "the RoBERTa",
    "mlm": "as an MLM",
    "shared": "all layers shared",
    "shared-fade": "the same, fading",
}


def continuing(results):
    """What continued MLMs score, each seed."""
    is_count = results.trial.metric == "count"
    scores = results.trial[results.trial.updates.isna() & ~is_count]
    names = scores.task.replace(HELD_OUT_TEXT, "bits per token") + ", " + scores.feature
    names[scores.task == "halves"] = "halves found, %"
    values = scores.assign(what=names).groupby(["what", "arm"]).value
    cells = values.agg(lambda seeds: ", ".join(f"{value:.2f}" for value in seeds))
    table = cells.unstack("arm").loc[names.unique(), scores.arm.unique()]
    counts = results.trial[is_count].drop_duplicates("task")
    sizes = " and ".join(f"{row.value:.0f} of {row.task}" for row in counts.itertuples())
    return f"{frame_to_markdown(table.rename(columns=CONTINUED))}\nExamples: {sizes}.\n"
