"""What an encoder knows of held-out text.

How well it predicts tokens, and how well it finds the second halves of lines.
"""

import torch

from ..base.errors import UsageError
from ..base.words import word_spans

MAX_SCORED_TOKENS = 5_000  # of held-out text, each predicted by itself
MAX_LINE_TOKENS = 96  # of a line
MAX_HALVED_LINES = 1_000  # whose halves are searched for
MIN_WORDS = 8  # at least, of a line whose halves are searched for


def bits_per_token(model, lines, max_positions):
    """Bits of a token of held-out lines, and how many tokens were predicted.

    Each is predicted by itself from the others of its line.
    """
    chosen = []
    count = 0
    for line in lines:
        line = truncate_line(model, line, min(MAX_LINE_TOKENS, max_positions - 2))
        num_tokens = len(model.encode(line)) - 2
        if chosen and count + num_tokens > MAX_SCORED_TOKENS:
            break
        if num_tokens:
            chosen.append(line)
            count += num_tokens
    if not chosen:
        raise UsageError(
            "--valid: found no line with a token, expected text in the languages of the model"
        )
    bits, num_tokens = map(sum, zip(*model.score(chosen, truncate=True)))
    return bits / num_tokens, num_tokens


def truncate_line(model, line, max_tokens):
    """The beginning of a line, at most `max_tokens` tokens of it."""
    _, offsets = model.tokenizer.encode_with_offsets(line)
    if len(offsets) <= max_tokens:
        return line
    _, end = offsets[max_tokens - 1]
    return line[:end]


def matched_halves(model, lines):
    """How often the second half of a line is the most similar one to the first, of all lines.

    Similarity is the cosine of the means of all tokens.

    Returns: the percentage of lines for which this is so, and the number of lines
    """
    halves = []
    for line in lines:
        if len(halves) == MAX_HALVED_LINES:
            break
        begins = [begin for begin, _ in word_spans(model.tokenizer, line)]
        if len(begins) >= MIN_WORDS:
            middle = begins[len(begins) // 2]
            halves.append((line[:middle].strip(), line[middle:].strip()))
    if not halves:
        return float("nan"), 0
    first_texts, second_texts = map(list, zip(*halves))
    first = model.embed(first_texts, truncate=True, normalize=True)
    second = model.embed(second_texts, truncate=True, normalize=True)
    nearest = (first @ second.T).argmax(1).cpu()
    is_found = nearest.eq(torch.arange(len(halves)))
    return 100 * float(is_found.double().mean()), len(halves)
