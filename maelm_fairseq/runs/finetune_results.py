"""What fine-tuning reports: scores beside a baseline's, and a table of results."""

import datetime
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, NamedTuple

import numpy as np

from ..base.errors import UsageError
from ..base.files import atomic_write
from ..base.locks import one_at_a_time
from ..base.opening import open_to_read
from ..baselines.baseline_scores import BAG_OF_WORDS, CRF
from ..baselines.ensemble import ENSEMBLES

ENCODER = "encoder"
RESULTS_FILE = "results.tsv"
TABLE_COLUMNS = [
    "date",
    "task",
    "file",
    "file_sha256",
    "metric",
    "predictor",
    "median",
    "min",
    "max",
    "std",
    "standard_error",
    "lead",  # over the bag of words or the CRF
    "lead_standard_error",
    "seeds",
    "values",
    "start",
    "settings",
]
LABELLING_PREDICTORS = [ENCODER, *ENSEMBLES, BAG_OF_WORDS, CRF]  # with a command for new texts
WHY_UNDEFINED = "all predictions or all labels are equal, or there is one example"


@dataclass
class Result:
    """The scores of one metric on one split, in percent, of runs that differ in their seed."""

    task: str
    file_name: str  # of the split
    metric: str
    values: List[float]  # of each seed; nan where it is not defined
    standard_error: float  # over examples
    predictor: str = ENCODER
    start: str = ""  # of an encoder: the checkpoint it started from, or "scratch"
    settings: str = ""
    file_sha256: str = ""  # the first digits, which tell files of one name apart
    note: str = ""  # for the reader
    baseline: str = ""  # that it is compared with
    lead: float = math.nan  # over the baseline, in points
    # The standard errors of differences from other predictors, paired by examples.
    difference_errors: Dict[str, float] = field(default_factory=dict)

    @property
    def lead_standard_error(self):
        """The standard error of the lead; nan without one."""
        return self.difference_errors.get(self.baseline, math.nan)

    @property
    def values_or_worst(self):
        """The values, with the worst number for those that are not defined."""
        return np.nan_to_num(self.values, nan=-math.inf)

    @property
    def score(self):
        """The median of the values, as it is printed; those that are not defined are the worst."""
        return round(float(np.median(self.values_or_worst)), 2)

    @property
    def median(self):
        return format_score(self.score)

    def __str__(self):
        text = self.median
        if not math.isnan(self.standard_error):
            text += f" ± {self.standard_error:.2f}"
        if len(self.values) > 1:
            lowest = format_score(self.values_or_worst.min())
            highest = format_score(self.values_or_worst.max())
            text += f", median of {len(self.values)} seeds ({lowest} to {highest})"
        undefined = ", ".join(f"seed {i + 1}" for i in np.flatnonzero(np.isnan(self.values)))
        if undefined:
            which = f" for {undefined}" if len(self.values) > 1 else ""
            text += f"; undefined{which}: {WHY_UNDEFINED}"
        text += self.note
        if self.baseline and math.isfinite(self.lead):
            lead = f"{self.lead:+.2f}"
            if not math.isnan(self.lead_standard_error):
                lead += f" ± {self.lead_standard_error:.2f}"
            text += f", {lead} compared with the {self.baseline}"
        return text

    def row(self):
        """The fields of TABLE_COLUMNS."""
        defined = np.array(self.values)[~np.isnan(self.values)]
        std = defined.std(ddof=1) if len(defined) > 1 else math.nan
        return [
            datetime.date.today().isoformat(),
            self.task,
            self.file_name,
            self.file_sha256,
            self.metric,
            self.predictor,
            self.median,
            format_score(self.values_or_worst.min()),
            format_score(self.values_or_worst.max()),
            f"{std:.2f}",
            f"{self.standard_error:.2f}",
            f"{self.lead:.2f}",
            f"{self.lead_standard_error:.2f}",
            str(len(self.values)),
            " ".join(f"{value:.2f}" for value in self.values),
            self.start,
            self.settings,
        ]


def format_score(number):
    return f"{number:.2f}".replace("-inf", "nan")


def rank_runs(scores, metric=None):
    """The indices of scores, best first; an undefined score is the worst.

    Args:
        scores: for each run, {metric: score}
        metric: that counts; if there is no such metric, the first one does
    """
    first = metric if metric in scores[0] else next(iter(scores[0]))

    def badness(i):
        score = scores[i][first]
        return math.inf if math.isnan(score) else -score

    return sorted(range(len(scores)), key=badness)


class Verdict(NamedTuple):
    """Which predictors score highest on the dev file."""

    line: str  # for the user
    # The names of those by which to label texts, the cheapest first: the highest, and before it
    # those that cost less and that it is not clearly ahead of.
    worth_using: List[str]


def compare_predictors(results):
    """The `Verdict` on predictors.

    The highest is, of several with that score, the one that costs least.

    Args:
        results: list of `Result` of the dev file, the encoder's first; their first metric counts
    """
    metric = results[0].metric
    comparable = [result for result in results if result.metric == metric]
    best = max(comparable, key=lambda result: (result.score, -cost(result.predictor)))
    highest = f"highest {metric} on {best.file_name}"
    if math.isinf(best.score):
        return Verdict(f"{highest}: none, as it is undefined: {WHY_UNDEFINED}", [])
    line = f"{highest}: the {best.predictor}"
    others = [result for result in comparable if result is not best]
    level = [result for result in others if result.score == best.score]
    if level:
        line += f", level with {' and '.join(f'the {result.predictor}' for result in level)}"
    # The ensemble costs most: no cheaper predictor needs to be clearly ahead of it.
    close = [
        result
        for result in others
        if result.score < best.score
        and result.predictor not in ENSEMBLES
        and not is_clearly_ahead(best, result)
    ]
    if close:
        names = [f"the {result.predictor}" for result in close]
        line += f", not clearly ahead of {' or '.join(names)}"
    worth_using = []
    highest_of_cheaper = -math.inf
    for result in sorted(comparable, key=lambda result: cost(result.predictor)):
        # What costs more must score more.
        if result.predictor in LABELLING_PREDICTORS and result.score > highest_of_cheaper:
            highest_of_cheaper = result.score
            if any(result is candidate for candidate in [best, *level, *close]):
                worth_using.append(result.predictor)
    return Verdict(line, worth_using)


def cost(predictor):
    """The rank of a predictor by what it costs to train and use, from 0 for baselines."""
    if predictor in ENSEMBLES:
        return 2
    return 1 if predictor == ENCODER else 0


def is_clearly_ahead(result, other):
    """Whether a predictor scores higher than another by two standard errors or more.

    The error is paired by examples where both predict them in one run; of others, only the errors
    of both scores are known, which make that of their difference too large.
    """
    difference = result.score - other.score
    unpaired = math.hypot(result.standard_error, other.standard_error)
    error_from_other = other.difference_errors.get(result.predictor, unpaired)
    standard_error = result.difference_errors.get(other.predictor, error_from_other)
    return difference > 0 and difference >= 2 * standard_error


# The table --------------------------------------------------------------------------------------


def read_table(folder):
    """The lines of the table of results in a folder, with the header.

    Another table of that name is refused.
    """
    path = Path(folder, RESULTS_FILE)
    header = "\t".join(TABLE_COLUMNS).encode()
    lines = [header]
    if path.exists():
        with open_to_read(path) as stream:
            lines = stream.read().splitlines()
    if lines[:1] != [header]:
        raise UsageError(
            f"{path}: found another table, expected one of this version of the recipe; move it "
            "away, or choose another --save-dir"
        )
    return lines


def write_table(folder, results):
    """Adds each `Result` to the table in a folder, once."""
    rows = ["\t".join(map(escape_unprintable, result.row())).encode() for result in results]
    path = Path(folder, RESULTS_FILE)
    with one_at_a_time(folder):
        lines = read_table(folder)
        present = {line.partition(b"\t")[2] for line in lines}  # without their dates
        lines += [row for row in rows if row.partition(b"\t")[2] not in present]
        with atomic_write(path, "wb") as stream:
            stream.write(b"\n".join([*lines, b""]))
    print(f"results: {path}")


def escape_unprintable(text):
    """A text without tabs and line breaks, which a row of a table cannot contain."""
    parts = []
    for character in text:
        if not character.isprintable():
            character = character.encode("unicode_escape").decode()
        parts.append(character)
    return "".join(parts)


def print_results(results, secondary_metrics=()):
    """Prints, for each split and metric, a line for each predictor, the encoder's first.

    Args:
        results: list of `Result`
        secondary_metrics: names of metrics that are left out
    """
    groups: Dict[tuple, List[Result]] = {}
    for result in results:
        if result.metric in secondary_metrics:
            continue
        groups.setdefault((result.task, result.file_name, result.metric), []).append(result)
    width = max(len(result.predictor) for result in results)
    of_seed = ""
    if any(len(result.values) > 1 for result in results):
        of_seed = "; beside a median, that of the best seed"
    print(f"± is the standard error over examples{of_seed}")
    for (task, split, metric), results_of_metric in groups.items():
        print(f"{task}, {metric} on {split}:")
        for result in results_of_metric:
            print(f"  {result.predictor:{width}}  {result}")
    if secondary_metrics:
        print(f"{', '.join(secondary_metrics)}: in {RESULTS_FILE}")
