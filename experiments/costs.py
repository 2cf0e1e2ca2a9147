"""What an update of each arm costs, as cost.py measured it, in words for the page of results."""

from comparison import MLM


def cell(measured, updates, template):
    """A function of a model that says what it costs; empty for one that was not measured.

    Args:
        measured: an entry of cost.json
        updates: function of a model that gives their number in a run
        template: with the names of what was measured, and `run` for the ratio of the time of a run
    """

    def words(model):
        found = measured["models"].get(model.name)
        return template.format(run=found["ratio"] * updates(model) / updates(MLM), **found) if found else ""

    return words


def in_words(costs, models, updates):
    """How seconds and memory were measured, and what machines other than the first, which has columns, measured."""
    text = ""
    for number, measured in enumerate(costs):
        where = f"{measured['date']} ({measured['machine']})"
        spread = max(each["highest"] - each["lowest"] for each in measured["models"].values())
        how = f"medians of {measured['rounds']} rounds, between which ratios differ by {spread:.2f} at most"
        if number == 0:
            text += f"Seconds and memory were measured after the runs, by `experiments/cost.sh`, on {where}: {how}. "
            text += f"Ratios are to the {MLM.title}'s time; memory is the peak of the process.\n"
        else:
            words = cell(measured, updates, "{seconds:.3f} ({ratio:.2f}), {run:.2f}")
            found = "; ".join(f"{model.title} {words(model)}" for model in models if words(model))
            text += f"\nSeconds and times on {where}: {found}; {how}.\n"
    return text
