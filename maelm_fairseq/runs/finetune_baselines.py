"""The bag of words beside fine-tuning: in a process of its own, no longer than training took.

Letters in shapes: n examples, K numbers predicted for each: one for each class, or one value.
"""

import itertools
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from ..base.errors import UsageError
from ..base.json_files import read_json
from ..base.provenance import sha256, short_checksum
from ..evaluation.votes import (
    BAG_OF_WORDS,
    MOST_FREQUENT,
    TOGETHER,
    Baselines,
    Score,
    spread,
    together,
)
from ..finetuning.jackknife import MAX_JACKKNIFE_GROUPS, standard_errors
from .finetune_results import ENCODER, Result, scores_of_examples

PROGRAM = ["-m", "maelm_fairseq.evaluation.bag_of_words"]
TOO_LONG = 124  # the status of `timeout` for a program that it ended


class BagOfWordsRun:
    """A bag of words and the most frequent class, on the files of a fine-tuning run.

    Args:
        task: a `sentences.SentencesTask` that has read all splits
        labelled: the folder
        files: {split: path}
        folder: where they are kept
    """

    def __init__(self, task, labelled, files, folder):
        self.task = task
        self.labelled = labelled
        self.folder = folder
        self.is_regression = task.is_regression
        self.split_of_file = {os.path.basename(path): split for split, path in files.items()}
        checksums = [
            (name, sha256(files[split])) for name, split in sorted(self.split_of_file.items())
        ]
        self.name = f"bag_of_words-{short_checksum([checksums, self.is_regression])}"
        self.path = os.path.join(folder, f"{self.name}.json")

    def run(self, jobs, limit):
        """Trains and scores, unless that is done; returns the `Baselines`, or None and says why.

        Args:
            jobs: `jobs.Jobs`
            limit: seconds that it may take
        """
        baselines = self.read()
        if baselines is not None:
            return baselines
        Path(self.path).unlink(missing_ok=True)
        log = os.path.join(self.folder, f"{self.name}.log")
        command = ["timeout", limit, sys.executable, *PROGRAM]
        command += ["--labelled", self.labelled, "--dest", self.path]
        if self.is_regression:
            command.append("--regression")
        status = jobs.execute(command, log)
        baselines = self.read()
        if baselines is None and status == TOO_LONG:
            print(
                "bag of words: left out, as it takes longer than training: over "
                f"{limit:,.0f} seconds"
            )
        elif baselines is None:
            print(f"bag of words: left out, as it failed; its log is {log}")
        return baselines

    def read(self):
        """What an earlier run wrote; None unless it is whole and of all files with labels."""
        if not os.path.exists(self.path):
            return None
        try:
            baselines = read_json(self.path, Baselines, "the scores of a bag of words")
        except UsageError:
            return None
        predictors = [BAG_OF_WORDS] if self.is_regression else [BAG_OF_WORDS, MOST_FREQUENT]
        expected_scores = set()
        expected_sizes = {}
        for name, split in self.split_of_file.items():
            dataset = self.task.datasets[split]
            if split != "train" and dataset.metrics:
                expected_scores.update(itertools.product(predictors, [name], dataset.metrics))
                expected_sizes[name] = len(dataset.labelled_examples())
        scores = {(score.predictor, score.file, score.metric) for score in baselines.scores}
        sizes = {name: len(outputs) for name, outputs in baselines.outputs.items()}
        is_whole = scores == expected_scores and sizes == expected_sizes
        return baselines if is_whole else None

    def compare(self, baselines, encoder_results, encoder_predictions):
        """Puts the baselines, and the encoder and the bag of words together, beside the encoder.

        Args:
            baselines: `Baselines`
            encoder_results: list of `finetune_results.Result` of the encoder on the same files
            encoder_predictions: {split: predictions of the encoder's reported model}
        Returns: list of Results: those of the encoder, with their lead over the bag of words, of
            the baselines, and of the encoder and the bag of words together
        """
        predictors = [encoder_predictions, self.bag_predictions(baselines)]
        spreads = self.spreads(predictors)
        comparisons = {}
        for split in self.split_of_file.values():
            if split in predictors[1]:
                predictions = [of_predictor[split] for of_predictor in predictors]
                comparisons[split] = Comparison(self.task, split, *predictions, spreads)
        of_encoder = []
        of_both = []
        for result in encoder_results:
            comparison = comparisons[self.split_of_file[result.file_name]]
            of_encoder.append(comparison.with_lead(result))
            score = comparison.score_of_both(result.file_name, result.metric)
            both = self.result(score, f"{result.settings} {self.name}")
            both = comparison.with_lead(both)
            of_both.append(replace(both, note=lead_note(both)))
        notes = {(result.file_name, result.metric): lead_note(result) for result in of_encoder}
        of_baselines = []
        for score in baselines.scores:
            note = notes[score.file, score.metric] if score.predictor == BAG_OF_WORDS else ""
            of_baselines.append(self.result(score, self.name, note))
        return [*of_encoder, *of_baselines, *of_both]

    def bag_predictions(self, baselines):
        """What the bag of words predicts: {split: {index of an example: K numbers}}."""
        predictions = {}
        for name, outputs in baselines.outputs.items():
            split = self.split_of_file[name]
            indices = self.task.datasets[split].labelled_examples()
            predictions[split] = dict(zip(indices, outputs))
        return predictions

    def spreads(self, predictors):
        """The `votes.spread` of each predictor on the dev file, of which all examples have labels.

        Args:
            predictors: for each, {split: {index of an example: K numbers}}
        """
        dev = self.task.datasets["valid"].labelled_examples()
        return [spread(rows_of_examples(of_splits["valid"], dev)) for of_splits in predictors]

    def result(self, score, settings, note=""):
        """The Result of a `votes.Score`."""
        return Result(
            task=os.path.basename(self.labelled),
            file_name=score.file,
            metric=score.metric,
            values=[score.value],
            error=score.error,
            predictor=score.predictor,
            settings=settings,
            note=note,
        )


class Comparison:
    """Encoder and bag of words, alone and together, on the examples of a split that have labels.

    Args:
        task: a `sentences.SentencesTask` that has read the split
        split: of the examples
        encoder, bag_of_words: the predictions of both: {index of an example: K numbers}
        spreads: of both; see `votes.together`
    """

    def __init__(self, task, split, encoder, bag_of_words, spreads):
        self.task = task
        self.dataset = task.datasets[split]
        self.indices = [*bag_of_words]
        rows = [rows_of_examples(of_one, self.indices) for of_one in (encoder, bag_of_words)]
        both = dict(zip(self.indices, together(*rows, spreads).tolist()))
        self.predictions = {ENCODER: encoder, BAG_OF_WORDS: bag_of_words, TOGETHER: both}
        self.errors_of_both = self.standard_errors(partial(self.scores, TOGETHER))
        self.lead_errors = {
            predictor: self.standard_errors(partial(self.leads, predictor))
            for predictor in (ENCODER, TOGETHER)
        }

    def standard_errors(self, scores):
        """The standard errors of scores, a function from indices of examples to {metric: score}."""
        return standard_errors(scores, self.indices, MAX_JACKKNIFE_GROUPS)

    def scores(self, predictor, indices):
        """The scores of a predictor for some examples: {metric: percent}."""
        return scores_of_examples(self.task, self.dataset, self.predictions[predictor], indices)

    def leads(self, predictor, indices):
        """By how much its scores are above those of the bag of words: {metric: points}."""
        bag_scores = self.scores(BAG_OF_WORDS, indices)
        scores = self.scores(predictor, indices)
        return {metric: score - bag_scores[metric] for metric, score in scores.items()}

    def score_of_both(self, file_name, metric):
        """The `votes.Score` of both together."""
        value = self.scores(TOGETHER, self.indices)[metric]
        return Score(TOGETHER, file_name, metric, value, self.errors_of_both[metric])

    def with_lead(self, result):
        """A Result of the encoder, or of both together, that knows its lead over the bag of words.

        The standard error of the lead is paired by examples.
        """
        bag_score = self.scores(BAG_OF_WORDS, self.indices)[result.metric]
        lead = float(np.median(result.bounded)) - bag_score
        lead_error = self.lead_errors[result.predictor][result.metric]
        return replace(result, lead=lead, lead_error=lead_error)


def rows_of_examples(predictions, indices):
    """The predictions, (n, K), for some examples, by their indices."""
    return np.array([predictions[index] for index in indices])


def lead_note(result):
    """The lead of a Result over the bag of words, in words."""
    name = "together" if result.predictor == TOGETHER else result.predictor
    return f" ({name} minus bag of words: {result.lead:+.2f} ± {result.lead_error:.2f})"
