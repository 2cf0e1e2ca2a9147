"""Few labelled examples: an encoder fine-tuned on some of each class, beside a bag of words of the same examples.

The examples of a draw are those of the few-shot probes of recipes/evaluate.sh, and so are the scored ones: all others.
"""

import sys
from dataclasses import replace

import numpy as np
import torch

from maelm_fairseq.vocabulary import read_vocabulary
from measure import RECIPES
from tuning import Classifier, Examples, Settings, predict, train

sys.path.append(str(RECIPES))
from bag_of_words import Counts, choose, outputs  # noqa: E402
from evaluation.few_shot import training_examples  # noqa: E402
from evaluation.labelled_tasks import load_task  # noqa: E402
from evaluation.probes import score  # noqa: E402
from votes import BAG_OF_WORDS, TOGETHER, answer, spread, together  # noqa: E402

FINE_TUNED = "fine-tuned"
DRAWS = 10
SETTINGS = replace(Settings(), epochs=30)  # not tuned


def few_labels(checkpoint, vocabulary, folder, shots, repeat):
    """The scores of one draw of `shots` examples of each class: {FINE_TUNED, BAG_OF_WORDS or TOGETHER: percent}.

    Args:
        checkpoint: path of the encoder
        vocabulary: its dictionary and tokenizer
        folder: of a task of classes, as for recipes/evaluate.sh
        repeat: the number of the draw
    """
    dictionary, tokenizer = vocabulary
    task = load_task(str(folder))
    rows = training_examples(task, shots, repeat)
    rest = np.flatnonzero(~np.isin(task.ids, task.ids[rows]))
    torch.manual_seed(repeat)
    model = Classifier(checkpoint, dictionary, len(task.labels), SETTINGS)
    examples = Examples(task.texts, task.targets, tokenizer, model.positions)
    train(model, examples, rows, SETTINGS, np.random.default_rng(repeat))
    encoder = predict(model, examples, rest)
    x = Counts([(text,) for text in task.texts]).weights(rows)
    bag_of_words = outputs(choose(x[rows], task.targets[rows]), x[rest])
    spreads = spread(encoder), spread(bag_of_words)
    votes = {FINE_TUNED: encoder, BAG_OF_WORDS: bag_of_words, TOGETHER: together(encoder, bag_of_words, spreads)}
    return {name: score(answer(each), task.targets[rest]) for name, each in votes.items()}


def few_label_scores(checkpoint, data, folder, shots):
    """The mean scores over DRAWS draws, of each predictor; see :func:`few_labels`."""
    vocabulary = read_vocabulary(str(data))
    draws = [few_labels(checkpoint, vocabulary, folder, shots, repeat) for repeat in range(DRAWS)]
    return {name: float(np.mean([draw[name] for draw in draws])) for name in draws[0]}
