"""What the encoder computes of texts: its layers, features of tokens and words, vectors of texts.

Letters in shapes: B texts, T tokens of a text, W words, C width, L layers of the encoder.
"""

import operator
from itertools import chain

import torch
import torch.nn.functional as F

from ..base.errors import UsageError
from ..data.batches import batches_of_similar_length
from .token_tensors import SHORTEN_OR_SPLIT, check_length, checked_tokens, encode, lengths_of

BATCH_TOKENS = 2048  # of a batch, including padding


def layers(hub_model, tokens):
    """As `hub.MaeLm.layers`."""
    vocabulary = len(hub_model.dictionary)
    return layers_of_batches(hub_model, checked_tokens(tokens, vocabulary, dimensions=(2,)))


@torch.no_grad()
def layers_of_batches(hub_model, tokens):
    """As `layers`, of tokens that have been checked or come from the tokenizer."""
    model, pad = hub_model.model, hub_model.dictionary.pad()
    lengths = lengths_of(tokens, pad)
    longest = int(lengths.argmax())
    check_length(hub_model, int(lengths[longest]), f"text {longest + 1} of {len(lengths)}")
    for rows in batches_of_similar_length(lengths, BATCH_TOKENS):
        batch = tokens[rows, : int(lengths[rows].max())].to(hub_model.device)
        padding = batch.eq(pad)
        yield (
            rows,
            padding,
            model.forward_encoder(batch, padded=bool(padding.any()), all_layers=True),
        )


def extract_features(hub_model, texts, all_layers, truncate):
    """As `hub.MaeLm.extract_features`."""
    tokens = given_tokens(hub_model, texts, truncate)
    batch = tokens if tokens.dim() == 2 else tokens[None]
    weight = hub_model.model.embed_tokens.weight
    count = len(hub_model.model.encoder.layers) + 1 if all_layers else 1
    features = weight.new_zeros(count, *batch.shape, weight.size(1))
    for rows, padding, hidden in layers_of_batches(hub_model, batch):
        of_batch = torch.stack(hidden[-count:]).masked_fill(padding[..., None], 0)
        features[:, rows, : padding.size(1)] = of_batch
    features = features if all_layers else features[0]
    return features if tokens.dim() == 2 else features.squeeze(-3)


def given_tokens(hub_model, texts, truncate):
    """Tokens, (T,) or (B, T), of texts; or the tokens that were given instead."""
    if isinstance(texts, torch.Tensor):
        return checked_tokens(texts, len(hub_model.dictionary))
    return encode(hub_model, texts, None, truncate)


def embed(hub_model, texts, truncate, normalize, layer):
    """As `hub.MaeLm.embed`."""
    last = len(hub_model.model.encoder.layers)
    layer = last if layer is None else int(operator.index(layer))
    if layer not in range(last + 1):
        raise UsageError(f"layer {layer} must be from 0 to {last}, the layers of the encoder")
    tokens = given_tokens(hub_model, texts, truncate)
    batch = tokens if tokens.dim() == 2 else tokens[None]
    weight = hub_model.model.embed_tokens.weight
    vectors = weight.new_zeros(len(batch), weight.size(1), dtype=torch.float32)
    for rows, padding, hidden in layers_of_batches(hub_model, batch):
        features = hidden[layer].float().masked_fill(padding[..., None], 0)
        vectors[rows] = features.sum(1) / (~padding).sum(1, keepdim=True)
    if normalize:
        vectors = F.normalize(vectors, dim=1)
    return vectors if tokens.dim() == 2 else vectors[0]


def word_features(hub_model, words):
    """The features of a list of W words, as of `hub.MaeLm.word_features`: (W, C)."""
    pieces_of_words = hub_model.tokenizer.encode_words(words)
    pieces = chain.from_iterable(pieces_of_words)
    dictionary = hub_model.dictionary
    tokens = [dictionary.bos(), *pieces, dictionary.eos()]
    check_length(hub_model, len(tokens), fix=SHORTEN_OR_SPLIT)
    features = extract_features(hub_model, torch.tensor(tokens), False, False)[1:-1]
    if not words:
        return features
    counts = [len(pieces) for pieces in pieces_of_words]
    means = [of_word.mean(0) for of_word in features.split(counts)]
    return torch.stack(means)
