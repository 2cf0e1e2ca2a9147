"""Few labelled examples: an encoder fine-tuned on a few of each class, beside a bag of words.

The examples of a draw are the same as in the few-shot probes of recipes/evaluate.sh. All others
are scored, as in those probes.
"""

from dataclasses import replace

import numpy as np
import torch

from classifier import READ_MEAN, Classifier, Examples, Settings, predict_outputs, train_classifier
from maelm_fairseq.baselines.bag_of_words_model import NgramCounts, train_and_predict_margins
from maelm_fairseq.baselines.baseline_scores import BAG_OF_WORDS
from maelm_fairseq.baselines.ensemble import ENSEMBLE, average_predictions
from maelm_fairseq.checkpoints.building import read_checkpoint
from maelm_fairseq.evaluation.few_shot import other_examples, training_examples
from maelm_fairseq.evaluation.probe_tasks import read_probe_task
from maelm_fairseq.evaluation.probes import score_predictions
from maelm_fairseq.metrics import argmax_or_value
from maelm_fairseq.vocabulary import load_dictionary_and_tokenizer

FINE_TUNED = "fine-tuned"
DRAWS_OF_LABELS = 10
# Two heads that vote, because the better one depends on the task. They were chosen with one
# encoder, on five other draws.
SETTINGS = [
    replace(Settings(), epochs=30, lr_layer_decay=0.7),
    replace(Settings(), epochs=30, lr=2e-4, pooling=READ_MEAN),
]


def average_votes(one, other):
    """The votes of two predictors together."""
    return average_predictions(one, other, one, other)


class FewLabels:
    """A classification task of which a few examples are trained on.

    Args:
        checkpoint: path of the encoder
        data: folder of its vocabulary
        folder: the task's folder, as for recipes/evaluate.sh
    """

    def __init__(self, checkpoint, data, folder):
        self.checkpoint_file = checkpoint
        self.task = read_probe_task(str(folder))
        self.dictionary, tokenizer = load_dictionary_and_tokenizer(str(data))
        positions = read_checkpoint(checkpoint)["cfg"]["model"]["max_positions"]
        texts = [text for (text,) in self.task.texts]
        self.examples = Examples(texts, self.task.targets, tokenizer, positions)
        self.counts = NgramCounts(self.task.texts)

    def draw(self, shots, repeat):
        """The scores of draw number `repeat`, which has `shots` examples of each class.

        Returns: {FINE_TUNED, BAG_OF_WORDS or ENSEMBLE: percent}
        """
        task = self.task
        train_indices = training_examples(task, shots, repeat)
        test_indices = other_examples(task, train_indices)
        one, other = [
            self.fine_tuned(train_indices, test_indices, settings, repeat) for settings in SETTINGS
        ]
        encoder = average_votes(one, other)
        bag_of_words = train_and_predict_margins(
            self.counts, task.targets, train_indices, test_indices
        )
        votes = {
            FINE_TUNED: encoder,
            BAG_OF_WORDS: bag_of_words,
            ENSEMBLE: average_votes(encoder, bag_of_words),
        }
        targets = task.targets[test_indices]
        scores = {}
        for name, outputs in votes.items():
            scores[name] = score_predictions(argmax_or_value(outputs), targets)
        return scores

    def fine_tuned(self, train_indices, test_indices, settings, seed):
        """The outputs of an encoder that is fine-tuned on a few examples, for the others."""
        torch.manual_seed(seed)
        model = Classifier(self.checkpoint_file, self.dictionary, len(self.task.labels), settings)
        train_classifier(model, self.examples, train_indices, settings, np.random.default_rng(seed))
        return predict_outputs(model, self.examples, test_indices)

    def scores(self, shots):
        """The mean scores over DRAWS_OF_LABELS draws, of each predictor."""
        draws = [self.draw(shots, repeat) for repeat in range(DRAWS_OF_LABELS)]
        means = {}
        for name in draws[0]:
            means[name] = float(np.mean([draw[name] for draw in draws]))
        return means
