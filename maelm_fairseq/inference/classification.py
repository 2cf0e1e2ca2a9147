"""What a fine-tuned head predicts of texts, of pairs, and of words: `hub.MaeLm.predict`.

Letters in shapes: T tokens of a text.
"""

import torch

from ..base.errors import UsageError
from ..base.tokenizer import word_sequences
from ..finetuning.tag_sequences import most_probable_tags
from ..heads import SpanHead, TokenClassificationHead
from .fine_tuned import head_of, logits_of_texts


def check_can_predict(mae_lm, are_pairs):
    """Refuses a model that cannot predict single texts, or pairs of texts.

    Raises UsageError: it has no head, or one that was fine-tuned on something else
    """
    head = head_of(mae_lm)
    if isinstance(head, SpanHead):
        raise UsageError(
            "the head was fine-tuned on questions: call answer(question, context), or let "
            "recipes/finetune_squad.sh answer a test.json"
        )
    expects_pairs = mae_lm.info.texts_per_example == 2
    if mae_lm.info.is_of_sentences and are_pairs != expects_pairs:
        if are_pairs:
            right = "single texts: call predict(texts)"
        else:
            right = "pairs of texts: call predict(texts, pairs)"
        raise UsageError(f"the head was fine-tuned on {right}")
    if isinstance(head, TokenClassificationHead) and are_pairs:
        raise UsageError("the head was fine-tuned on words with tags: call predict(texts)")


def classify(mae_lm, examples):
    """{label: probability} of each (text, pair), or a float from a head of regression."""
    head = head_of(mae_lm)
    labels = labels_of(mae_lm, head)
    limit = mae_lm.model.max_positions()
    tokens = [mae_lm.tokens_of_text(text, pair, limit) for text, pair in examples]
    logits = logits_of_texts(mae_lm, head, tokens)
    if labels is None:
        mean, std = mae_lm.info.label_scale
        return [x.item() * std + mean for x in logits]
    return [dict(zip(labels, x.softmax(-1).tolist())) for x in logits]


def labels_of(mae_lm, head):
    """The names of a head's classes, in order; None of a head of regression."""
    return mae_lm.info.classes(head.out_proj.out_features)


def is_tagger(mae_lm):
    """Whether the head was fine-tuned on words with tags."""
    return isinstance(head_of(mae_lm), TokenClassificationHead)


def is_regression(mae_lm):
    """Whether the head predicts values."""
    return labels_of(mae_lm, head_of(mae_lm)) is None


def tag(mae_lm, words):
    """The labels of words, by `tag_sequences.most_probable_tags`: list of (word, label)."""
    labels = labels_of(mae_lm, head_of(mae_lm))
    probabilities = word_probabilities(mae_lm, words).numpy()
    return list(zip(words, most_probable_tags(probabilities, labels, mae_lm.info.tags_are_legal)))


def word_probabilities(mae_lm, words):
    """See `hub.MaeLm.word_probabilities`."""
    if not is_tagger(mae_lm):
        raise UsageError("the head was not fine-tuned on words with tags: call predict(texts)")
    head = head_of(mae_lm)
    probabilities = [torch.zeros(0, head.out_proj.out_features)]
    limit = mae_lm.model.max_positions()
    for tokens, starts in word_sequences(mae_lm.tokenizer, words, limit):
        (logits,) = logits_of_texts(mae_lm, head, [torch.tensor(tokens)])
        probabilities.append(logits[starts].softmax(-1))
    return torch.cat(probabilities)
