"""Few labelled examples: an encoder fine-tuned on some of each class, beside a bag of words of the same examples.

The examples of a draw are those of the few-shot probes of recipes/evaluate.sh, and so are the scored ones: all others.
"""

import sys
from dataclasses import replace

import numpy as np
import torch

from classifier import Classifier, Examples, Settings, predict, train
from maelm_fairseq.checkpoints.building import read_checkpoint
from maelm_fairseq.vocabulary import read_vocabulary
from measure import RECIPES

sys.path.append(str(RECIPES))
from bag_of_words import Counts, vote  # noqa: E402
from evaluation.few_shot import training_examples  # noqa: E402
from evaluation.labelled_tasks import load_task  # noqa: E402
from evaluation.probes import score  # noqa: E402
from votes import BAG_OF_WORDS, TOGETHER, answer, spread, together  # noqa: E402

FINE_TUNED = "fine-tuned"
DRAWS = 10
SETTINGS = replace(Settings(), epochs=30)  # not tuned


class FewLabels:
    """A task of classes, of which few examples are trained on.

    Args:
        checkpoint: path of the encoder
        data: folder of its vocabulary
        folder: of the task, as for recipes/evaluate.sh
    """

    def __init__(self, checkpoint, data, folder):
        self.checkpoint, self.task = checkpoint, load_task(str(folder))
        self.dictionary, tokenizer = read_vocabulary(str(data))
        positions = read_checkpoint(checkpoint)["cfg"]["model"]["max_positions"]
        self.examples = Examples(self.task.texts, self.task.targets, tokenizer, positions)
        self.counts = Counts([(text,) for text in self.task.texts])

    def draw(self, shots, repeat):
        """The scores of draw `repeat` of `shots` examples of each class.

        Returns: {FINE_TUNED, BAG_OF_WORDS or TOGETHER: percent}
        """
        task = self.task
        rows = training_examples(task, shots, repeat)
        rest = np.flatnonzero(~np.isin(task.ids, task.ids[rows]))
        torch.manual_seed(repeat)
        model = Classifier(self.checkpoint, self.dictionary, len(task.labels), SETTINGS)
        train(model, self.examples, rows, SETTINGS, np.random.default_rng(repeat))
        encoder = predict(model, self.examples, rest)
        bag_of_words = vote(self.counts, task.targets, rows, rest)
        spreads = spread(encoder), spread(bag_of_words)
        votes = {FINE_TUNED: encoder, BAG_OF_WORDS: bag_of_words, TOGETHER: together(encoder, bag_of_words, spreads)}
        return {name: score(answer(each), task.targets[rest]) for name, each in votes.items()}

    def scores(self, shots):
        """The mean scores over DRAWS draws, of each predictor."""
        draws = [self.draw(shots, repeat) for repeat in range(DRAWS)]
        return {name: float(np.mean([draw[name] for draw in draws])) for name in draws[0]}
