"""What predictors without an encoder score on labelled files: names, scores, and their file."""

from dataclasses import asdict, dataclass
from typing import Dict, List

import numpy as np

from ..base.errors import UsageError
from ..base.json_files import read_json, save_json
from ..base.provenance import short_checksum
from ..finetuning.jackknife import standard_errors

BAG_OF_WORDS = "bag of words"
MOST_FREQUENT = "most frequent class"
CRF = "CRF"
MOST_FREQUENT_TAG = "most frequent tag of each word"


@dataclass
class Score:
    """A score of a predictor without an encoder, with its standard error over examples.

    Both are in percent.
    """

    predictor: str
    file: str
    metric: str
    value: float
    standard_error: float


@dataclass
class BaselineOutcome:
    """What bag_of_words.py and crf.py write, by `save_outcome`."""

    scores: List[Score]
    # What each predictor predicts, by the name of a file, for each of its examples that has a
    # label: K numbers, or those of `join_word_outputs`.
    outputs: Dict[str, Dict[str, List[List[float]]]]
    checksum: str = ""  # of all that

    def expected_checksum(self):
        """A checksum that is the same for the values that JSON gives back."""
        scores = []
        for score in self.scores:
            names = score.predictor, score.file, score.metric
            scores.append([*names, float(score.value), float(score.standard_error)])
        outputs = {}
        for predictor, rows_by_file in self.outputs.items():
            outputs[predictor] = {
                file: [list(map(float, row)) for row in rows] for file, rows in rows_by_file.items()
            }
        return short_checksum([scores, outputs])


def save_outcome(scores, outputs, path):
    """Writes a `BaselineOutcome`; no file is replaced."""
    outcome = BaselineOutcome(scores, outputs)
    outcome.checksum = outcome.expected_checksum()
    save_json(asdict(outcome), path, must_be_new=True)


def join_word_outputs(indices, probabilities):
    """What a CRF says of the words of a sentence, in a list of numbers.

    Args:
        indices: of the words' tags, (words,)
        probabilities: of all tags, (words, labels)
    """
    return np.column_stack([indices, probabilities]).ravel().tolist()


def split_word_outputs(outputs, num_labels):
    """The indices and the probabilities in a list of `join_word_outputs`."""
    words = np.array(outputs).reshape(-1, 1 + num_labels)
    return words[:, 0].astype(int), words[:, 1:]


def read_outcome(path):
    """The `BaselineOutcome` in a file.

    Raises UsageError: it is not one, or has been changed
    """
    expected = "the scores of a baseline"
    outcome = read_json(path, BaselineOutcome, expected)
    if outcome.checksum != outcome.expected_checksum():
        raise UsageError(f"{path}: its checksum is wrong, expected {expected}; remove it")
    return outcome


def scores_with_errors(predictor, file, score_subset, count, groups):
    """A `Score` for each metric, if there is an example.

    Args:
        predictor, file: their names
        score_subset: a function from a list of indices of examples to {metric: percent}
        count: number of the examples
        groups: groups of the jackknife; see `jackknife.standard_errors`
    """
    if not count:
        return []
    rows = list(range(count))
    errors = standard_errors(score_subset, rows, groups)
    scores = []
    for name, value in score_subset(rows).items():
        scores.append(Score(predictor, file, name, value, errors[name]))
    return scores


def show_scores(scores):
    """Prints a line for each `Score`."""
    print("± is the standard error over examples")
    for score in scores:
        where = f"{score.metric} on {score.file}"
        print(f"{score.predictor}, {where}: {score.value:.2f} ± {score.standard_error:.2f}")
