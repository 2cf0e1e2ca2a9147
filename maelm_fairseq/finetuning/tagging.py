"""Fine-tuning on words with tags, as in CoNLL: named entities, parts of speech."""

import itertools
from dataclasses import dataclass

import numpy as np

from ..base.errors import counted
from ..base.option_fields import setting
from ..base.tokenizer import UNKNOWN, word_sequences
from ..fairseq_api import ChoiceEnum, FairseqDataclass, register_criterion, register_task
from ..heads import TokenClassificationHead
from ..metrics import (
    compute_tag_scores,
    flatten,
    has_entities,
    metrics_of_tags,
    report_of_tags,
    tag_of_no_entity,
)
from .conllu import COLUMN_HELP, CONLLU_COLUMNS
from .finetuning_criterion import FineTuningCriterion
from .finetuning_dataset import IGNORE_INDEX, FineTuningDataset
from .finetuning_task import FineTuningConfig, FineTuningTask
from .hyperparameters import BASE_WIDTH, Hyperparameters, defaults_for_width, small_encoder_defaults
from .labelled_files import is_test_split
from .labels import classes_of_training, index_of_label
from .tag_sequences import are_legal, find_illegal, most_probable_tags
from .tagged_files import TAGGED_FILES, read_tagged
from .tagged_sentences import describe_sentences, why_not_scored


@dataclass
class TaggingConfig(FineTuningConfig):
    conllu_column: ChoiceEnum(CONLLU_COLUMNS) = setting(CONLLU_COLUMNS[0], COLUMN_HELP)


class TaggedDataset(FineTuningDataset):
    """Sentences of words; those that are too long for the model are several sequences of tokens.

    Args:
        sentences: list of `tagged_sentences.Sentence`, an attribute
        common: arguments of `FineTuningDataset`
    """

    def __init__(self, sentences, **common):
        super().__init__(**common)
        self.sentences = sentences

    def num_words(self, index):
        """The words in a sequence."""
        return int((self.targets[index] != IGNORE_INDEX).sum())


@register_task("mae_lm_tokens", dataclass=TaggingConfig)
class TaggingTask(FineTuningTask):
    """Reads train.txt, dev.txt and perhaps test.txt of `tagged_files.read_tagged`.

    The first token of a word has its label. Sentences that are longer than the model has positions
    are cut between words. Its state: `labels`, in order, and `tags_are_legal`; see `tag_sequences`.
    """

    recipe_help = (
        "--conllu-column xpos (or feats, deprel) to read tags from a column other than upos"
    )
    files = TAGGED_FILES
    head_name = "tokens"
    needed_state = ("labels",)

    @classmethod
    def default_settings(cls, folder_name, width, num_layers):
        """BERT's settings, apart from the epochs; as for `FineTuningTask.default_settings`."""
        hyperparameters = Hyperparameters(32, 3e-5, 1 / 10, 5)
        if width < BASE_WIDTH:
            return small_encoder_defaults(hyperparameters, width, num_layers)
        return defaults_for_width(hyperparameters, [2, 3, 5, 10], width)

    def read(self, path, split):
        return read_tagged(path, is_test_split(split), str(self.cfg.conllu_column))

    def record_prediction_state(self, path, sentences):
        tags = [sentence.tags for sentence in sentences]
        labels = classes_of_training(path, flatten(tags))
        self.record_state(labels=labels, tags_are_legal=are_legal(tags, labels))

    def add_head(self, model):
        cfg = model.cfg
        head = TokenClassificationHead(
            cfg.encoder_embed_dim, len(self.recorded.labels), cfg.pooler_dropout
        )
        model.register_head(self.head_name, head)

    def make_dataset(self, path, split, sentences):
        sequences = []
        targets = []
        sentence_of_sequence = []  # its index
        outcome = ""
        if is_test_split(split):
            reason = why_not_scored(sentences, self.recorded.labels)
            outcome = "; it has tags and is scored at the end"
            if reason:
                sentences = [sentence._replace(tags=[]) for sentence in sentences]
                outcome = f"; not scored, as {reason}"
        for i, sentence in enumerate(sentences):
            labels = self.labels_of(sentence, path, split)
            for joined, starts in word_sequences(self.tokenizer, sentence.words, self.max_tokens):
                target = np.full(len(joined), IGNORE_INDEX)
                target[starts] = labels[: len(starts)]
                labels = labels[len(starts) :]
                sequences.append(joined)
                targets.append(target)
                sentence_of_sequence.append(i)
        metrics = self.metrics_of(sentences, split)
        summary = f"{path}: {self.summary_of(sentences, len(sequences))}{outcome}"
        summary += "".join(f"; {note}" for note in self.notes(sentences, split))
        return TaggedDataset(
            sentences,
            task=self,
            split=split,
            sequences=sequences,
            targets=targets,
            summary=summary,
            metrics=metrics,
            example_of_sequence=sentence_of_sequence,
        )

    def notes(self, sentences, split):
        """Yields what a user should know of tags, and can mend."""
        labels = self.recorded.labels
        all_tags = [sentence.tags for sentence in sentences]
        if not has_entities(labels):
            other_tag = tag_of_no_entity(labels)
            if split == "train" and other_tag:
                yield (
                    "scored by accuracy, not by F1 of entities, as the tag "
                    f"{other_tag!r} is neither O nor of BIO, BIOES or BILOU"
                )
        elif split == "train":
            illegal = find_illegal(all_tags, labels)
            if illegal:
                index, word = next(iter(illegal.items()))
                sentence = sentences[index]
                yield (
                    f"{counted(len(illegal), 'sentence')} with an entity that goes on without a "
                    f"beginning, or has no end, the first in line {sentence.lines[word]} "
                    f"({sentence.tags[word]})"
                )
                if not self.recorded.tags_are_legal:
                    yield "so each word gets its most probable tag by itself"
            if self.ignores_capitals(sentences):
                yield (
                    "the vocabulary has no capitals, which names have: prepare the encoder's text "
                    "without --lowercase"
                )
        elif any(all_tags) and set(flatten(all_tags)) <= {"O"}:
            yield "no entities, so that F1 is undefined"

    def ignores_capitals(self, sentences):
        """Whether the vocabulary makes small letters of the capitals in words that it knows."""
        for word in flatten(sentence.words for sentence in sentences):
            if word == word.lower():
                continue
            pieces = self.tokenizer.encode(word.lower())
            if UNKNOWN not in pieces:
                return self.tokenizer.encode(word) == pieces
        return False

    def summary_of(self, sentences, parts):
        """What the log says about sentences and the number of sequences that they became."""
        summary = describe_sentences(sentences)
        more_parts = parts - len(sentences)
        if more_parts:
            summary += f"; sentences of more than {self.max_tokens} tokens are split"
            summary += f", into {more_parts:,} more parts"
        return summary

    def metrics_of(self, sentences, split):
        """The names of the scores of a split; none for a test file without tags."""
        if is_test_split(split) and not sentences[0].tags:
            return []
        return metrics_of_tags(self.recorded.labels)

    def labels_of(self, sentence, path, split):
        """The indices of the labels of the words of a sentence; 0 in a test file."""
        if is_test_split(split):
            return [0] * len(sentence.words)
        tagged_lines = zip(sentence.tags, sentence.lines)
        classes = self.recorded.labels
        return [index_of_label(tag, classes, path, line) for tag, line in tagged_lines]

    def compute_predictions(self, output, sample, dataset):
        """The probabilities of labels of each word in a part of a sentence: (words, labels)."""
        probabilities = output.float().softmax(-1).cpu().numpy()
        is_first_token = sample["target"].cpu().numpy() != IGNORE_INDEX
        return [row[chosen] for row, chosen in zip(probabilities, is_first_token)]

    def compute_scores(self, dataset, predictions):
        return compute_tag_scores(
            dataset.metrics, *self.targets_and_predictions(dataset, predictions)
        )

    @property
    def secondary_metrics(self):
        """Of entities, all but F1."""
        return tuple(metrics_of_tags(self.recorded.labels)[1:])

    def constant_prediction(self, dataset, predictions):
        targets, predicted = map(
            set, map(flatten, self.targets_and_predictions(dataset, predictions))
        )
        return predicted.pop() if len(predicted) == 1 < len(targets) else None

    def report(self, dataset, predictions):
        return report_of_tags(
            *self.targets_and_predictions(dataset, predictions), self.recorded.labels
        )

    def targets_and_predictions(self, dataset, predictions):
        """The tags of each completely predicted sentence, and those predicted: two lists."""
        tagged = list(self.tagged(dataset, predictions))
        return [sentence.tags for sentence, _ in tagged], [tags for _, tags in tagged]

    def tagged(self, dataset, predictions):
        """Yields each completely predicted `tagged_sentences.Sentence`, and its predicted tags."""
        labels = self.recorded.labels
        only_legal = bool(self.recorded.tags_are_legal)
        sentence_of_sequence = dataset.example_of_sequence
        for i, parts in itertools.groupby(sorted(predictions), sentence_of_sequence.__getitem__):
            probabilities = np.concatenate([predictions[part] for part in parts])
            if len(probabilities) == len(dataset.sentences[i].words):
                tags = most_probable_tags(probabilities, labels, only_legal)
                yield dataset.sentences[i], tags

    def prediction_file(self, dataset, predictions, name):
        """A word and its tag per line, and an empty line after each sentence."""
        lines = []
        for sentence, tags in self.tagged(dataset, predictions):
            lines += [f"{word}\t{tag}\n" for word, tag in zip(sentence.words, tags)]
            lines.append("\n")
        return f"{name}.txt", "".join(lines)


@register_criterion("mae_lm_tokens", dataclass=FairseqDataclass)
class TaggingCriterion(FineTuningCriterion):
    """Cross-entropy of the words' labels; see `finetuning_criterion.FineTuningCriterion`."""
