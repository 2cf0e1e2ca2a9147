"""What the encoder computes of texts: its layers, features of tokens and words, vectors of texts.

Letters in shapes: B texts, T tokens of a text, W words, C width, L layers of the encoder.
"""

import operator
from itertools import chain

import torch
import torch.nn.functional as F

from ..base.errors import UsageError
from ..base.text_input import checked_text
from ..base.words import word_spans
from ..data.batching import batches_of_similar_length
from .text_model import SHORTEN_OR_SPLIT, TextModel, checked_tokens, lengths_of

BATCH_TOKENS = 2048  # of a batch, including padding


class Encoding(TextModel):
    """A model whose encoder is read."""

    def layers(self, tokens):
        """Runs the encoder on tokens (B, T), padded at the end only, in batches of similar length.

        Yields:
            the indices of n rows (n,); which of their tokens are padding (n, t);
            layers 0 to L, a list of (n, t, C)
        Raises:
            TypeError: not a tensor of integers of two dimensions
            UsageError: no tokens of this vocabulary, or padding elsewhere
        """
        tokens = checked_tokens(tokens, len(self.dictionary), dimensions=(2,))
        return self.layers_of_batches(tokens)

    @torch.no_grad()
    def layers_of_batches(self, tokens):
        """As `layers`, of tokens that have been checked or come from the tokenizer."""
        if not len(tokens):
            return
        pad = self.dictionary.pad()
        lengths = lengths_of(tokens, pad)
        longest = int(lengths.argmax())
        self.check_length(int(lengths[longest]), f"text {longest + 1} of {len(lengths)}")
        for rows in batches_of_similar_length(lengths, BATCH_TOKENS):
            batch = tokens[rows, : int(lengths[rows].max())].to(self.device)
            padding = batch.eq(pad)
            has_padding = bool(padding.any())
            hidden_states = self.model.forward_encoder(
                batch, has_padding=has_padding, all_layers=True
            )
            yield rows, padding, hidden_states

    def extract_features(self, texts, all_layers=False, truncate=False):
        """The encoder's features of each token.

        Args:
            texts: a string or a list of B strings; or tokens from `encode`, (T,) or (B, T), padded
                at the end only
            all_layers: return layers 0 (the embeddings) to L instead of the last one
            truncate: cut longer texts to the model's positions
        Returns: (T, C), or (B, T, C) with zeros at padding, on the model's device; with
            `all_layers` (L + 1, ...)
        """
        tokens = self._given_tokens(texts, truncate)
        batch = tokens if tokens.dim() == 2 else tokens[None]
        weight = self.model.embed_tokens.weight
        count = len(self.model.encoder.layers) + 1 if all_layers else 1
        features = weight.new_zeros(count, *batch.shape, weight.size(1))
        for rows, padding, hidden_states in self.layers_of_batches(batch):
            batch_features = torch.stack(hidden_states[-count:]).masked_fill(padding[..., None], 0)
            features[:, rows, : padding.size(1)] = batch_features
        features = features if all_layers else features[0]
        return features if tokens.dim() == 2 else features.squeeze(-3)

    def _given_tokens(self, texts, truncate):
        """Tokens, (T,) or (B, T), of texts; or the tokens that were given instead."""
        if isinstance(texts, torch.Tensor):
            return checked_tokens(texts, len(self.dictionary))
        return self.encode(texts, truncate=truncate)

    def embed(self, texts, truncate=False, normalize=False, layer=None):
        """One vector for each text: the mean of a layer over all tokens, `<s>` and `</s>` included.

        Args:
            texts, truncate: as for `extract_features`
            normalize: divide each vector by its length
            layer: from 0, the embeddings, to L; None for the last
        Returns: float32 (C,), or (B, C), on the model's device
        """
        last = len(self.model.encoder.layers)
        layer = last if layer is None else int(operator.index(layer))
        if layer not in range(last + 1):
            raise UsageError(f"layer {layer} must be from 0 to {last}, the layers of the encoder")
        tokens = self._given_tokens(texts, truncate)
        batch = tokens if tokens.dim() == 2 else tokens[None]
        weight = self.model.embed_tokens.weight
        vectors = weight.new_zeros(len(batch), weight.size(1), dtype=torch.float32)
        for rows, padding, hidden_states in self.layers_of_batches(batch):
            features = hidden_states[layer].float().masked_fill(padding[..., None], 0)
            vectors[rows] = features.sum(1) / (~padding).sum(1, keepdim=True)
        if normalize:
            vectors = F.normalize(vectors, dim=1)
        return vectors if tokens.dim() == 2 else vectors[0]

    def words(self, text):
        """The words of a text: list of strings.

        White space separates them; in scripts without it, each piece is a word: see `base.words`.
        """
        return [text[begin:end] for begin, end in word_spans(self.tokenizer, checked_text(text))]

    def word_features(self, text):
        """Features of words: the mean over the pieces of each.

        Args:
            text: a string of W words
        Returns:
            words: list of W strings, as of `words`
            features: (W, C); nan for a word that is normalised to nothing
        """
        words = self.words(text)
        pieces_of_words = self.tokenizer.encode_words(words)
        pieces = chain.from_iterable(pieces_of_words)
        tokens = [self.dictionary.bos(), *pieces, self.dictionary.eos()]
        self.check_length(len(tokens), advice=SHORTEN_OR_SPLIT)
        features = self.extract_features(torch.tensor(tokens))[1:-1]
        if not words:
            return words, features
        counts = [len(pieces) for pieces in pieces_of_words]
        means = [token_features.mean(0) for token_features in features.split(counts)]
        return words, torch.stack(means)
