"""What a fine-tuned head predicts of texts, of pairs, and of words.

Letters in shapes: T tokens of a text.
"""

import torch

from ..base.errors import UsageError
from ..base.text_input import joined_words, list_of_texts, texts_or_pairs
from ..base.tokenizer import word_sequences
from ..heads import SpanHead, TokenClassificationHead
from .fine_tuned import FineTuned


class Classification(FineTuned):
    """A model with a head that classifies texts or words, or predicts numbers."""

    def predict(self, texts, pairs=None):
        """The predictions of a fine-tuned head.

        Texts longer than the model has positions are cut as in training.

        Args:
            texts: a string, or a list of n strings; for a head for tokens, white space separates
                words, and a text may also be a list of its words
            pairs: for a head fine-tuned on pairs, the second text or a list of n
        Returns:
            {label: probability}, or a float from a head of regression; from a head for tokens a
            list with (word, label) for each word. For a list of texts, a list of n of them
        """
        self.check_can_predict(are_pairs=pairs is not None)
        head = self._head()
        labels = self.info.classes(head.out_proj.out_features)
        if isinstance(head, TokenClassificationHead):
            joined = list_of_texts(texts, joined_words)
            predictions = [self._tag(text.split(), head, labels) for text in joined]
        else:
            predictions = self._classify(texts_or_pairs(texts, pairs), head, labels)
        return predictions[0] if isinstance(texts, str) else predictions

    def check_can_predict(self, are_pairs):
        """Refuses a model that cannot predict single texts, or pairs of texts.

        Raises UsageError: it has no head, or one that was fine-tuned on something else
        """
        head = self._head()
        if isinstance(head, SpanHead):
            raise UsageError(
                "the head was fine-tuned on questions: call answer(question, context), or let "
                "recipes/finetune_squad.sh answer a test.json"
            )
        expects_pairs = self.info.texts_per_example == 2
        if self.info.is_of_sentences and are_pairs != expects_pairs:
            if are_pairs:
                right = "single texts: call predict(texts)"
            else:
                right = "pairs of texts: call predict(texts, pairs)"
            raise UsageError(f"the head was fine-tuned on {right}")
        if isinstance(head, TokenClassificationHead) and are_pairs:
            raise UsageError("the head was fine-tuned on words with tags: call predict(texts)")

    def _classify(self, examples, head, labels):
        """{label: probability} of each (text, pair), or where there are no labels a float."""
        limit = self.model.max_positions()
        tokens = [self._tokens_of_text(text, pair, limit) for text, pair in examples]
        logits = self._logits(head, tokens)
        if labels is None:
            mean, std = self.info.label_scale
            return [x.item() * std + mean for x in logits]
        return [dict(zip(labels, x.softmax(-1).tolist())) for x in logits]

    def _tag(self, words, head, labels):
        """The most probable label of each word: list of (word, label)."""
        best = self._word_probabilities(words, head).argmax(-1).tolist()
        return [(word, labels[index]) for word, index in zip(words, best)]

    def word_probabilities(self, words):
        """The probabilities of labels for each word of a text, in the order of `info.labels`.

        Args:
            words: list of strings
        Returns: (words, labels), float32, on the CPU
        Raises UsageError: the head was not fine-tuned on words with tags
        """
        head = self._head()
        if not isinstance(head, TokenClassificationHead):
            raise UsageError("the head was not fine-tuned on words with tags: call predict(texts)")
        return self._word_probabilities(words, head)

    def _word_probabilities(self, words, head):
        """As `word_probabilities`, by a head for tokens."""
        probabilities = [torch.zeros(0, head.out_proj.out_features)]
        limit = self.model.max_positions()
        for tokens, starts in word_sequences(self.tokenizer, words, limit):
            (logits,) = self._logits(head, [torch.tensor(tokens)])
            probabilities.append(logits[starts].softmax(-1))
        return torch.cat(probabilities)
