"""The bag of words beside fine-tuning: in a process of its own, no longer than training took."""

import itertools
import os
import sys
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


class Measurement:
    """Baselines on the files of a fine-tuning run.

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
        made_from = [
            (name, sha256(files[split])) for name, split in sorted(self.split_of_file.items())
        ]
        self.name = f"bag_of_words-{short_checksum([made_from, self.is_regression])}"
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
        status = jobs.run(command, log)
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

    def results(self, found, encoder, answered):
        """A `finetune_results.Result` for each score.

        There is also one for each score of the encoder and the bag of words together.

        Args:
            found: `Baselines`
            encoder: list of Results of the encoder on the same files
            answered: {split: answers of the encoder's reported model}
        """
        others = self.answers(found)
        votes = {split: self.votes(split, answered, others) for split in others}
        settings = f"{encoder[0].settings} {self.name}"
        of_both = [self.result(score, settings) for score in self.together(votes)]
        bags = {}
        for score in found.scores:
            if score.predictor == BAG_OF_WORDS:
                bags[score.file, score.metric] = score.value
        for results, answers in [(encoder, answered), (of_both, votes)]:
            errors = {}  # of each split, once for all of its metrics
            for split in others:
                errors[split] = self.error_of_difference(split, answers[split], others[split])
            for result in results:
                if (result.file_name, result.metric) in bags:
                    bag = bags[result.file_name, result.metric]
                    result.lead = float(np.median(result.bounded)) - bag
                    result.lead_error = errors[self.split_of_file[result.file_name]][result.metric]
        results = []
        leads = {(result.file_name, result.metric): result for result in encoder}
        for score in found.scores:
            note = ""
            if score.predictor == BAG_OF_WORDS:
                result = leads[score.file, score.metric]
                note = f" (difference {result.lead:+.2f} ± {result.lead_error:.2f})"
            results.append(self.result(score, self.name, note))
        for result in of_both:
            result.note = f" (difference {result.lead:+.2f} ± {result.lead_error:.2f})"
        return results + of_both

    def answers(self, found):
        """The outputs of the bag of words as answers of the task.

        Args:
            found: `Baselines`
        Returns: {split: {index of an example: outputs}}
        """
        answers = {}
        for name, outputs in found.outputs.items():
            split = self.split_of_file[name]
            indices = self.task.datasets[split].labelled_examples()
            answers[split] = dict(zip(indices, outputs))
        return answers

    def result(self, score, settings, note=""):
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

    def votes(self, split, answered, others):
        """What the encoder and the bag of words answer together: {index of an example: outputs}.

        Args:
            answered: of the encoder, {split: {index of an example: outputs}}
            others: of the bag of words, likewise
        """
        spreads = []
        for answers in (answered, others):
            spreads.append(spread(outputs_of_examples(answers["valid"], others["valid"])))
        indices = [*others[split]]
        encoder = outputs_of_examples(answered[split], indices)
        bag_of_words = outputs_of_examples(others[split], indices)
        return dict(zip(indices, together(encoder, bag_of_words, spreads).tolist()))

    def together(self, votes):
        """The scores of `votes`, {split: votes}: list of `votes.Score`."""
        together_scores = []
        for name, split in self.split_of_file.items():
            if split not in votes:
                continue
            scores = partial(scores_of_examples, self.task, self.task.datasets[split], votes[split])
            errors = standard_errors(scores, [*votes[split]], MAX_JACKKNIFE_GROUPS)
            for metric, value in scores([*votes[split]]).items():
                together_scores.append(Score(TOGETHER, name, metric, value, errors[metric]))
        return together_scores

    def error_of_difference(self, split, encoder, bag_of_words):
        """The standard error of an encoder's score minus that of a bag of words, by metric.

        The scores are paired by examples.
        """
        dataset = self.task.datasets[split]

        def difference(indices):
            of_encoder = scores_of_examples(self.task, dataset, encoder, indices)
            of_bag = scores_of_examples(self.task, dataset, bag_of_words, indices)
            return {metric: of_encoder[metric] - of_bag[metric] for metric in of_encoder}

        return standard_errors(difference, [*bag_of_words], MAX_JACKKNIFE_GROUPS)


def outputs_of_examples(answers, indices):
    """The outputs, (n, K), of some answers, by the indices of their examples."""
    return np.array([answers[index] for index in indices])
