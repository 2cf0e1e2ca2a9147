"""Using a model from Python: text to tokens and back, features, filled masks, predictions."""

import os

from .base.errors import MissingFileError
from .checkpoints.building import build_model, find_checkpoint_file, read_checkpoint
from .checkpoints.checkpoint_info import info_of_checkpoint
from .inference.classification import Classification
from .inference.mask_prediction import MaskPrediction
from .inference.question_answering import Answer, QuestionAnswering
from .vocabulary import load_dictionary_and_tokenizer

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


class MaeLm(MaskPrediction, Classification, QuestionAnswering):
    """A model with its vocabulary, and all that can be done with it.

    The classes in `inference` have one group of methods each:
        `TextModel`: encode, decode, to, device
        `Encoding`: extract_features, embed, words, word_features, layers
        `MaskPrediction`: fill_mask, score
        `Classification`: predict
        `QuestionAnswering`: answer
    """
