"""Which positions are masked.

test_model.py checks that each position of a block is either visible or left out.
"""

import numpy as np

from maelm_fairseq.masking import Masking, MaskSettings
from vocabularies import dictionary as dictionary_of

MASK, SPECIAL = 50, 4


def symbol(token):
    """The symbol of a token; two of three begin a word, as SentencePiece marks it."""
    return f"\u2581w{token}" if token % 3 > 0 else f"w{token}"


DICTIONARY = dictionary_of(*map(symbol, range(SPECIAL, MASK)))  # and `<mask>`


def masking(seed=1, **settings):
    return Masking(MaskSettings(**settings), DICTIONARY, seed)


def block(length, seed=0):
    return np.concatenate([[0], np.random.default_rng(seed).integers(SPECIAL, MASK, length - 1)])


def test_masks_depend_on_seed_epoch_and_index_alone():
    def masks(masker, epoch=3, index=7):
        return [part.tolist() for part in masker(block(100), epoch, index)]

    expected = masks(masking())
    used_before = masking()
    used_before(block(60), epoch=1, index=1)
    assert masks(used_before) == expected
    assert masks(masking(seed=2)) != expected
    assert masks(masking(), epoch=4) != expected
    assert masks(masking(), index=8) != expected


def test_blocks_of_equal_length_lose_equally_many_positions():
    for options in [
        {},
        dict(encoder_mask_fraction=1),
        dict(leave_unmasked_prob=0.3, random_token_prob=0.7),
        dict(
            leave_unmasked_prob=0.2,
            random_token_prob=0.3,
            encoder_mask_fraction=0.4,
            mask_prob=0.6,
        ),
    ]:
        masker = masking(**options)
        counts = set()
        for i in range(50):
            masked = masker(block(100, seed=i), epoch=1, index=i)
            counts.add(tuple(map(len, masked)))
        assert len(counts) == 1


def test_the_number_of_predicted_positions_is_exact_in_expectation():
    tokens = block(101)  # 0.17 * 100 = 17, and 0.173 * 100 lies between
    for prob in [0.17, 0.173]:
        masker = masking(mask_prob=prob)
        counts = [len(masker(tokens, epoch, 0).targets) for epoch in range(1, 2001)]
        assert set(counts) <= {17, 18}
        assert abs(np.mean(counts) - 100 * prob) < 4 * 0.5 / np.sqrt(2000)


def test_every_position_but_the_first_is_selected_equally_often():
    draws = 4000
    masker = masking()
    tokens = block(21)
    hits = np.zeros(21)
    for index in range(draws):
        hits[masker(tokens, 1, index).masked] += 1
    share = hits[1:] / hits.sum()
    assert hits[0] == 0
    assert np.abs(share - 1 / 20).max() < 5 * np.sqrt(1 / 20 / hits.sum())


def test_shares_of_what_the_encoder_sees_at_predicted_positions():
    masker = masking(
        mask_prob=0.5,
        leave_unmasked_prob=0.2,
        random_token_prob=0.3,
        encoder_mask_fraction=0.4,
    )
    unmasked = random = mask = predicted = 0
    for index in range(300):
        tokens = block(200, seed=index)
        masked = masker(tokens, 1 + index, index)
        original = masked.targets[: len(masked.predicted_visible)]
        seen = masked.predicted_visible_tokens
        predicted += len(masked.targets)
        mask += (seen == MASK).sum()
        unmasked += (seen == original).sum()
        random += ((seen != original) & (seen != MASK)).sum()
        assert seen.min(initial=MASK) >= SPECIAL
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
        for number in np.unique(word):
            assert len(set(selected[word == number])) == 1
        chosen += len(set(word[selected]))
        total += len(np.unique(word))
    assert abs(chosen / total - 0.3) < 0.01
