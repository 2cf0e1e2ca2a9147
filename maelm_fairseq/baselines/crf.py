"""The baseline of tagging: what a conditional random field (CRF) scores on the same files, without
an encoder.

Its features are the word, its shape, its first and last 1 to 4 letters, and words, shapes and
endings of the two words on either side. python-crfsuite trains it, with the regularisation that its
tutorial uses. Beside it: each word's most frequent tag.
"""

import itertools
import os
import tempfile
from collections import Counter
from typing import List

import numpy as np
import pycrfsuite

from ..base.command_line import Parser
from ..base.destinations import check_new_file
from ..base.errors import UsageError
from ..base.running import run_main
from ..finetuning.conllu import COLUMN_HELP, CONLLU_COLUMNS
from ..finetuning.jackknife import JACKKNIFE_GROUPS
from ..finetuning.tagged_files import read_tagged_folder
from ..finetuning.tagged_sentences import describe_sentences
from ..metrics import compute_tag_scores, metrics_of_tags
from .baseline_scores import (
    CRF,
    MOST_FREQUENT_TAG,
    Score,
    join_word_outputs,
    save_outcome,
    scores_with_errors,
    show_scores,
)

CRF_SETTINGS = {
    "c1": 0.1,
    "c2": 0.1,
    "max_iterations": 100,
    "feature.possible_transitions": True,
}
LONGEST_AFFIX = 4  # in letters
PROBABILITY_DIGITS = 4
NEIGHBOURS = [-2, -1, 1, 2]  # the words around a word that have features, by their distance


def shape_of(word):
    """The kinds of a word's characters, without repetitions: `Xx-d` of `Boeing-747`."""
    kinds = []
    for character in word:
        if character.isupper():
            character = "X"
        elif character.isalpha():
            character = "x"
        elif character.isdigit():
            character = "d"
        kinds.append(character)
    return "".join(kind for kind, _ in itertools.groupby(kinds))


def word_features(words):
    """The features of each word of a sentence: a list of texts for each."""
    lowercased = [word.lower() for word in words]
    shapes = [shape_of(word) for word in words]
    features = []
    for place, word in enumerate(lowercased):
        features_of_word = ["bias", f"word={word}", f"shape={shapes[place]}"]
        for length in range(1, LONGEST_AFFIX + 1):
            features_of_word += [f"start={word[:length]}", f"end={word[-length:]}"]
        for distance in NEIGHBOURS:
            neighbour = place + distance
            if 0 <= neighbour < len(words):
                other = lowercased[neighbour]
                features_of_word += [
                    f"{distance} word={other}",
                    f"{distance} shape={shapes[neighbour]}",
                    f"{distance} end={other[-3:]}",
                ]
            else:
                features_of_word.append(f"{distance} outside")
        features.append(features_of_word)
    return features


class ConditionalRandomField:
    """A linear chain over the tags of a sentence.

    Args:
        sentences: list of `tagged_sentences.Sentence` to train on
    """

    def __init__(self, sentences):
        trainer = pycrfsuite.Trainer(verbose=False)
        trainer.select("lbfgs")
        trainer.set_params(CRF_SETTINGS)
        for sentence in sentences:
            trainer.append(word_features(sentence.words), sentence.tags)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model")
            trainer.train(path)
            self.weights = read_model(path)
        self.tagger = pycrfsuite.Tagger()
        self.tagger.open_inmemory(self.weights)

    def tag(self, words):
        """The tags of the words of a sentence: those of the most probable sequence."""
        return self.tagger.tag(word_features(words))

    def probabilities(self, words, labels):
        """The probabilities of labels, all of training, for each word: (words, labels).

        They are rounded, as they are in files, so that they vote alike wherever they come from.
        """
        self.tagger.set(word_features(words))
        probabilities = np.zeros((len(words), len(labels)))
        for place, column in np.ndindex(*probabilities.shape):
            probabilities[place, column] = self.tagger.marginal(labels[column], place)
        return probabilities.round(PROBABILITY_DIGITS)


def read_model(path):
    """The contents of a model of python-crfsuite, which does not notice that a disk is full.

    The header has the size of the file.
    """
    with open(path, "rb") as stream:
        model = stream.read()
    if int.from_bytes(model[4:8], "little") != len(model):
        raise UsageError(
            f"{path}: the CRF could not be written as a whole; make room there, or set TMPDIR to a "
            "folder that has room"
        )
    return model


class MostFrequentTags:
    """Gives each word the tag that it has most often in training.

    Others get the most frequent tag of all.

    Args:
        sentences: list of `tagged_sentences.Sentence` to train on
    """

    def __init__(self, sentences):
        counts = {}
        for sentence in sentences:
            for word, tag in zip(sentence.words, sentence.tags):
                counts.setdefault(word, Counter())[tag] += 1
        self.tags = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
        self.default = sum(counts.values(), Counter()).most_common(1)[0][0]

    def tag(self, words):
        """The tags of the words of a sentence."""
        return [self.tags.get(word, self.default) for word in words]


class TaggedSentences:
    """The tagged sentences of a folder.

    Attributes:
        train: list of `tagged_sentences.Sentence`
        sentences_by_file: {name of a scored file: list of Sentences}
        labels: in order
        metrics: their names
        summary: what was read, lines for the user
    """

    def __init__(self, folder, column=CONLLU_COLUMNS[0]):
        self.labels, files, self.summary = read_tagged_folder(folder, column)
        self.metrics = metrics_of_tags(self.labels)
        self.sentences_by_file = {}
        for path, sentences in files.items():
            self.summary.append(f"{path}: {describe_sentences(sentences)}")
            self.sentences_by_file[os.path.basename(path)] = sentences
        self.train = self.sentences_by_file.pop(next(iter(self.sentences_by_file)))


def baseline_tags(tagged, crf):
    """What each predictor predicts for the scored files of a `TaggedSentences`.

    Returns: {predictor: {name of a file: the tags of each sentence}}
    """
    predictions = {}
    for name, predictor in {CRF: crf, MOST_FREQUENT_TAG: MostFrequentTags(tagged.train)}.items():
        predictions[name] = {
            file: [predictor.tag(sentence.words) for sentence in sentences]
            for file, sentences in tagged.sentences_by_file.items()
        }
    return predictions


def score_tagged_files(tagged, predictions) -> List[Score]:
    """The scores of `baseline_tags` on every file with tags."""
    scores = []
    for file, sentences in tagged.sentences_by_file.items():
        targets = [sentence.tags for sentence in sentences]
        for predictor, tags_by_file in predictions.items():
            predicted = tags_by_file[file]

            def score_subset(rows, targets=targets, predicted=predicted):
                kept = [[tags[row] for row in rows] for tags in (targets, predicted)]
                return compute_tag_scores(tagged.metrics, *kept)

            scores += scores_with_errors(
                predictor, file, score_subset, len(targets), JACKKNIFE_GROUPS
            )
    return scores


def outputs_by_file(tagged, crf, predictions):
    """What each predictor says of each word of the scored files of a `TaggedSentences`.

    Args:
        predictions: of `baseline_tags`
    Returns: {predictor: {name of a file: a list for each sentence, of `join_word_outputs`}}
    """
    outputs = {}
    for predictor, tags_by_file in predictions.items():
        outputs[predictor] = {}
        for file, tags_of_sentences in tags_by_file.items():
            rows = outputs[predictor][file] = []
            for sentence, tags in zip(tagged.sentences_by_file[file], tags_of_sentences):
                indices = [tagged.labels.index(tag) for tag in tags]
                if predictor == CRF:
                    probabilities = crf.probabilities(sentence.words, tagged.labels)
                else:
                    probabilities = np.eye(len(tagged.labels))[indices]
                rows.append(join_word_outputs(indices, probabilities))
    return outputs


def add_column_option(parser):
    """Adds the option that says which column of CoNLL-U has the tags."""
    parser.add_argument(
        "--conllu-column",
        default=CONLLU_COLUMNS[0],
        choices=CONLLU_COLUMNS,
        help=COLUMN_HELP,
    )


def main():
    parser = Parser("crf.py", description=__doc__)
    add = parser.add_argument
    add(
        "--labelled",
        required=True,
        metavar="DIR",
        help="folder of the tagged files, as for finetune_tagging.sh",
    )
    add_column_option(parser)
    add("--dest", metavar="FILE.json", help="also write scores and predictions to a file")
    args = parser.parse_args()
    if args.dest:
        check_new_file(args.dest)
    tagged = TaggedSentences(args.labelled, args.conllu_column)
    print(*tagged.summary, sep="\n")
    crf = ConditionalRandomField(tagged.train)
    predictions = baseline_tags(tagged, crf)
    scores = score_tagged_files(tagged, predictions)
    show_scores(scores)
    if args.dest:
        save_outcome(scores, outputs_by_file(tagged, crf, predictions), args.dest)


if __name__ == "__main__":
    run_main(main)
