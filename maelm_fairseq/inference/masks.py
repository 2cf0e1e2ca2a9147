"""What a pretrained model predicts at masks: it fills them, and scores texts by them.

Letters in shapes: T tokens of a text, K masks of a text, N tokens of the vocabulary.
"""

import math
import operator

import torch
import torch.nn.functional as F
from tqdm import tqdm

from ..base.errors import UsageError
from ..base.subwords import MASK, sequence
from ..base.text_input import checked, list_of_texts
from ..vocabulary import dictionary_word_starts
from . import encoding
from .token_tensors import SHORTEN_OR_SPLIT, check_length, tokens_of_text


@torch.no_grad()
def fill_mask(hub_model, text, topk):
    """As `hub.MaeLm.fill_mask`."""
    dictionary = hub_model.dictionary
    topk = int(operator.index(topk))
    candidates = len(dictionary) - dictionary.nspecial - 1
    if not 1 <= topk <= candidates:
        raise UsageError(f"topk {topk} must be from 1 to {candidates}, the number of pieces")
    tokens = tokens_of_text(hub_model, checked(text)).to(hub_model.device)
    check_length(hub_model, len(tokens), fix=SHORTEN_OR_SPLIT)
    masked = tokens.eq(hub_model.mask).nonzero()[:, 0]
    if not len(masked):
        raise UsageError(f"no {MASK} in {text!r}: write it where a token is to be predicted")
    logits = predict_masked(hub_model, tokens[None], masked[None])
    no_candidates = [*range(dictionary.nspecial), hub_model.mask]
    logits[..., no_candidates] = float("-inf")
    best = logits[0].softmax(-1).topk(topk)
    answers = []
    for row, probabilities in zip(best.indices.tolist(), best.values.tolist()):
        pieces = [hub_model.tokenizer.show(token) for token in row]
        answers.append(list(zip(pieces, probabilities)))
    return answers


def predict_masked(hub_model, tokens, masked):
    """Logits (n, K, N) at positions `masked` (n, K) of tokens (n, T), masked as in pretraining.

    The tokens have no padding.
    """
    model = hub_model.model
    if model.lm_head is None:
        raise UsageError(
            "the checkpoint is fine-tuned and has no decoder: predict masks with a pretrained one"
        )
    K = masked.size(1)
    tokens = tokens.scatter(1, masked, hub_model.mask)
    is_seen = torch.ones_like(tokens, dtype=torch.bool).scatter(1, masked, False)
    seen = is_seen.nonzero()[:, 1].view(len(tokens), -1)
    if hub_model.masks_in_encoder:
        # Predicted positions come last, as in pretraining.
        seen = torch.cat([seen, masked], dim=1)
        masked = masked[:, :0]
    return model(tokens.gather(1, seen), seen, masked, num_predicted=K, padded=False)


@torch.no_grad()
def score(hub_model, texts, within_words, truncate):
    """As `hub.MaeLm.score`."""
    limit = hub_model.model.max_positions() if truncate else None
    tokens, sizes = hub_model.tokenizer.encode_lines(list_of_texts(texts))
    rows = []
    for size, end in zip(sizes, sizes.cumsum()):
        part = tokens[end - size : end].tolist()
        rows.append(torch.tensor(sequence([part], limit)[0]))
    positions_by_shape = positions_to_score(hub_model, rows, within_words)
    bits = torch.zeros(len(rows), dtype=torch.float64)
    total = sum(len(row) - 2 for row in rows)
    bar = tqdm(desc="score", total=total, unit=" tokens", leave=False, disable=None)
    for (T, K), positions in positions_by_shape.items():  # equally long: no batch has padding
        for batch in torch.tensor(positions).split(max(1, encoding.BATCH_TOKENS // T)):
            bar.update(len(batch))
            indices, first = batch[:, 0], batch[:, 1:]
            tokens = torch.stack([rows[index] for index in indices]).to(hub_model.device)
            masked = (first + torch.arange(K)).to(hub_model.device)
            logits = predict_masked(hub_model, tokens, masked)[:, 0].float()
            targets = tokens.gather(1, masked[:, :1])[:, 0]
            losses = F.cross_entropy(logits, targets, reduction="none")
            bits.index_add_(0, indices, losses.double().cpu() / math.log(2))
    bar.close()
    scores = [(text_bits, len(row) - 2) for text_bits, row in zip(bits.tolist(), rows)]
    return scores[0] if isinstance(texts, str) else scores


def positions_to_score(hub_model, rows, within_words):
    """Where to put masks in texts (T_i,), so that each token is once the first one masked.

    Returns: {(T, K): [(index of the text of T tokens, first of the K tokens to mask)]}
    """
    starts = dictionary_word_starts(hub_model.dictionary) if within_words else None
    positions = {}
    for index, row in enumerate(rows):
        check_length(hub_model, len(row), f"text {index + 1} of {len(rows)}")
        for first in range(1, len(row) - 1):
            end = first + 1
            while within_words and end < len(row) - 1 and not starts[row[end]]:
                end += 1
            positions.setdefault((len(row), end - first), []).append((index, first))
    return positions
