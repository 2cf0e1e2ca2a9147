"""The bag of words beside fine-tuning: in a process of its own, for at most as long as training took."""

import hashlib
import itertools
import os
import sys
from functools import partial
from pathlib import Path

import numpy as np

from ..base.errors import UsageError
from ..base.json_files import read_json
from ..base.provenance import sha256
from ..evaluation.votes import BAG_OF_WORDS, MOST_FREQUENT, TOGETHER, Score, Yardsticks, spread, together
from ..finetuning.metrics import MOST_GROUPS, standard_errors
from .finetune_results import Result, scores_of

PROGRAM = ["-m", "maelm_fairseq.evaluation.bag_of_words"]
TOO_LONG = 124  # the status of `timeout` for a program that it ended


class Measurement:
    """Yardsticks on the files of a fine-tuning run.

    Args:
        task: a `sentences.SentencesTask` that has read all splits
        labelled: the folder
        files: {split: path}
        folder: where they are kept
    """

    def __init__(self, task, labelled, files, folder):
        self.task, self.labelled, self.folder = task, labelled, folder
        self.is_regression = task.state.labels is None
        self.splits = {os.path.basename(path): split for split, path in files.items()}
        made_from = [(name, sha256(files[split])) for name, split in sorted(self.splits.items())]
        digest = hashlib.sha256(repr([made_from, self.is_regression]).encode()).hexdigest()[:8]
        self.name = f"bag_of_words-{digest}"
        self.path = os.path.join(folder, f"{self.name}.json")

    def run(self, jobs, limit):
        """Trains and scores, unless that is done; returns the `Yardsticks`, or None and says why.

        Args:
            jobs: `jobs.Jobs`
            limit: seconds that it may take
        """
        found = self.read()
        if found is None:
            Path(self.path).unlink(missing_ok=True)
            log = os.path.join(self.folder, f"{self.name}.log")
            command = ["timeout", limit, sys.executable, *PROGRAM, "--labelled", self.labelled, "--dest", self.path]
            status = jobs.run([*command, *["--regression"] * self.is_regression], log)
            found = self.read()
            if found is None and status == TOO_LONG:
                print(f"bag of words: left out, as it takes longer than training: over {limit:,.0f} seconds")
            elif found is None:
                print(f"bag of words: left out, as it failed; its log is {log}")
        return found

    def read(self):
        """What an earlier run wrote, if it is whole and of all files that have labels; else None."""
        if not os.path.exists(self.path):
            return None
        try:
            found = read_json(self.path, Yardsticks, "the scores of a bag of words")
        except UsageError:
            return None
        datasets = {name: self.task.datasets[split] for name, split in self.splits.items() if split != "train"}
        of_files = {name: dataset for name, dataset in datasets.items() if dataset.metrics}
        predictors = [BAG_OF_WORDS] if self.is_regression else [BAG_OF_WORDS, MOST_FREQUENT]
        metrics = [(name, metric) for name, dataset in of_files.items() for metric in dataset.metrics]
        scored = {(predictor, *each) for predictor, each in itertools.product(predictors, metrics)}
        sizes = {name: len(self.task.labelled_examples(dataset)) for name, dataset in of_files.items()}
        is_whole = {(score.predictor, score.file, score.metric) for score in found.scores} == scored
        return found if is_whole and {name: len(each) for name, each in found.outputs.items()} == sizes else None

    def results(self, found, encoder, answered):
        """A `finetune_results.Result` for each score, and for the encoder and the bag of words together.

        Args:
            found: `Yardsticks`
            encoder: list of Results of the encoder on the same files
            answered: {split: answers of the encoder's reported model}
        """
        reported = {(result.split, result.metric): np.median(result.bounded) for result in encoder}
        others, results = self.answers(found), []
        errors = {split: self.error_of_difference(split, answered[split], others[split]) for split in others}
        for score in found.scores:
            note = ""
            if score.predictor == BAG_OF_WORDS:
                difference = reported[score.file, score.metric] - score.value
                error = errors[self.splits[score.file]][score.metric]
                note = f" (difference {difference:+.2f} ± {error:.2f})"
            results.append(self.result(score, self.name, note))
        settings = f"{encoder[0].settings} {self.name}"
        return results + [self.result(score, settings) for score in self.together(answered, others)]

    def answers(self, found):
        """The outputs of the bag of words as answers of the task: {split: {number of an example: outputs}}."""
        answers = {}
        for name, outputs in found.outputs.items():
            split = self.splits[name]
            numbers = self.task.labelled_examples(self.task.datasets[split])
            answers[split] = dict(zip(numbers, outputs))
        return answers

    def result(self, score, settings, note=""):
        name, values = os.path.basename(self.labelled), [score.value]
        return Result(name, score.file, score.metric, values, score.error, score.predictor, settings, note)

    def together(self, answered, others):
        """A `votes.Score` for each score of both; arguments are {split: {number of an example: outputs}}."""
        spreads, found = [spread(table(answers["valid"], others["valid"])) for answers in (answered, others)], []
        for name, split in self.splits.items():
            if split not in others:
                continue
            numbers, dataset = [*others[split]], self.task.datasets[split]
            both = together(*(table(answers[split], numbers) for answers in (answered, others)), spreads)
            scores = partial(scores_of, self.task, dataset, dict(zip(numbers, both.tolist())))
            errors = standard_errors(scores, numbers, MOST_GROUPS)
            found += [Score(TOGETHER, name, metric, value, errors[metric]) for metric, value in scores(numbers).items()]
        return found

    def error_of_difference(self, split, encoder, bag_of_words):
        """The standard error of an encoder's score minus that of a bag of words, paired by examples, by metric."""
        dataset = self.task.datasets[split]

        def difference(numbers):
            ours, theirs = (scores_of(self.task, dataset, answers, numbers) for answers in (encoder, bag_of_words))
            return {metric: ours[metric] - theirs[metric] for metric in ours}

        return standard_errors(difference, [*bag_of_words], MOST_GROUPS)


def table(answers, numbers):
    """The outputs, (n, K), of some answers, by the numbers of their examples."""
    return np.array([answers[number] for number in numbers])
