"""The vocabulary that fine-tuning data share with the pretraining run: read, and compared with its checkpoint."""

import os
import sys

from command_line import InputError
from write_dict import dict_text, load_model

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from maelm_fairseq import errors, task  # noqa: E402
from maelm_fairseq.checkpoint import load_model as load_checkpoint  # noqa: E402


def load_vocabulary(folder):
    """The SentencePieceProcessor of a folder that prepare.sh wrote.

    Raises:
        FileNotFoundError: no `sentencepiece.model` or no `dict.txt`
        InputError: one of them is not usable, or they differ
    """
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"--vocabulary: {folder} is not a folder; expected the pretraining run's data")
    processor = load_model(os.path.join(folder, "sentencepiece.model"))
    dictionary = os.path.join(folder, "dict.txt")
    if not os.path.exists(dictionary):
        raise FileNotFoundError(f"--vocabulary: {dictionary} does not exist; expected the pretraining run's data")
    with open(dictionary, encoding="utf-8", errors="replace", newline="\n") as stream:
        if stream.read() != dict_text(processor):
            raise InputError(
                f"--vocabulary: {dictionary} is not the dictionary of the sentencepiece.model beside it; expected its"
                " pieces from id 3 on; give the folder that prepare.sh wrote for pretraining"
            )
    return processor


def compare_with_checkpoint(folder, checkpoint, max_tokens):
    """Refuses a checkpoint that was trained with another vocabulary than `folder`'s, or has too few positions.

    Args:
        max_tokens: the longest example, in tokens
    Raises:
        FileNotFoundError, InputError
    """
    try:
        model = load_checkpoint(checkpoint, task.load_dictionary(folder))
    except errors.UsageError as error:
        raise InputError(f"--checkpoint: {error}")
    if max_tokens > model.max_positions():
        raise InputError(
            f"--max-tokens {max_tokens}: {checkpoint} has {model.max_positions()} positions; give"
            f" --max-tokens {model.max_positions()}, or fewer"
        )
