"""Using a model from Python: text to tokens and back, features, filled masks, predictions."""

import os

from .base.errors import MissingFileError
from .base.text_input import checked_words, list_of_texts, paired, texts_or_pairs, words_of_text
from .checkpoints.building import build_model, find_checkpoint_file, read_checkpoint
from .checkpoints.checkpoint_info import info_of_checkpoint
from .inference import classification, mask_prediction
from .inference.encoding import Encoding
from .inference.question_answering import Answer, answer_questions
from .vocabulary import load_dictionary_and_tokenizer

__all__ = ["Answer", "MaeLm", "from_pretrained"]


def from_pretrained(checkpoint, data=None):
    """Loads a pretrained or fine-tuned model with its vocabulary.

    Args:
        checkpoint: a `.pt` file, or a folder: its `checkpoint_best.pt`, or else its
            `checkpoint_last.pt`; of a fine-tuning recipe's run, the model that it reports
        data: folder of its `dict.txt` and `sentencepiece.model` or `tokenizer.json`;
            None: the folder of the checkpoint
    Returns: `MaeLm`, in evaluation mode on the CPU
    Raises:
        FileNotFoundError: the checkpoint or its vocabulary does not exist
        UsageError: one of them cannot be used, or they do not belong together
    """
    checkpoint_file = find_checkpoint_file(os.fspath(checkpoint))
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
    dictionary, tokenizer = load_dictionary_and_tokenizer(folder)
    contents = read_checkpoint(checkpoint_file)
    model = build_model(contents, dictionary, checkpoint_file)
    return MaeLm(
        model, dictionary, tokenizer, folder, info_of_checkpoint(contents, checkpoint_file)
    )


class MaeLm(Encoding):
    """A model with its vocabulary, and all that can be done with it.

    `TextModel` has encode, decode, to and device; `Encoding` has extract_features, embed, words,
    word_features and layers.
    """

    def fill_mask(self, text, topk=5):
        """Predicts each `<mask>` as in pretraining: left out of the encoder, but for an MLM.

        Only pieces are candidates: probabilities are renormalised without special symbols and
        `<mask>`, to a sum of 1.

        Args:
            text: a string with one `<mask>` or more
            topk: number of candidates
        Returns: for each mask a list of (piece, probability), the most probable first
        """
        return mask_prediction.fill_mask(self, text, topk)

    def score(self, texts, within_words=True, truncate=False):
        """How badly the model predicts texts: the negative pseudo-log-likelihood of each, in bits.

        Each token but `<s>` and `</s>` is predicted from all others (Salazar et al., 2020), except
        those of the same word on its right, which would give it away (PLL-word-l2r of Kauf and
        Ivanova, 2023).

        Args:
            texts: a string or a list of B strings, in which nothing is a symbol: `<mask>` is text
            within_words: hide the rest of the word
            truncate: cut longer texts to the model's positions
        Returns: (bits, number of tokens), bits a sum; for a list, a list of B of them
        """
        scores = mask_prediction.score(self, list_of_texts(texts), within_words, truncate)
        return scores[0] if isinstance(texts, str) else scores

    def predict(self, texts, pairs=None):
        """The predictions of a fine-tuned head.

        Texts longer than the model has positions are cut as in training.

        Args:
            texts: a string, or a list of n strings; for a head for tokens, white space separates
                words, and a text may also be a list of its words, which may contain white space
            pairs: for a head fine-tuned on pairs, the second text or a list of n
        Returns:
            {label: probability}, or a float from a head of regression; from a head for tokens a
            list with (word, label) for each word. For a list of texts, a list of n of them
        """
        classification.check_can_predict(self, are_pairs=pairs is not None)
        if classification.is_tagger(self):
            words_of_texts = list_of_texts(texts, words_of_text)
            predictions = [classification.tag(self, words) for words in words_of_texts]
        else:
            predictions = classification.classify(self, texts_or_pairs(texts, pairs))
        return predictions[0] if isinstance(texts, str) else predictions

    def word_probabilities(self, words):
        """The probabilities of labels for each word of a text, in the order of `info.labels`.

        Args:
            words: list of strings, which may contain white space, as in tagged files
        Returns: (words, labels), float32, on the CPU
        Raises UsageError: the head was not fine-tuned on words with tags
        """
        return classification.word_probabilities(self, checked_words(words))

    def answer(self, questions, contexts):
        """The answers of a head that was fine-tuned on questions, as in SQuAD.

        A long context is read in windows.

        Args:
            questions: a string, or a list of n strings
            contexts: the text that has the answer, or a list of n
        Returns: `Answer`; for lists, a list of n
        """
        answers = answer_questions(self, paired(questions, contexts))
        return answers[0] if isinstance(questions, str) else answers
