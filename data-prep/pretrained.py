"""Compares the vocabulary of fine-tuning data with that of a pretrained checkpoint."""

import sys

try:
    from maelm_fairseq.checkpoints.building import load_model
    from maelm_fairseq.config import check_positions
    from maelm_fairseq.vocabulary import load_dictionary
except ImportError as error:  # fairseq is missing or does not work: the message says what to do
    sys.exit(f"error: {error}")


def compare_with_checkpoint(folder, checkpoint, max_tokens):
    """Checks that a checkpoint was trained with the vocabulary in `folder` and has enough positions.

    Args:
        max_tokens: length of the longest example, in tokens
    Raises:
        UsageError: it cannot be read, has another vocabulary, or has too few positions
    """
    positions = load_model(checkpoint, load_dictionary(folder)).max_positions()
    fix = f"give --max-tokens {positions} or less"
    check_positions(max_tokens, positions, f"--max-tokens {max_tokens}", fix, checkpoint)
