"""The pretraining run's vocabulary, which fine-tuning data must use: reads it and compares it with the checkpoint."""

import os
import sys

from command_line import InputError
from write_dict import dict_text, load_model

try:
    from maelm_fairseq.checkpoint import load_model as load_checkpoint
    from maelm_fairseq.errors import UsageError
    from maelm_fairseq.sizes import check_positions
    from maelm_fairseq.vocabulary import load_dictionary
except ImportError as error:  # fairseq is missing or does not work: the message says what to do
    sys.exit(f"error: {error}")


def load_vocabulary(folder):
    """The SentencePieceProcessor of a folder that prepare.sh wrote.

    Raises:
        FileNotFoundError: no `sentencepiece.model` or no `dict.txt`
        InputError: one of them cannot be used, or they do not match
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
    """Checks that a checkpoint was trained with the vocabulary in `folder` and has enough positions.

    Args:
        max_tokens: length of the longest example, in tokens
    Raises:
        InputError: it cannot be read, has another vocabulary, or has too few positions
    """
    try:
        positions = load_checkpoint(checkpoint, load_dictionary(folder)).max_positions()
        fix = f"give --max-tokens {positions} or less"
        check_positions(max_tokens, positions, f"--max-tokens {max_tokens}", fix, checkpoint)
    except UsageError as error:
        raise InputError(f"--checkpoint: {error}") from None
