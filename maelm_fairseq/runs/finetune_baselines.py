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
from .finetune_results import Result, scores_of_examples

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
        self.is_regression = task.state.labels is None
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

    def compare(self, baselines, encoder, encoder_predictions):
        """Puts the baselines, and the encoder and the bag of words together, beside the encoder.

        Args:
            baselines: `Baselines`
            encoder: list of `finetune_results.Result` of the encoder on the same files
            encoder_predictions: {split: predictions of the encoder's reported model}
        Returns: list of Results: those of the encoder, with their lead over the bag of words, of
            the baselines, and of the encoder and the bag of words together
        """
        bag_predictions = self.bag_predictions(baselines)
        mean_predictions = {}
        for split in bag_predictions:
            mean_predictions[split] = self.mean_predictions(
                split, encoder_predictions, bag_predictions
            )
        settings = f"{encoder[0].settings} {self.name}"
        scores = self.scores_of_mean(mean_predictions)
        of_both = [self.result(score, settings) for score in scores]

        bag_scores = {}
        for score in baselines.scores:
            if score.predictor == BAG_OF_WORDS:
                bag_scores[score.file, score.metric] = score.value
        encoder_errors = self.errors_of_leads(encoder_predictions, bag_predictions)
        encoder = self.with_leads(encoder, bag_scores, encoder_errors)
        mean_errors = self.errors_of_leads(mean_predictions, bag_predictions)
        of_both = self.with_leads(of_both, bag_scores, mean_errors)
        of_both = [replace(result, note=lead_note(result)) for result in of_both]
        return [*encoder, *self.baseline_results(baselines, encoder), *of_both]

    def bag_predictions(self, baselines):
        """What the bag of words predicts: {split: {index of an example: K numbers}}."""
        predictions = {}
        for name, outputs in baselines.outputs.items():
            split = self.split_of_file[name]
            indices = self.task.datasets[split].labelled_examples()
            predictions[split] = dict(zip(indices, outputs))
        return predictions

    def mean_predictions(self, split, encoder, bag_of_words):
        """What the encoder and the bag of words predict together: {index of an example: K numbers}.

        Args:
            split: of the examples
            encoder, bag_of_words: {split: {index of an example: K numbers}}
        """
        dev = [*bag_of_words["valid"]]
        indices = [*bag_of_words[split]]
        spreads = []
        rows = []
        for predictions in (encoder, bag_of_words):
            spreads.append(spread(rows_of_examples(predictions["valid"], dev)))
            rows.append(rows_of_examples(predictions[split], indices))
        return dict(zip(indices, together(*rows, spreads).tolist()))

    def scores_of_mean(self, predictions):
        """The scores of `mean_predictions` by split: list of `votes.Score`."""
        scores = []
        for name, split in self.split_of_file.items():
            if split not in predictions:
                continue
            dataset = self.task.datasets[split]
            of_indices = partial(scores_of_examples, self.task, dataset, predictions[split])
            indices = [*predictions[split]]
            errors = standard_errors(of_indices, indices, MAX_JACKKNIFE_GROUPS)
            for metric, value in of_indices(indices).items():
                scores.append(Score(TOGETHER, name, metric, value, errors[metric]))
        return scores

    def errors_of_leads(self, predictions, bag_predictions):
        """The standard errors of scores minus those of a bag of words, paired by examples.

        Args:
            predictions, bag_predictions: {split: {index of an example: K numbers}}
        Returns: {split: {metric: standard error}}
        """
        errors = {}
        for split, of_bag in bag_predictions.items():
            dataset = self.task.datasets[split]
            scores = partial(scores_of_examples, self.task, dataset, predictions[split])
            bag_scores = partial(scores_of_examples, self.task, dataset, of_bag)
            difference = partial(difference_of_scores, scores, bag_scores)
            errors[split] = standard_errors(difference, [*of_bag], MAX_JACKKNIFE_GROUPS)
        return errors

    def with_leads(self, results, bag_scores, errors):
        """Copies of Results that know their lead over the bag of words, where it has a score.

        Args:
            results: list of Results
            bag_scores: {(name of a file, metric): percent}
            errors: see `errors_of_leads`
        """
        with_leads = []
        for result in results:
            bag_score = bag_scores.get((result.file_name, result.metric))
            if bag_score is not None:
                lead = float(np.median(result.bounded)) - bag_score
                error = errors[self.split_of_file[result.file_name]][result.metric]
                result = replace(result, lead=lead, lead_error=error)
            with_leads.append(result)
        return with_leads

    def baseline_results(self, baselines, encoder):
        """A Result for each score of the baselines.

        That of a bag of words says how far the encoder, a list of Results, is ahead of it.
        """
        encoder_results = {(result.file_name, result.metric): result for result in encoder}
        results = []
        for score in baselines.scores:
            note = ""
            if score.predictor == BAG_OF_WORDS:
                note = lead_note(encoder_results[score.file, score.metric])
            results.append(self.result(score, self.name, note))
        return results

    def result(self, score, settings, note=""):
        """The Result of a `votes.Score`."""
        return Result(
            task=os.path.basename(self.labelled),
            file_name=score.file,
            metric=score.metric,
            values=[score.value],
            error=score.error,
            start=score.predictor,
            settings=settings,
            note=note,
        )


def rows_of_examples(predictions, indices):
    """The predictions, (n, K), for some examples, by their indices."""
    return np.array([predictions[index] for index in indices])


def difference_of_scores(scores, bag_scores, indices):
    """By how much the scores of some examples differ: {metric: points}.

    Args:
        scores, bag_scores: functions from a list of indices to {metric: percent}
    """
    of_bag = bag_scores(indices)
    return {metric: score - of_bag[metric] for metric, score in scores(indices).items()}


def lead_note(result):
    """The lead of a Result over the bag of words, in words."""
    return f" (difference {result.lead:+.2f} ± {result.lead_error:.2f})"
