"""Using a model from Python: text to tokens and back, features, filled masks, predictions.

Letters in shapes: B texts, T tokens of a text, W words, C width, L layers of the encoder.
"""

import math
import operator
import os
from itertools import chain
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from .base.errors import MissingFileError, UsageError
from .base.subwords import MASK, sequence, word_sequences
from .base.text_input import checked, is_words, text_pairs, tokens_of
from .base.words import word_places
from .checkpoints.building import build_model, find_checkpoint, read_checkpoint
from .checkpoints.facts import Facts, facts_of
from .config import check_positions
from .data.batches import batches_of_similar_length
from .finetuning.windows import (
    WindowSizes,
    best_in_window,
    best_of,
    is_empty,
    log_probabilities,
    pieces_of,
)
from .heads import SpanHead, TokenClassificationHead, only_head
from .vocabulary import read_vocabulary, word_starts

BATCH_TOKENS = 2048  # of a batch, including padding
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class Answer(NamedTuple):
    """The answer to a question: a part of its context."""

    text: str  # empty where the model finds no answer
    start: int  # its first character in the context
    # The probability, in its window, that it starts and ends there, or that there is no answer.
    score: float


def from_pretrained(checkpoint, data=None):
    """Loads a pretrained or fine-tuned model with its vocabulary.

    Args:
        checkpoint: a `.pt` file, or a folder with `checkpoint_best.pt` or else `checkpoint_last.pt`
        data: folder of its `dict.txt` and `sentencepiece.model` or `tokenizer.json`;
            None: the folder of the checkpoint
    Returns: `MaeLm`, in evaluation mode on the CPU
    Raises:
        FileNotFoundError: the checkpoint or its vocabulary does not exist
        ValueError: one of them cannot be used, or they do not belong together
    """
    checkpoint_file = find_checkpoint(os.fspath(checkpoint))
    if not os.path.exists(checkpoint_file):
        raise MissingFileError(
            f"{checkpoint_file}: not found, expected a checkpoint, or a folder with one"
        )
    if data is None:
        folder = os.path.dirname(checkpoint_file) or "."
        path = os.path.join(folder, "dict.txt")
        if not os.path.isfile(path):
            raise MissingFileError(
                f"{path}: not found: pass data=, the folder with the vocabulary it was trained with"
            )
    else:
        folder = os.fspath(data)
    dictionary, tokenizer = read_vocabulary(folder)
    state = read_checkpoint(checkpoint_file)
    model = build_model(state, dictionary, checkpoint_file)
    return MaeLm(model, dictionary, tokenizer, folder, facts_of(state, checkpoint_file))


class MaeLm:
    """A model with its vocabulary.

    Args:
        model: `model.MaeLmModel`, in evaluation mode
        dictionary: fairseq's, with `<mask>`
        tokenizer: `subwords.Subwords`
        data: folder of the vocabulary
        facts: what its checkpoint says of itself: `checkpoints.facts.Facts`
    """

    def __init__(self, model, dictionary, tokenizer, data, facts=None):
        self.model = model
        self.dictionary = dictionary
        self.tokenizer = tokenizer
        self.data = data
        self.facts = facts or Facts()
        self.masks_in_encoder = self.facts.masks_in_encoder
        self.mask = dictionary.index(MASK)

    def to(self, device):
        """Moves the model to a device, where everything then runs; returns self."""
        self.model.to(device)
        return self

    @property
    def device(self):
        return self.model.embed_tokens.weight.device

    def encode(self, text, pair=None, truncate=False):
        """Text to tokens: `<s> a </s>`, or `<s> a </s> </s> b </s>` for a pair.

        Args:
            text: a string, with `<mask>` where a token is to be predicted; or a list of B strings
            pair: the second text, or a list of B
            truncate: cut longer texts to the model's positions
        Returns: int64 (T,); for lists (B, T), padded at the end
        Raises:
            ValueError: an empty list, or lists of different lengths
            TypeError: not a string or a list of strings, or `text` and `pair` are not of the same
                kind
        """
        limit = self.model.max_positions() if truncate else None
        rows = [self._tokens(first, second, limit) for first, second in text_pairs(text, pair)]
        if not rows:
            raise UsageError("an empty list, expected at least one text")
        return rows[0] if isinstance(text, str) else self._padded(rows)

    def _tokens(self, text, pair=None, limit=None):
        return torch.tensor(tokens_of(self.tokenizer, text, pair, limit))

    def decode(self, tokens):
        """Tokens to text, as far as the vocabulary keeps it.

        Args:
            tokens: int64 (T,) or (B, T); `<s>`, `</s>` and padding are skipped
        Returns: a string, or a list of B strings
        Raises:
            TypeError: not a tensor of integers of one or two dimensions
            ValueError: no tokens of this vocabulary
        """
        numbers = self._checked(tokens).tolist()
        if tokens.dim() == 1:
            return self.tokenizer.decode(numbers)
        return [self.tokenizer.decode(row) for row in numbers]

    def _padded(self, rows):
        """A list of B tensors (T_i,) -> (B, T)."""
        return pad_sequence(rows, batch_first=True, padding_value=self.dictionary.pad())

    def _checked(self, tokens):
        """Tokens as int64; refuses what is no tensor of tokens of this vocabulary."""
        is_tensor = isinstance(tokens, torch.Tensor)
        if not is_tensor or tokens.dtype not in INTEGERS or tokens.dim() not in (1, 2):
            raise TypeError(
                "tokens must be a tensor of integers, (T,) or (B, T), as encode() returns"
            )
        if tokens.numel():
            least, most = int(tokens.min()), int(tokens.max())
            last = len(self.dictionary) - 1
            if least < 0 or most > last:
                raise UsageError(
                    f"tokens from {least} to {most}, expected 0 to {last}: "
                    "use tokens of this model's vocabulary"
                )
        return tokens.long()

    def _lengths(self, rows):
        """Tokens (B, T) -> how many of each row are no padding, (B,).

        Padding anywhere but at the end is refused: it would silently shift positions and features.
        """
        pad = self.dictionary.pad()
        real = rows.ne(pad)
        lengths = real.sum(1)
        at_the_end = torch.arange(rows.size(1), device=rows.device) < lengths[:, None]
        if not rows.numel() or not lengths.all() or not real.equal(at_the_end):
            raise UsageError(
                f"expected tokens in each row and padding (token {pad}) at the end only, "
                "as from encode()"
            )
        return lengths

    def _check_length(
        self, length, text="the text", fix="shorten it, split it, or add truncate=True"
    ):
        check_positions(length, self.model.max_positions(), f"{text} has {length} tokens", fix)

    @torch.no_grad()
    def layers(self, tokens):
        """Runs the encoder on batches of similar length of tokens (B, T), padded at the end only.

        Yields:
            the numbers of n rows (n,); which of their tokens are padding (n, t);
            layers 0 to L, a list of (n, t, C)
        """
        lengths = self._lengths(tokens)
        longest = int(lengths.argmax())
        self._check_length(int(lengths[longest]), f"text {longest + 1} of {len(lengths)}")
        for rows in batches_of_similar_length(lengths, BATCH_TOKENS):
            batch = tokens[rows, : int(lengths[rows].max())].to(self.device)
            padding = batch.eq(self.dictionary.pad())
            hidden = []
            self.model.forward_encoder(batch, padded=bool(padding.any()), hidden=hidden)
            yield rows, padding, hidden

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
        tokens = self._given(texts, truncate)
        batch = tokens if tokens.dim() == 2 else tokens[None]
        weight = self.model.embed_tokens.weight
        layers = len(self.model.encoder.layers) + 1 if all_layers else 1
        features = weight.new_zeros(layers, *batch.shape, weight.size(1))
        for rows, padding, hidden in self.layers(batch):
            of_batch = torch.stack(hidden[-layers:]).masked_fill(padding[..., None], 0)
            features[:, rows, : padding.size(1)] = of_batch
        features = features if all_layers else features[0]
        return features if tokens.dim() == 2 else features.squeeze(-3)

    def _given(self, texts, truncate):
        """Tokens, (T,) or (B, T), of texts; or the tokens that were given instead."""
        if isinstance(texts, torch.Tensor):
            return self._checked(texts)
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
        tokens = self._given(texts, truncate)
        batch = tokens if tokens.dim() == 2 else tokens[None]
        weight = self.model.embed_tokens.weight
        vectors = weight.new_zeros(len(batch), weight.size(1), dtype=torch.float32)
        for rows, padding, hidden in self.layers(batch):
            features = hidden[layer].float().masked_fill(padding[..., None], 0)
            vectors[rows] = features.sum(1) / (~padding).sum(1, keepdim=True)
        if normalize:
            vectors = F.normalize(vectors, dim=1)
        return vectors if tokens.dim() == 2 else vectors[0]

    def words(self, text):
        """The words of a text: list of strings.

        White space separates them; in scripts without it, each piece is a word: see `base.words`.
        """
        return [text[begin:end] for begin, end in word_places(self.tokenizer, checked(text))]

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
        self._check_length(len(tokens), fix="shorten it or split it")
        features = self.extract_features(torch.tensor(tokens))[1:-1]
        if not words:
            return words, features
        counts = [len(pieces) for pieces in pieces_of_words]
        means = [of_word.mean(0) for of_word in features.split(counts)]
        return words, torch.stack(means)

    def _head(self):
        """The head of fine-tuning."""
        name = only_head(self.model.classification_heads)
        if name is None:
            raise UsageError("the checkpoint has no head: predictions need a fine-tuned model")
        return self.model.classification_heads[name]

    @torch.no_grad()
    def _logits(self, head, rows):
        """The float32 logits of n texts (T_i,) on the CPU.

        Returns: a list of n, (classes,) each, or (T_i, classes)
        """
        if not rows:
            return []
        logits = [None] * len(rows)
        for numbers, padding, hidden in self.layers(self._padded(rows)):
            outputs = head(hidden[-1], padding=padding).float().cpu()
            for i, output, real in zip(numbers.tolist(), outputs, ~padding.cpu()):
                logits[i] = output[real] if output.dim() == 2 else output
        return logits

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
        head = self._head()
        is_tagger = isinstance(head, TokenClassificationHead)
        if is_tagger and not isinstance(texts, str):
            texts = [" ".join(text) if is_words(text) else text for text in texts]
        rows = text_pairs(texts, pairs)
        if isinstance(head, SpanHead):
            raise UsageError(
                "the head was fine-tuned on questions: call answer(question, context), or let "
                "recipes/finetune_squad.sh answer a test.json"
            )
        labels = self.facts.classes(head.out_proj.out_features)
        self._check_pairs(is_tagger, pairs is not None)
        if is_tagger:
            predictions = [self._tag(text.split(), head, labels) for text, _ in rows]
        else:
            predictions = self._classify(rows, head, labels)
        return predictions[0] if isinstance(texts, str) else predictions

    def _check_pairs(self, is_tagger, are_pairs):
        """Refuses pairs for a model of single texts, and single texts for a model of pairs."""
        if self.facts.of_sentences and are_pairs != (self.facts.texts == 2):
            if are_pairs:
                right = "single texts: call predict(texts)"
            else:
                right = "pairs of texts: call predict(texts, pairs)"
            raise UsageError(f"the head was fine-tuned on {right}")
        if is_tagger and are_pairs:
            raise UsageError("the head was fine-tuned on words with tags: call predict(texts)")

    def _classify(self, rows, head, labels):
        """{label: probability} of each (text, pair), or where there are no labels a float."""
        limit = self.model.max_positions()
        logits = self._logits(head, [self._tokens(text, pair, limit) for text, pair in rows])
        if labels is None:
            mean, deviation = self.facts.units
            return [x.item() * deviation + mean for x in logits]
        return [dict(zip(labels, x.softmax(-1).tolist())) for x in logits]

    def _tag(self, words, head, labels):
        """The most probable label of each word: list of (word, label)."""
        tags = []
        limit = self.model.max_positions()
        for tokens, starts in word_sequences(self.tokenizer, words, limit):
            (logits,) = self._logits(head, [torch.tensor(tokens)])
            tags += [labels[i] for i in logits[starts].argmax(-1).tolist()]
        return list(zip(words, tags))

    def answer(self, questions, contexts):
        """The answers of a head that was fine-tuned on questions, as in SQuAD.

        A long context is read in windows.

        Args:
            questions: a string, or a list of n strings
            contexts: the text that has the answer, or a list of n
        Returns: `Answer`; for lists, a list of n
        """
        pairs = text_pairs(questions, contexts)
        head = self._head()
        if not isinstance(head, SpanHead):
            raise UsageError("the head was not fine-tuned on questions: call predict(texts)")
        answers = [self._answer(head, question, context) for question, context in pairs]
        return answers[0] if isinstance(questions, str) else answers

    def _answer(self, head, question, context):
        sizes = WindowSizes(self.model.max_positions())
        pieces = pieces_of(self.tokenizer, context)
        question_tokens = self.tokenizer.spans(question)[0]
        windows = list(sizes.windows(question_tokens, pieces.tokens))
        rows = [torch.tensor(window.tokens) for window in windows]
        candidates = []
        for row, logits, window in zip(rows, self._logits(head, rows), windows):
            scores = log_probabilities(logits[None], row[None])[0].double().numpy()
            candidates.append(best_in_window(scores, window, pieces))
        best = best_of(candidates)
        if is_empty(best, self.facts.may_be_empty) or best.score == -math.inf:
            return Answer("", 0, math.exp(best.none))
        return Answer(context[best.begin : best.end], best.begin, math.exp(best.score))

    @torch.no_grad()
    def fill_mask(self, text, topk=5):
        """Predicts each `<mask>` as in pretraining: with the mask left out of the encoder.

        Only pieces are candidates: probabilities are renormalised without special symbols and
        `<mask>`, to a sum of 1.

        Args:
            text: a string with one `<mask>` or more
            topk: number of candidates
        Returns: for each mask a list of (piece, probability), the most probable first
        """
        topk = int(operator.index(topk))
        candidates = len(self.dictionary) - self.dictionary.nspecial - 1
        if not 1 <= topk <= candidates:
            raise UsageError(f"topk {topk} must be from 1 to {candidates}, the number of pieces")
        tokens = self._tokens(checked(text)).to(self.device)
        self._check_length(len(tokens), fix="shorten it or split it")
        masked = tokens.eq(self.mask).nonzero()[:, 0]
        if not len(masked):
            raise UsageError(f"no {MASK} in {text!r}: write it where a token is to be predicted")
        logits = self._predict_masked(tokens[None], masked[None])
        no_candidates = [*range(self.dictionary.nspecial), self.mask]
        logits[..., no_candidates] = float("-inf")
        best = logits[0].softmax(-1).topk(topk)
        answers = []
        for row, probabilities in zip(best.indices.tolist(), best.values.tolist()):
            pieces = [self.tokenizer.show(token) for token in row]
            answers.append(list(zip(pieces, probabilities)))
        return answers

    def _predict_masked(self, tokens, masked):
        """Logits (n, M, N) at positions `masked` (n, M) of tokens (n, T), masked as in pretraining.

        The tokens have no padding.
        """
        if self.model.lm_head is None:
            raise UsageError(
                "the checkpoint is fine-tuned and has no decoder: "
                "predict masks with a pretrained one"
            )
        M = masked.size(1)
        tokens = tokens.scatter(1, masked, self.mask)
        is_seen = torch.ones_like(tokens, dtype=torch.bool).scatter(1, masked, False)
        seen = is_seen.nonzero()[:, 1].view(len(tokens), -1)
        if self.masks_in_encoder:
            # Predicted positions come last, as in pretraining.
            seen = torch.cat([seen, masked], dim=1)
            masked = masked[:, :0]
        return self.model(tokens.gather(1, seen), seen, masked, num_predicted=M, padded=False)

    @torch.no_grad()
    def score(self, texts, within_words=True, truncate=False):
        """How well the model predicts texts: the pseudo-log-likelihood of each, in bits.

        Each token but `<s>` and `</s>` is predicted from all others (Salazar et al., 2020), except
        those of the same word on its right, which would give it away (PLL-word-l2r of Kauf and
        Ivanova, 2023).

        Args:
            texts: a string or a list of B strings, in which nothing is a symbol: `<mask>` is text
            within_words: hide the rest of the word
            truncate: cut longer texts to the model's positions
        Returns: (bits, number of tokens), bits a sum; for a list, a list of B of them
        """
        limit = self.model.max_positions() if truncate else None
        tokens, sizes = self.tokenizer.encode_lines([text for text, _ in text_pairs(texts)])
        rows = []
        for size, end in zip(sizes, sizes.cumsum()):
            part = tokens[end - size : end].tolist()
            rows.append(torch.tensor(sequence([part], limit)[0]))
        places_by_shape = self._places_to_score(rows, within_words)
        bits = torch.zeros(len(rows), dtype=torch.float64)
        total = sum(len(row) - 2 for row in rows)
        bar = tqdm(desc="score", total=total, unit=" tokens", leave=False, disable=None)
        for (T, M), places in places_by_shape.items():  # equally long: no batch has padding
            for batch in torch.tensor(places).split(max(1, BATCH_TOKENS // T)):
                bar.update(len(batch))
                numbers, first = batch[:, 0], batch[:, 1:]
                tokens = torch.stack([rows[number] for number in numbers]).to(self.device)
                masked = (first + torch.arange(M)).to(self.device)
                logits = self._predict_masked(tokens, masked)[:, 0].float()
                targets = tokens.gather(1, masked[:, :1])[:, 0]
                losses = F.cross_entropy(logits, targets, reduction="none")
                bits.index_add_(0, numbers, losses.double().cpu() / math.log(2))
        bar.close()
        scores = [(text_bits, len(row) - 2) for text_bits, row in zip(bits.tolist(), rows)]
        return scores[0] if isinstance(texts, str) else scores

    def _places_to_score(self, rows, within_words):
        """Where to put masks in texts (T_i,), so that each token is once the first one masked.

        Returns: {(T, M): [(number of the text of T tokens, first of the M tokens to mask)]}
        """
        starts = word_starts(self.dictionary) if within_words else None
        places = {}
        for number, row in enumerate(rows):
            self._check_length(len(row), f"text {number + 1} of {len(rows)}")
            for first in range(1, len(row) - 1):
                end = first + 1
                while within_words and end < len(row) - 1 and not starts[row[end]]:
                    end += 1
                places.setdefault((len(row), end - first), []).append((number, first))
        return places
