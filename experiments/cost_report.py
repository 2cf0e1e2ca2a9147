"""What an update of each arm costs, as measure_cost.py measured it, in words for the page of results."""

from preregistration import MLM


def cell(measured, updates, template):
    """A function of a model that gives its cost as text; empty for one that was not measured.

    Args:
        measured: an entry of cost.json
        updates: function of a model that gives the number of updates of a run
        template: with the names of the measured values, and `run` for the time of a run relative to the MLM's
    """

    def words(model):
        cost = measured["models"].get(model.name)
        return template.format(run=cost["ratio"] * updates(model) / updates(MLM), **cost) if cost else ""

    return words


def in_words(costs, models, updates):
    """How seconds and memory were measured; and the values of all machines but the first, which has columns."""
    text = ""
    for number, measured in enumerate(costs):
        where = f"{measured['date']} ({measured['machine']})"
        spread = max(cost["highest"] - cost["lowest"] for cost in measured["models"].values())
        how = f"medians of {measured['rounds']} rounds, between which ratios differ by {spread:.2f} at most"
        if number == 0:
            text += "Time and memory were measured after the runs, with `experiments/measure_cost.sh`, "
            text += f"on {where}: {how}. Ratios are to the {MLM.title}'s time; memory is the peak of the process.\n"
        else:
            words = cell(measured, updates, "{seconds:.3f} ({ratio:.2f}), {run:.2f}")
            values = "; ".join(f"{model.title} {words(model)}" for model in models if words(model))
            text += f"\nSeconds per update (ratio) and time of a run on {where}: {values}; {how}.\n"
    return text
