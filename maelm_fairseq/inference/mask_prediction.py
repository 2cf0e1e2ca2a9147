"""What a pretrained model predicts at masks: `hub.MaeLm.fill_mask` and `hub.MaeLm.score`.

Letters in shapes: B texts, T tokens of a text, K masks of a text, N tokens of the vocabulary.
"""

import math
import operator

import torch
import torch.nn.functional as F
from tqdm import tqdm

from ..base.errors import UsageError
from ..base.text_input import checked_text
from ..base.tokenizer import MASK, join_and_cut
from ..vocabulary import dictionary_word_starts
from .encoding import BATCH_TOKENS
from .text_model import SHORTEN_OR_SPLIT


@torch.no_grad()
def fill_mask(mae_lm, text, topk):
    """See `hub.MaeLm.fill_mask`."""
    topk = int(operator.index(topk))
    candidates = len(mae_lm.dictionary) - mae_lm.dictionary.nspecial - 1
    if not 1 <= topk <= candidates:
        raise UsageError(f"topk {topk} must be from 1 to {candidates}, the number of pieces")
    tokens = mae_lm.tokens_of_text(checked_text(text)).to(mae_lm.device)
    mae_lm.check_length(len(tokens), advice=SHORTEN_OR_SPLIT)
    masked = tokens.eq(mae_lm.mask_id).nonzero()[:, 0]
    if not len(masked):
        raise UsageError(f"no {MASK} in {text!r}: write it where a token is to be predicted")
    logits = predict_masked(mae_lm, tokens[None], masked[None])
    no_candidates = [*range(mae_lm.dictionary.nspecial), mae_lm.mask_id]
    logits[..., no_candidates] = float("-inf")
    best = logits[0].softmax(-1).topk(topk)
    filled = []
    for sequence, probabilities in zip(best.indices.tolist(), best.values.tolist()):
        pieces = [mae_lm.tokenizer.token_text(token) for token in sequence]
        filled.append(list(zip(pieces, probabilities)))
    return filled


def predict_masked(mae_lm, tokens, masked):
    """Logits (n, K, N) at positions `masked` (n, K) of tokens (n, T), masked as in pretraining.

    The tokens have no padding.
    """
    if mae_lm.model.lm_head is None:
        raise UsageError(
            "the checkpoint is fine-tuned and has no decoder: predict masks with a pretrained one"
        )
    K = masked.size(1)
    tokens = tokens.scatter(1, masked, mae_lm.mask_id)
    is_visible = torch.ones_like(tokens, dtype=torch.bool).scatter(1, masked, False)
    visible = is_visible.nonzero()[:, 1].view(len(tokens), -1)
    if mae_lm.masks_in_encoder:
        # Predicted positions come last, as in pretraining.
        visible = torch.cat([visible, masked], dim=1)
        masked = masked[:, :0]
    visible_tokens = tokens.gather(1, visible)
    return mae_lm.model(visible_tokens, visible, masked, num_predicted=K, has_padding=False)


@torch.no_grad()
def score(mae_lm, texts, within_words, truncate):
    """The (bits, number of tokens) of each of a list of texts; see `hub.MaeLm.score`."""
    limit = mae_lm.model.max_positions() if truncate else None
    tokens, sizes = mae_lm.tokenizer.encode_plain_text(texts)
    sequences = []
    for size, end in zip(sizes, sizes.cumsum()):
        part = tokens[end - size : end].tolist()
        sequences.append(torch.tensor(join_and_cut([part], limit)[0]))
    positions_by_shape = positions_to_score(mae_lm, sequences, within_words)
    bits = torch.zeros(len(sequences), dtype=torch.float64)
    total = sum(len(sequence) - 2 for sequence in sequences)
    bar = tqdm(desc="score", total=total, unit=" tokens", leave=False, disable=None)
    for (T, K), positions in positions_by_shape.items():  # equally long: no batch has padding
        for batch in torch.tensor(positions).split(max(1, BATCH_TOKENS // T)):
            bar.update(len(batch))
            indices, first = batch[:, 0], batch[:, 1:]
            tokens = torch.stack([sequences[index] for index in indices]).to(mae_lm.device)
            masked = (first + torch.arange(K)).to(mae_lm.device)
            logits = predict_masked(mae_lm, tokens, masked)[:, 0].float()
            targets = tokens.gather(1, masked[:, :1])[:, 0]
            losses = F.cross_entropy(logits, targets, reduction="none")
            bits.index_add_(0, indices, losses.double().cpu() / math.log(2))
    bar.close()
    return [(text_bits, len(sequence) - 2) for text_bits, sequence in zip(bits.tolist(), sequences)]


def positions_to_score(mae_lm, sequences, within_words):
    """Where to put masks in texts (T_i,), so that each token is once the first one masked.

    Returns: {(T, K): [(index of the text of T tokens, first of the K tokens to mask)]}
    """
    starts = dictionary_word_starts(mae_lm.dictionary) if within_words else None
    positions = {}
    for index, sequence in enumerate(sequences):
        mae_lm.check_length(len(sequence), f"text {index + 1} of {len(sequences)}")
        for first in range(1, len(sequence) - 1):
            end = first + 1
            while within_words and end < len(sequence) - 1 and not starts[sequence[end]]:
                end += 1
            positions.setdefault((len(sequence), end - first), []).append((index, first))
    return positions
