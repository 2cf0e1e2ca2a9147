"""Settings for tasks of sentences, GLUE's as others published them, and the forms that its server
takes.

A task is known by the name of the folder of its files, such as RTE.
"""

from .hyperparameters import BASE_WIDTH, Hyperparameters, defaults_for_width, small_encoder_defaults

# The batch sizes and learning rates that RoBERTa's authors published (fairseq's
# examples/roberta/README.glue.md); epochs and warm-up are the values of the search space nearest to
# theirs. None is tuned for MAE-LM. Learning rates are for encoders of width 768 or more.
LARGE_TASKS = ["MNLI", "QQP", "QNLI", "SST-2"]  # fewer epochs are enough for these
HYPERPARAMETERS = dict.fromkeys(LARGE_TASKS, Hyperparameters(32, 1e-5, 1 / 16, 5))
HYPERPARAMETERS.update(dict.fromkeys(["CoLA", "MRPC"], Hyperparameters(16, 1e-5, 1 / 16, 10)))
HYPERPARAMETERS.update(dict.fromkeys(["STS-B", "RTE"], Hyperparameters(16, 2e-5, 1 / 16, 10)))
# Those of sentences and pairs that are not GLUE's.
OTHER_HYPERPARAMETERS = Hyperparameters(32, 2e-5, 1 / 10, 10)

SERVER_NAMES = {("MNLI", "test"): "MNLI-m", ("MNLI", "test1"): "MNLI-mm", ("MNLI", "test2"): "AX"}
OTHER_ENDINGS = {"test1": "_mismatched", "test2": "_diagnostic"}


def sentence_task_defaults(name, width, num_layers):
    """The `hyperparameters.Defaults` of a task of sentences or pairs.

    By its name, and the width and the number of layers of the encoder.
    """
    hyperparameters = HYPERPARAMETERS.get(name, OTHER_HYPERPARAMETERS)
    if name in LARGE_TASKS:
        return defaults_for_width(hyperparameters, [2, 3, 5], width)
    if width < BASE_WIDTH:
        return small_encoder_defaults(hyperparameters, width, num_layers)
    return defaults_for_width(hyperparameters, [2, 3, 5, 10], width)


def server_name(name, split):
    """What the predictions for a split of a task are called, as GLUE's server expects."""
    return SERVER_NAMES.get((name, split), name + OTHER_ENDINGS.get(split, ""))


def prediction_table(rows, name):
    """The contents of a file of predictions, in the form that GLUE's server takes.

    Args:
        rows: the id and the prediction of each example: a label or a value
        name: name of the task
    """
    lines = ["index\tprediction\n"]
    for identifier, prediction in rows:
        if name == "STS-B" and isinstance(prediction, float):
            prediction = f"{min(max(prediction, 0), 5):.3f}"  # the server accepts only 0 to 5
        lines.append(f"{identifier}\t{prediction}\n")
    return "".join(lines)
