"""The baseline beside fine-tuning, in a process of its own, no longer than training took: a bag of
words for sentences, a conditional random field for words with tags.

Letters in shapes: n examples, K numbers predicted for each: one for each class, or one value.
"""

import os
import sys
from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..base.errors import UsageError
from ..base.provenance import sha256, short_checksum
from ..baselines.baseline_scores import (
    BAG_OF_WORDS,
    CRF,
    read_outcome,
    split_word_outputs,
)
from ..baselines.ensemble import (
    ENSEMBLE,
    TAG_ENSEMBLE,
    average_predictions,
    average_probabilities,
    one_hot,
)
from ..finetuning.conllu import CONLLU_COLUMNS
from .finetune_results import ENCODER, Result
from .split_scores import SplitScores

TIMEOUT_EXIT_STATUS = 124  # the status of `timeout` for a program that it ended


class BaselineRun(ABC):
    """A baseline, on the files of a fine-tuning run.

    Args:
        task: a `finetuning_task.FineTuningTask` that has read all splits
        labelled_folder: path
        files: {split: path}
        folder: where results are kept
    """

    predictor = ""  # the baseline's name
    module = ""  # in `baselines`, the program
    form_of_outputs = ""  # changes when the program writes others, so that old ones are not read

    def __init__(self, task, labelled_folder, files, folder):
        self.task = task
        self.labelled_folder = labelled_folder
        self.folder = folder
        self.split_of_file = {os.path.basename(path): split for split, path in files.items()}
        self.sha256_of_file = {os.path.basename(path): sha256(path) for path in files.values()}
        checksums = sorted(self.sha256_of_file.items())
        self.name = f"{self.module}-{short_checksum(self.origin(checksums))}"
        self.path = os.path.join(folder, f"{self.name}.json")

    def origin(self, checksums):
        """What the outcome is made from: files, options, and the form of outputs."""
        return [checksums, self.options(), self.form_of_outputs]

    @abstractmethod
    def options(self):
        """The options of the program, beside the files."""

    @abstractmethod
    def predictions_of_split(self, split, outputs):
        """What the baseline predicts: {index of a sequence: as a task's `compute_predictions`}."""

    def votes_of_split(self, split, outputs):
        """What the baseline votes with beside an encoder, in the form of its predictions."""
        return self.predictions_of_split(split, outputs)

    @abstractmethod
    def combined_predictions(self, encoder, votes):
        """Further predictions, made from an encoder's and the baseline's votes.

        Args:
            encoder, votes: {split: {index of a sequence: prediction}}, of the same splits
        Returns: {predictor: {split: {index of a sequence: prediction}}}
        """

    def run(self, jobs, limit):
        """Trains and scores, unless that is done; returns the outcome, or None and says why.

        Args:
            jobs: `jobs.Jobs`
            limit: seconds that it may take
        """
        outcome = self.read()
        if outcome is not None:
            return outcome
        Path(self.path).unlink(missing_ok=True)
        log = os.path.join(self.folder, f"{self.name}.log")
        program = f"maelm_fairseq.baselines.{self.module}"
        command = ["timeout", limit, sys.executable, "-m", program]
        command += ["--labelled", self.labelled_folder, "--dest", self.path, *self.options()]
        status = jobs.execute(command, log)
        outcome = self.read()
        if outcome is None and status == TIMEOUT_EXIT_STATUS:
            print(
                f"{self.predictor}: left out, as it takes longer than training: over "
                f"{limit:,.0f} seconds"
            )
        elif outcome is None:
            print(f"{self.predictor}: left out, as it failed; its log is {log}")
        return outcome

    def read(self):
        """What an earlier run wrote; None if it did not, or if the file is damaged.

        The name of the file has the checksum of what it was made from.
        """
        if not os.path.exists(self.path):
            return None
        try:
            return read_outcome(self.path)
        except UsageError:
            return None

    def compare(self, outcome, encoder_results, encoder_scores, dev_predictions):
        """Puts the baselines, and what they predict together with the encoder, beside it.

        Args:
            outcome: `BaselineOutcome`
            encoder_results: list of `finetune_results.Result` of the encoder on the same files
            encoder_scores: {split: `SplitScores` of the encoder's reported model}
            dev_predictions: of each of its seeds, {split: predictions} for the dev files
        Returns:
            list of Results: those of the encoder, with their lead over the baseline, of the
                baselines, and of what is combined from both, with each seed of the encoder
            {split: {predictor: `SplitScores`}}
        """
        predictions = {
            predictor: self.of_splits(outputs, self.predictions_of_split)
            for predictor, outputs in outcome.outputs.items()
        }
        votes = self.of_splits(outcome.outputs[self.predictor], self.votes_of_split)
        encoder = {split: scores.predictions for split, scores in encoder_scores.items()}
        combined = self.combined_predictions(encoder, votes)
        scores_of_splits = self.scores_of_splits({**predictions, **combined}, encoder_scores)
        combined_of_seeds = []
        for predictions_of_seed in dev_predictions:
            votes_on_dev = {split: votes[split] for split in predictions_of_seed}
            combined_of_seeds.append(self.combined_predictions(predictions_of_seed, votes_on_dev))
        compared_results = []
        combined_results = []
        for result in encoder_results:
            split = self.split_of_file[result.file_name]
            scores = scores_of_splits[split]
            compared_results.append(self.with_lead(result, scores))
            for predictor in combined:
                values = self.values_of_seeds(
                    scores[predictor],
                    result.metric,
                    [of_seed[predictor] for of_seed in combined_of_seeds],
                )
                combined_result = replace(
                    result,
                    predictor=predictor,
                    values=values,
                    standard_error=scores[predictor].standard_errors[result.metric],
                    settings=f"{result.settings} {self.name}",
                )
                combined_results.append(self.with_lead(combined_result, scores))
        baseline_results = []
        for score in outcome.scores:
            scores = scores_of_splits[self.split_of_file[score.file]]
            baseline_results.append(self.with_lead(self.result(score, self.name), scores))
        return [*compared_results, *baseline_results, *combined_results], scores_of_splits

    def values_of_seeds(self, scores, metric, predictions_of_seeds):
        """The scores of what is combined from the baseline and each seed, in the order of seeds.

        Args:
            scores: `SplitScores` with the reported model, which alone has predicted a test file
            predictions_of_seeds: for each seed, {split: predictions} for the dev files
        """
        dataset = self.task.datasets[scores.split]
        values = []
        for predictions in predictions_of_seeds:
            if scores.split in predictions:
                values.append(self.task.compute_scores(dataset, predictions[scores.split])[metric])
        return values or [scores.values[metric]]

    def of_splits(self, outputs_by_file, convert):
        """The outputs of a predictor in another form: {split: what `convert` makes of them}."""
        converted = {}
        for file_name, outputs in outputs_by_file.items():
            split = self.split_of_file[file_name]
            converted[split] = convert(split, outputs)
        return converted

    def scores_of_splits(self, predictions, encoder_scores):
        """The scores of all predictors.

        Args:
            predictions: {predictor: {split: predictions}}, without the encoder's
            encoder_scores: as for `compare`
        Returns: {split: {predictor: `SplitScores`}}
        """
        scores = {split: {ENCODER: of_split} for split, of_split in encoder_scores.items()}
        for predictor, predictions_by_split in predictions.items():
            for split, predictions_of_split in predictions_by_split.items():
                scores[split][predictor] = SplitScores(self.task, split, predictions_of_split)
        return scores

    def with_lead(self, result, scores):
        """A Result that knows its predictor's lead over the baseline.

        Args:
            result: `Result`
            scores: {predictor: `SplitScores`} of its split
        """
        own = scores[result.predictor]
        errors = {}
        for other in scores.keys() - {result.predictor}:
            errors[other] = own.lead_standard_errors(scores[other])[result.metric]
        if result.predictor == self.predictor:  # it has no lead over itself
            return replace(result, difference_errors=errors)
        baseline_value = scores[self.predictor].values[result.metric]
        lead = float(np.median(result.values_or_worst)) - baseline_value
        return replace(result, baseline=self.predictor, lead=lead, difference_errors=errors)

    def result(self, score, settings):
        """The Result of a `baseline_scores.Score`."""
        return Result(
            task=os.path.basename(self.labelled_folder),
            file_name=score.file,
            file_sha256=self.sha256_of_file[score.file][:8],
            metric=score.metric,
            values=[score.value],
            standard_error=score.standard_error,
            predictor=score.predictor,
            settings=settings,
        )


class BagOfWordsRun(BaselineRun):
    """A bag of words and the most frequent class; the task is a `sentences.SentencesTask`."""

    predictor = BAG_OF_WORDS
    module = "bag_of_words"
    form_of_outputs = "of each predictor"

    def options(self):
        return ["--regression"] if self.task.is_regression else []

    def predictions_of_split(self, split, outputs):
        return dict(zip(self.task.datasets[split].labelled_examples(), outputs))

    def combined_predictions(self, encoder, votes):
        """The means of encoder and bag of words.

        Their units come from the dev file, where all examples have labels.
        """
        dev = self.task.datasets["valid"].labelled_examples()
        encoder_dev = rows_of_examples(encoder["valid"], dev)
        votes_dev = rows_of_examples(votes["valid"], dev)
        both = {}
        for split in votes:
            indices = [*votes[split]]
            means = average_predictions(
                rows_of_examples(encoder[split], indices),
                rows_of_examples(votes[split], indices),
                encoder_dev,
                votes_dev,
            )
            both[split] = dict(zip(indices, means.tolist()))
        return {ENSEMBLE: both}


class CrfRun(BaselineRun):
    """A conditional random field and each word's most frequent tag; for a `tagging.TaggingTask`."""

    predictor = CRF
    module = "crf"
    form_of_outputs = "tags and probabilities, of each predictor"

    def options(self):
        column = str(self.task.cfg.conllu_column)
        return [] if column == CONLLU_COLUMNS[0] else ["--conllu-column", column]

    def predictions_of_split(self, split, outputs):
        """1 for the tag of each word, and 0 for the others: (words, labels) of each sequence."""
        num_labels = len(self.task.recorded.labels)
        tags = []
        for outputs_of_sentence in outputs:
            indices, _ = split_word_outputs(outputs_of_sentence, num_labels)
            tags.append(one_hot(indices, num_labels))
        return self.divide_among_sequences(split, tags)

    def votes_of_split(self, split, outputs):
        """The probabilities: (words, labels) of each sequence.

        The CRF's most probable sequence of tags has more than the most probable tag of each word.
        """
        num_labels = len(self.task.recorded.labels)
        probabilities = [split_word_outputs(of_sentence, num_labels)[1] for of_sentence in outputs]
        return self.divide_among_sequences(split, probabilities)

    def divide_among_sequences(self, split, sentences):
        """Divides what each sentence has for its words among the sequences that it was split into.

        Args:
            sentences: list of arrays, (words, labels)
        Returns: {index of a sequence: (words, labels)}
        """
        dataset = self.task.datasets[split]
        parts = {}
        words_before = 0  # in the same sentence
        for index, sentence in enumerate(dataset.example_of_sequence):
            if index and dataset.example_of_sequence[index - 1] != sentence:
                words_before = 0
            words_end = words_before + dataset.num_words(index)
            parts[index] = sentences[sentence][words_before:words_end]
            words_before = words_end
        return parts

    def combined_predictions(self, encoder, votes):
        """The means of the probabilities of encoder and CRF."""
        both = {}
        for split, probabilities_of_crf in votes.items():
            both[split] = {}
            for index, probabilities in probabilities_of_crf.items():
                both[split][index] = average_probabilities(encoder[split][index], probabilities)
        return {TAG_ENSEMBLE: both}


def rows_of_examples(predictions, indices):
    """The predictions, (n, K), for some examples, by their indices."""
    return np.array([predictions[index] for index in indices])
