#!/usr/bin/env python3
"""Labels new texts with a bag of words or a CRF, alone or together with a fine-tuned encoder.

    python recipes/label_texts.py --labelled DIR --texts FILE --dest FILE.tsv
        [--checkpoint FILE --data DIR]

A bag of words is trained on labelled sentences, in seconds, or a conditional random field (CRF) on
words with tags. --texts has a text in each line, plain or gzip; for pairs, two texts with a tab
between them. --dest receives a line for each, in the same order, in the columns that fine-tuning
reads: the label, or the value, then the text. For tagging, each line has one word, split at white
space, and its tag, and a blank line follows each text. For an encoder alone:
python -m maelm_fairseq.predict.
"""

import os

import find_environment  # noqa: F401 isort: skip  comes first
import numpy as np

from maelm_fairseq.base.command_line import Parser
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.provenance import sha256
from maelm_fairseq.base.running import run_main
from maelm_fairseq.baselines.bag_of_words import LabelledExamples, add_options
from maelm_fairseq.baselines.bag_of_words_model import BagOfWords, NgramCounts
from maelm_fairseq.baselines.crf import (
    ConditionalRandomField,
    TaggedSentences,
    add_column_option,
)
from maelm_fairseq.baselines.ensemble import average_predictions, average_probabilities
from maelm_fairseq.finetuning.conllu import CONLLU_COLUMNS
from maelm_fairseq.finetuning.labelled_files import find_file
from maelm_fairseq.finetuning.sentence_files import SENTENCE_FILES
from maelm_fairseq.finetuning.tag_sequences import most_probable_tags
from maelm_fairseq.finetuning.tagged_files import TAGGED_FILES
from maelm_fairseq.inference.text_labelling import (
    Labeller,
    add_file_options,
    check_files,
    format_value,
    label_file,
    table_header,
    table_row,
    tagged_lines,
)
from maelm_fairseq.metrics import argmax_or_value
from maelm_fairseq.predict import check_head, load_model

MIN_PROBABILITY = 1e-30  # keeps its logarithm, which is the vote, finite


def predict_class_scores(model, texts, classes):
    """The outputs of a fine-tuned encoder for n texts, lists of one or two.

    Returns: (n, classes), or (n, 1) for values
    """
    columns = map(list, zip(*texts))
    predictions = model.predict(*columns)
    if classes is None:
        return np.array(predictions)[:, None]
    probabilities = []
    for prediction in predictions:
        probabilities.append([prediction[name] for name in classes])
    return np.log(np.maximum(probabilities, MIN_PROBABILITY))


def check_encoder_matches(model, labelled, checkpoint):
    """Refuses an encoder that was fine-tuned on anything other than the labelled files."""
    info = model.info
    if not info.is_of_sentences:
        found = "fine-tuned on other data" if info.is_fine_tuned else "that was only pretrained"
        raise UsageError(
            f"--checkpoint {checkpoint}: found a model {found}, expected one that "
            "finetune_sentences.sh has fine-tuned"
        )
    found = describe_predictions(info.labels, info.texts_per_example)
    expected = describe_predictions(labelled.classes, len(labelled.texts[0]))
    if found != expected:
        advice = "give the folder that it was fine-tuned on"
        raise UsageError(
            f"--checkpoint {checkpoint}: it predicts {found}, "
            f"expected {expected}, as in --labelled; {advice}"
        )


def check_tagger_matches(model, tagged, checkpoint):
    """Refuses an encoder that was fine-tuned on anything other than the tags of the files."""
    try:
        model.word_probabilities([])
    except UsageError as error:
        fault = "expected one that finetune_tagging.sh has fine-tuned"
        raise UsageError(f"--checkpoint {checkpoint}: {error}; {fault}") from None
    tags = model.info.labels or []
    if tags != tagged.labels:
        raise UsageError(
            f"--checkpoint {checkpoint}: it predicts the tags {', '.join(tags)}, "
            f"expected {', '.join(tagged.labels)}, as in --labelled; give the folder that it was "
            "fine-tuned on, with the same --conllu-column"
        )


def note_other_training(model, labelled_folder, names):
    """Says so if an encoder was fine-tuned on another training file than that of a folder.

    Args:
        names: possible names of the files; see `labelled_files.find_file`
    """
    path = find_file(labelled_folder, "train", names)
    if model.info.train_files_sha256 and model.info.train_files_sha256[-1] != sha256(path):
        print(f"the encoder was fine-tuned on another training file than {path}")


def describe_predictions(classes, texts):
    """What is predicted of one text or of two, in words."""
    what = "values" if classes is None else f"the labels {', '.join(classes)}"
    return f"{what} of pairs of texts" if texts == 2 else f"{what} of single texts"


class SentenceLabeller(Labeller):
    """Labels sentences by a bag of words, alone or together with a fine-tuned encoder.

    Args:
        labelled: `bag_of_words.LabelledExamples`
        model: a fine-tuned `hub.MaeLm` that votes, too, or None
    """

    def __init__(self, labelled, model=None):
        self.classes = labelled.classes
        self.texts_per_line = len(labelled.texts[0])
        self.model = model
        counts = NgramCounts(labelled.texts)
        self.bag_of_words = BagOfWords(counts, labelled.targets, labelled.train_indices)
        self.name = "a bag of words"
        if model is not None:
            self.name = "an encoder and a bag of words together"
            dev = next(iter(labelled.indices_by_file.values()))
            dev_texts = [labelled.texts[index] for index in dev]
            self.dev_votes = (
                predict_class_scores(model, dev_texts, self.classes),
                self.bag_of_words.margins(dev),
            )

    def label(self, texts):
        """The labels, or the values, of texts, lists of one or two: list."""
        votes = self.bag_of_words.margins_of_others(texts)
        if self.model is not None:
            encoder_votes = predict_class_scores(self.model, texts, self.classes)
            votes = average_predictions(encoder_votes, votes, *self.dev_votes)
        predictions = argmax_or_value(votes).tolist()
        if self.classes is None:
            return predictions
        return [self.classes[int(index)] for index in predictions]

    def header(self):
        return table_header(["score" if self.classes is None else "label"], self.texts_per_line)

    def lines(self, texts):
        predictions = self.label(texts)
        if self.classes is None:
            predictions = map(format_value, predictions)
        return [table_row([field], text) for field, text in zip(predictions, texts)]


class WordTagger(Labeller):
    """Tags words by a conditional random field, alone or together with a fine-tuned encoder.

    Args:
        tagged: `crf.TaggedSentences`
        model: a fine-tuned `hub.MaeLm` that votes, too, or None
    """

    def __init__(self, tagged, model=None):
        self.tags = tagged.labels
        self.crf = ConditionalRandomField(tagged.train)
        self.model = model
        self.name = "a CRF" if model is None else "an encoder and a CRF together"

    def tag(self, words):
        """The tags of the words of a text."""
        if self.model is None:
            return self.crf.tag(words)
        encoder = self.model.word_probabilities(words).numpy()
        crf = self.crf.probabilities(words, self.tags)
        probabilities = average_probabilities(encoder, crf)
        return most_probable_tags(probabilities, self.tags, self.model.info.tags_are_legal)

    def lines(self, texts):
        words_of_texts = [text.split() for (text,) in texts]
        return [tagged_lines(zip(words, self.tag(words))) for words in words_of_texts]


def has_tagged_words(folder):
    """Whether the labelled files are of words with tags, not of sentences.

    Other texts may lie beside them: labelled files are for training and for development.

    Raises FileNotFoundError: there is no training file
    """

    def has_both_splits(names):
        return all(find_file(folder, split, names, required=False) for split in ["train", "valid"])

    has_tags = has_both_splits(TAGGED_FILES)
    if has_tags != has_both_splits(SENTENCE_FILES):
        return has_tags
    possible = {"train": [*SENTENCE_FILES["train"], *TAGGED_FILES["train"]]}
    return os.path.basename(find_file(folder, "train", possible)).startswith(
        tuple(TAGGED_FILES["train"])
    )


def make_tagger(args):
    """The `WordTagger` of the options."""
    if args.regression:
        raise UsageError(f"--regression: --labelled {args.labelled} has tags; leave it out")
    model = load_model(args.checkpoint, args.data) if args.checkpoint else None
    tagged = TaggedSentences(args.labelled, args.conllu_column)
    print(*tagged.summary, sep="\n")
    if model is not None:
        check_tagger_matches(model, tagged, args.checkpoint)
        note_other_training(model, args.labelled, TAGGED_FILES)
    return WordTagger(tagged, model)


def make_sentence_labeller(args):
    """The `SentenceLabeller` of the options."""
    if args.conllu_column != CONLLU_COLUMNS[0]:
        raise UsageError(f"--conllu-column: --labelled {args.labelled} has no tags; leave it out")
    labelled = LabelledExamples(args.labelled, args.regression)
    print(*labelled.summary, sep="\n")
    model = None
    if args.checkpoint:
        model = load_model(args.checkpoint, args.data)
        check_encoder_matches(model, labelled, args.checkpoint)
        check_head(model, args.checkpoint)
        note_other_training(model, args.labelled, SENTENCE_FILES)
    return SentenceLabeller(labelled, model)


def parse_args():
    parser = Parser("label_texts.py", description=__doc__)
    add_options(parser)
    add = parser.add_argument
    add_file_options(add)
    add(
        "--checkpoint",
        metavar="FILE_or_DIR",
        help="an encoder fine-tuned on the same files, to vote with the bag of words or the CRF",
    )
    add("--data", metavar="DIR", help="folder with the encoder's vocabulary")
    add_column_option(parser)
    args = parser.parse_args()
    if (args.checkpoint is None) != (args.data is None):
        raise UsageError(
            "--checkpoint and --data belong together: give both, or neither to use the baseline "
            "alone"
        )
    return args


def main():
    args = parse_args()
    check_files(args.texts, args.dest)
    make_labeller = make_tagger if has_tagged_words(args.labelled) else make_sentence_labeller
    label_file(make_labeller(args), args.texts, args.dest)


if __name__ == "__main__":
    run_main(main)
