"""What an encoder knows of held-out text: how well it predicts tokens, and finds the second halves of lines."""

import torch

from ..base.errors import UsageError
from ..base.words import word_places

SCORED_TOKENS, LINE_TOKENS = 5_000, 96  # of held-out text, each predicted by itself; most of a line
HALVED_LINES = 1_000
WORDS = 8  # least of a line whose halves are searched


def bits_per_token(model, lines, positions):
    """Bits of a token of held-out lines, each predicted by itself from the others; and how many were."""
    chosen, count = [], 0
    for line in lines:
        line = cut(model, line, min(LINE_TOKENS, positions - 2))
        tokens = len(model.encode(line)) - 2
        if chosen and count + tokens > SCORED_TOKENS:
            break
        if tokens:
            chosen.append(line)
            count += tokens
    if not chosen:
        raise UsageError("--valid: found no line with a token, expected text in the languages of the model")
    bits, tokens = map(sum, zip(*model.score(chosen, truncate=True)))
    return bits / tokens, tokens


def cut(model, line, most):
    """The beginning of a line that has so many tokens, or fewer."""
    _, places = model.tokenizer.spans(line)
    return line[: places[most - 1][1]] if len(places) > most else line


def found_halves(model, lines):
    """The percentage of lines whose second half is, of all second halves, the most similar to the first; of how many.

    Similarity is the cosine of the means of all tokens.
    """
    halves = []
    for line in lines:
        begins = [begin for begin, _ in word_places(model.tokenizer, line)]
        if len(begins) >= WORDS and len(halves) < HALVED_LINES:
            middle = begins[len(begins) // 2]
            halves.append((line[:middle].strip(), line[middle:].strip()))
    if not halves:
        return float("nan"), 0
    first, second = (model.embed(list(half), truncate=True, normalize=True) for half in zip(*halves))
    nearest = (first @ second.T).argmax(1).cpu()
    return 100 * float(nearest.eq(torch.arange(len(halves))).double().mean()), len(halves)
