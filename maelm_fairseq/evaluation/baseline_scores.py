"""What predictors without an encoder score on labelled files: names, scores, and their file."""

from dataclasses import dataclass
from typing import Dict, List

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
    """What bag_of_words.py and crf.py write."""

    scores: List[Score]
    # What the bag of words or the CRF predicts, by the name of a file, for each of its examples
    # that has a label: K numbers, or the index of each word's tag.
    outputs: Dict[str, List[List[float]]]


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
