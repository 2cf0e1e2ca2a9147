"""Which positions are masked; that visible and left-out ones partition a block, test_model.py checks."""

import numpy as np

from maelm_fairseq.masking import Masking, MaskSettings
from test_vocabulary import dictionary as dictionary_of

MASK, SPECIAL = 50, 4
# Tokens 4 to 49 and `<mask>`; those that begin a word carry SentencePiece's mark.
DICTIONARY = dictionary_of(*("\u2581" * (token % 3 > 0) + f"w{token}" for token in range(SPECIAL, MASK)))


def masking(seed=1, **settings):
    return Masking(MaskSettings(**settings), DICTIONARY, seed)


def block(length, seed=0):
    return np.concatenate([[0], np.random.default_rng(seed).integers(SPECIAL, MASK, length - 1)])


def test_masks_depend_on_seed_epoch_and_index_alone():
    def masks(seed=1, epoch=3, index=7, masker=None):
        return [part.tolist() for part in (masker or masking(seed))(block(100), epoch, index)]

    used = masking()
    used(block(60), epoch=1, index=1)
    assert masks(masker=used) == masks()
    assert masks() not in [masks(seed=2), masks(epoch=4), masks(index=8)]


def test_blocks_of_equal_length_lose_equally_many_positions():
    for options in [
        {},
        dict(encoder_mask_fraction=1),
        dict(leave_unmasked_prob=0.3, random_token_prob=0.7),
        dict(leave_unmasked_prob=0.2, random_token_prob=0.3, encoder_mask_fraction=0.4, mask_prob=0.6),
    ]:
        counts = {tuple(map(len, masking(**options)(block(100, seed=i), epoch=1, index=i))) for i in range(50)}
        assert len(counts) == 1


def test_the_number_of_predicted_positions_is_exact_in_expectation():
    tokens = block(101)  # 0.17 * 100 = 17, and 0.173 * 100 lies between
    for prob in [0.17, 0.173]:
        counts = [len(masking(mask_prob=prob)(tokens, epoch, 0).targets) for epoch in range(1, 2001)]
        assert set(counts) <= {17, 18}
        assert abs(np.mean(counts) - 100 * prob) < 4 * 0.5 / np.sqrt(2000)


def test_every_position_but_the_first_is_selected_equally_often():
    draws = 4000
    masker, tokens = masking(), block(21)
    hits = np.zeros(21)
    for index in range(draws):
        hits[masker(tokens, 1, index).masked] += 1
    share = hits[1:] / hits.sum()
    assert hits[0] == 0
    assert np.abs(share - 1 / 20).max() < 5 * np.sqrt(1 / 20 / hits.sum())


def test_shares_of_what_the_encoder_sees_at_predicted_positions():
    masker = masking(mask_prob=0.5, leave_unmasked_prob=0.2, random_token_prob=0.3, encoder_mask_fraction=0.4)
    unmasked = random = mask = predicted = 0
    for index in range(300):
        tokens = block(200, seed=index)
        masked = masker(tokens, 1 + index, index)
        original = masked.targets[: len(masked.predicted_visible)]
        predicted += len(masked.targets)
        mask += (masked.predicted_visible_tokens == MASK).sum()
        unmasked += (masked.predicted_visible_tokens == original).sum()
        random += ((masked.predicted_visible_tokens != original) & (masked.predicted_visible_tokens != MASK)).sum()
        assert masked.predicted_visible_tokens.min(initial=MASK) >= SPECIAL
    # A random token is the original one by chance once in 46 times.
    assert abs(unmasked / predicted - (0.2 + 0.3 / 46)) < 0.01
    assert abs(random / predicted - 0.3 * 45 / 46) < 0.01
    assert abs(mask / predicted - 0.4 * 0.5) < 0.01


def test_whole_words_are_selected_whole():
    masker = masking(mask_whole_words=True, mask_prob=0.3)
    chosen = total = 0
    for index in range(300):
        tokens = block(60, seed=index)
        masked = masker(tokens, index + 1, index)
        word = np.cumsum(tokens[1:] % 3 > 0)
        selected = np.isin(np.arange(1, 60), masked.masked)
        for w in np.unique(word):
            assert len(set(selected[word == w])) == 1
        chosen += len(set(word[selected]))
        total += len(np.unique(word))
    assert abs(chosen / total - 0.3) < 0.01
