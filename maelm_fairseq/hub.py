"""Using a model from Python: text to tokens and back, features, filled masks, predictions.

Letters in shapes: B texts, T tokens of a text, W words, C width, L layers of the encoder.
"""

import os

from .base.errors import MissingFileError
from .base.subwords import MASK
from .base.text_input import checked
from .base.words import word_spans
from .checkpoints.building import build_model, find_checkpoint, read_checkpoint
from .checkpoints.facts import Facts, facts_of
from .inference import answering, encoding, masks, predicting, token_tensors
from .inference.answering import Answer
from .vocabulary import read_vocabulary

__all__ = ["Answer", "MaeLm", "from_pretrained"]


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
    """A model with its vocabulary; the modules in `inference` compute what its methods return.

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
        """The device of the model's weights."""
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
            TypeError: not a string or a list of strings, or one of `text` and `pair` is a string
                and the other a list
        """
        return token_tensors.encode(self, text, pair, truncate)

    def decode(self, tokens):
        """Tokens to text, as far as the vocabulary keeps it.

        Args:
            tokens: int64 (T,) or (B, T); `<s>`, `</s>` and padding are skipped
        Returns: a string, or a list of B strings
        Raises:
            TypeError: not a tensor of integers of one or two dimensions
            ValueError: no tokens of this vocabulary
        """
        return token_tensors.decode(self, tokens)

    def layers(self, tokens):
        """Runs the encoder on batches of similar length of tokens (B, T), padded at the end only.

        Yields:
            the indices of n rows (n,); which of their tokens are padding (n, t);
            layers 0 to L, a list of (n, t, C)
        Raises:
            TypeError: not a tensor of integers of two dimensions
            ValueError: no tokens of this vocabulary, or padding elsewhere
        """
        return encoding.layers(self, tokens)

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
        return encoding.extract_features(self, texts, all_layers, truncate)

    def embed(self, texts, truncate=False, normalize=False, layer=None):
        """One vector for each text: the mean of a layer over all tokens, `<s>` and `</s>` included.

        Args:
            texts, truncate: as for `extract_features`
            normalize: divide each vector by its length
            layer: from 0, the embeddings, to L; None for the last
        Returns: float32 (C,), or (B, C), on the model's device
        """
        return encoding.embed(self, texts, truncate, normalize, layer)

    def words(self, text):
        """The words of a text: list of strings.

        White space separates them; in scripts without it, each piece is a word: see `base.words`.
        """
        return [text[begin:end] for begin, end in word_spans(self.tokenizer, checked(text))]

    def word_features(self, text):
        """Features of words: the mean over the pieces of each.

        Args:
            text: a string of W words
        Returns:
            words: list of W strings, as of `words`
            features: (W, C); nan for a word that is normalised to nothing
        """
        words = self.words(text)
        return words, encoding.word_features(self, words)

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
        return predicting.predict(self, texts, pairs)

    def answer(self, questions, contexts):
        """The answers of a head that was fine-tuned on questions, as in SQuAD.

        A long context is read in windows.

        Args:
            questions: a string, or a list of n strings
            contexts: the text that has the answer, or a list of n
        Returns: `Answer`; for lists, a list of n
        """
        return answering.answer(self, questions, contexts)

    def fill_mask(self, text, topk=5):
        """Predicts each `<mask>` as in pretraining: left out of the encoder, but for an MLM.

        Only pieces are candidates: probabilities are renormalised without special symbols and
        `<mask>`, to a sum of 1.

        Args:
            text: a string with one `<mask>` or more
            topk: number of candidates
        Returns: for each mask a list of (piece, probability), the most probable first
        """
        return masks.fill_mask(self, text, topk)

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
        return masks.score(self, texts, within_words, truncate)
