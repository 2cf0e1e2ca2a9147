"""What a fine-tuned head predicts of texts, of pairs, and of words.

Letters in shapes: T tokens of a text.
"""

import torch

from ..base.errors import UsageError
from ..base.subwords import word_sequences
from ..base.text_input import joined_words, list_of_texts, texts_or_pairs
from ..heads import SpanHead, TokenClassificationHead, only_head
from .encoding import layers_of_batches
from .token_tensors import padded, tokens_of_text


def predict(hub_model, texts, pairs):
    """As `hub.MaeLm.predict`."""
    head = head_of(hub_model)
    is_tagger = isinstance(head, TokenClassificationHead)
    if isinstance(head, SpanHead):
        raise UsageError(
            "the head was fine-tuned on questions: call answer(question, context), or let "
            "recipes/finetune_squad.sh answer a test.json"
        )
    labels = hub_model.facts.classes(head.out_proj.out_features)
    check_pairs(hub_model.facts, is_tagger, pairs is not None)
    if is_tagger:
        joined = list_of_texts(texts, joined_words)
        predictions = [tag(hub_model, text.split(), head, labels) for text in joined]
    else:
        predictions = classify(hub_model, texts_or_pairs(texts, pairs), head, labels)
    return predictions[0] if isinstance(texts, str) else predictions


def head_of(hub_model):
    """The head of fine-tuning; refuses a model without one."""
    heads = hub_model.model.classification_heads
    name = only_head(heads)
    if name is None:
        raise UsageError("the checkpoint has no head: predictions need a fine-tuned model")
    return heads[name]


def check_pairs(facts, is_tagger, are_pairs):
    """Refuses pairs for a model of single texts, and single texts for a model of pairs."""
    if facts.is_of_sentences and are_pairs != (facts.texts_per_example == 2):
        if are_pairs:
            right = "single texts: call predict(texts)"
        else:
            right = "pairs of texts: call predict(texts, pairs)"
        raise UsageError(f"the head was fine-tuned on {right}")
    if is_tagger and are_pairs:
        raise UsageError("the head was fine-tuned on words with tags: call predict(texts)")


def classify(hub_model, rows, head, labels):
    """{label: probability} of each (text, pair), or where there are no labels a float."""
    limit = hub_model.model.max_positions()
    tokens = [tokens_of_text(hub_model, text, pair, limit) for text, pair in rows]
    logits = logits_of(hub_model, head, tokens)
    if labels is None:
        mean, std = hub_model.facts.label_scale
        return [x.item() * std + mean for x in logits]
    return [dict(zip(labels, x.softmax(-1).tolist())) for x in logits]


def tag(hub_model, words, head, labels):
    """The most probable label of each word: list of (word, label)."""
    tags = []
    limit = hub_model.model.max_positions()
    for tokens, starts in word_sequences(hub_model.tokenizer, words, limit):
        (logits,) = logits_of(hub_model, head, [torch.tensor(tokens)])
        tags += [labels[i] for i in logits[starts].argmax(-1).tolist()]
    return list(zip(words, tags))


@torch.no_grad()
def logits_of(hub_model, head, rows):
    """The float32 logits of n texts (T_i,) on the CPU.

    Returns: a list of n, (classes,) each, or (T_i, classes)
    """
    if not rows:
        return []
    logits = [None] * len(rows)
    batch = padded(rows, hub_model.dictionary.pad())
    for indices, padding, hidden in layers_of_batches(hub_model, batch):
        outputs = head(hidden[-1], padding=padding).float().cpu()
        for i, output, real in zip(indices.tolist(), outputs, ~padding.cpu()):
            logits[i] = output[real] if output.dim() == 2 else output
    return logits
