"""Files of predictions, in the forms that the servers of GLUE and SQuAD take."""

import json
import os
from pathlib import Path

from ..base.files import atomic_write
from ..training.save_folder import set_aside

GLUE_NAMES = {("MNLI", "test"): "MNLI-m", ("MNLI", "test1"): "MNLI-mm", ("MNLI", "test2"): "AX"}
OTHER_ENDINGS = {"test1": "_mismatched", "test2": "_diagnostic"}


def write_file(path, text, what):
    """Writes a file beside the folders of the seeds, and says where it is.

    An earlier file with other contents gets another name.
    """
    contents = text.encode()
    if os.path.exists(path) and Path(path).read_bytes() != contents:
        print(f"renamed the earlier {path} to {set_aside(path, '.earlier')}")
    with atomic_write(path, "wb") as stream:
        stream.write(contents)
    print(f"{what}: {path}")


def predictions(task, answers, split, name):
    """The name and the contents of a file of predictions.

    It has a label or value, tags, or a text for each example.

    Args:
        task: a `LabelledTask` that has read the split
        answers: {number of an example: answer}
        split: of the answers
        name: of the task, for the user
    """
    dataset = task.datasets[split]
    if task.head == "span":
        texts = {}
        for i, text in task.texts(dataset, answers).items():
            texts[dataset.questions[i].id] = text
        contents = json.dumps(texts, ensure_ascii=False, indent=1) + "\n"
        return f"{name}.{split}.json", contents
    if task.head == "tokens":
        return f"{name}.txt", tagged_lines(task.tagged(dataset, answers))
    contents = table(dataset, answers, task.state.labels, name)
    return server_name(name, split) + ".tsv", contents


def tagged_lines(tagged):
    """A word and its tag a line, and an empty line after each sentence."""
    lines = []
    for sentence, tags in tagged:
        lines += [f"{word}\t{tag}\n" for word, tag in zip(sentence.words, tags)]
        lines.append("\n")
    return "".join(lines)


def table(dataset, answers, labels, name):
    """The index and the prediction of each example; `labels` is None for values."""
    lines = ["index\tprediction\n"]
    for i, number in enumerate(dataset.numbers):
        outputs = answers[i]
        if labels:
            value = labels[max(range(len(labels)), key=outputs.__getitem__)]
        elif name == "STS-B":
            value = f"{min(max(outputs[0], 0), 5):.3f}"  # the server accepts only 0 to 5
        else:
            value = outputs[0]
        lines.append(f"{number}\t{value}\n")
    return "".join(lines)


def server_name(name, split):
    """What the predictions for a split of a task are called, as far as GLUE's server says."""
    return GLUE_NAMES.get((name, split), name + OTHER_ENDINGS.get(split, ""))
