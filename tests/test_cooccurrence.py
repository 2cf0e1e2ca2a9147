"""Embeddings from co-occurrence: compared with a computation pair by pair, and used by a run."""

import math
from collections import Counter

import numpy as np
import pytest
import torch

from conftest import TINY
from maelm_fairseq.data import cooccurrence
from maelm_fairseq.vocabulary import load_dictionary
from stoppable_runs import finish, two_processes
from training import assert_same_weights, checkpoint, error_of_command, train

BEGIN = ["--cooccurrence-embeddings", "--encoder-embed-dim", 8, "--encoder-attention-heads", 2]
STILL = ["--lr", 1e-12, "--max-update", 1]  # Training changes nothing that a test would see.


def text_of_numbers(vocabulary, count):
    rng = np.random.default_rng(1)
    blocks = []
    for _ in range(count):
        numbers = rng.integers(vocabulary, size=rng.integers(1, 12))
        blocks.append(numbers**2 // vocabulary)
    return blocks


def naive_counts(blocks):
    counts = Counter()
    for block in blocks:
        for i, symbol in enumerate(block):
            for j, other in enumerate(block):
                if 0 < abs(i - j) <= 5:
                    counts[int(symbol), int(other)] += 1 / abs(i - j)
    return counts


def naive_information(counts):
    of_symbol = Counter()
    for (symbol, _), count in counts.items():
        of_symbol[symbol] += count
    total = sum(count**0.75 for count in of_symbol.values())
    information = {}
    for (symbol, other), count in counts.items():
        by_chance = of_symbol[symbol] * of_symbol[other] ** 0.75
        information[symbol, other] = max(0, math.log(count * total / by_chance))
    return information


def test_neighbours_are_counted_within_blocks():
    blocks = text_of_numbers(20, 60)
    expected = naive_counts(blocks)
    for parts in [[blocks], [blocks[:25], blocks[25:]]]:
        pairs, counts = cooccurrence.count_neighbours(parts, 20)
        counted = {}
        for pair, count in zip(pairs, counts, strict=True):
            counted[divmod(int(pair), 20)] = count
        assert counted == pytest.approx(dict(expected))


def test_the_information_of_pairs_is_that_of_the_formula():
    blocks = text_of_numbers(20, 60)
    pairs, counts = cooccurrence.count_neighbours([blocks], 20)
    expected = naive_information(naive_counts(blocks))
    information = cooccurrence.positive_information(pairs, counts, 20)
    for pair, value in zip(pairs, information, strict=True):
        assert value == pytest.approx(expected[divmod(int(pair), 20)])
    assert 0 < (information > 0).mean() < 1


def test_embeddings_are_singular_vectors_with_the_root_of_their_values():
    blocks = text_of_numbers(20, 60)
    pairs, counts = cooccurrence.count_neighbours([blocks], 20)
    matrix = np.zeros((22, 22))
    for (row, column), value in naive_information(naive_counts(blocks)).items():
        matrix[row, column] = value
    vectors, values, _ = np.linalg.svd(matrix)
    expected = (vectors * np.sqrt(values))[:, :6]
    rows, columns = np.divmod(pairs, 20)
    pairs = 22 * rows + columns

    def embeddings():
        return cooccurrence.compute_embeddings(pairs, counts, 22, 6, std=0.06).double().numpy()

    vectors = embeddings()
    # Their signs are free, but the products of rows are not.
    scale = np.linalg.norm(expected) / np.linalg.norm(vectors)
    np.testing.assert_allclose(scale**2 * vectors @ vectors.T, expected @ expected.T, atol=1e-4)
    assert vectors[vectors.any(axis=1)].std() == pytest.approx(0.06, rel=0.05)
    assert not vectors[20:].any()  # These symbols have no neighbours.
    np.testing.assert_array_equal(vectors, embeddings())


def test_a_run_begins_with_them_and_resumes_without(data, tmp_path):
    printed = train(data, tmp_path / "run", *BEGIN, *STILL)
    train(data, tmp_path / "random", *BEGIN[1:], *STILL)
    dictionary = load_dictionary(str(data))
    state = checkpoint(tmp_path / "run")["model"]
    random = checkpoint(tmp_path / "random")["model"]
    weight = state["embed_tokens.weight"]
    changed = (weight - random["embed_tokens.weight"]).abs().amax(dim=1) > 1e-6
    assert (
        f"{int(changed.sum())} of {len(dictionary)} embeddings start from co-occurrence" in printed
    )
    unused = [dictionary.bos(), dictionary.pad(), dictionary.index("<mask>")]
    assert not changed[unused].any()
    assert weight[changed].std() == pytest.approx(0.06, rel=0.05)
    # The bias gives the frequencies of tokens, each counted once more.
    probabilities = state["lm_head.bias"].double().exp()
    assert probabilities.sum() == pytest.approx(1, abs=1e-4)
    assert probabilities[dictionary.eos()] == probabilities.max()
    for name in state.keys() - {"embed_tokens.weight", "lm_head.bias"}:
        torch.testing.assert_close(state[name], random[name], rtol=0, atol=1e-6)
    resumed = train(data, tmp_path / "run", *BEGIN, *STILL, "--max-update", 2)
    assert "start from co-occurrence" not in resumed
    last = tmp_path / "run" / "checkpoint_last.pt"
    continued = train(data, tmp_path / "next", *BEGIN, "--finetune-from-model", last)
    assert "start from co-occurrence" not in continued


def test_two_processes_begin_as_one_does(data, tmp_path):
    options = [data, *TINY, "--seed", 1, *BEGIN, *STILL]
    train(data, tmp_path / "one", *BEGIN, *STILL)
    finish(two_processes(*options, "--save-dir", tmp_path / "two"), 0)
    assert_same_weights(tmp_path / "one", tmp_path / "two", 1e-6)


def test_more_columns_than_symbols_are_refused(data, tmp_path):
    wide = ["--cooccurrence-embeddings", "--encoder-embed-dim", 4096, "--encoder-layers", 1]
    fault = error_of_command(data, *TINY, *wide, "--save-dir", tmp_path)
    assert "--cooccurrence-embeddings: --encoder-embed-dim 4096 must be at most" in fault


def test_text_that_says_nothing_of_its_tokens_fills_nothing():
    for blocks in [[np.array([4])] * 9, [np.array([4, 4, 4])] * 9]:
        pairs, counts = cooccurrence.count_neighbours([blocks], 30)
        assert not cooccurrence.compute_embeddings(pairs, counts, 30, 8, std=0.06).any()


def test_of_few_symbols_only_those_are_filled():
    blocks = [np.array([4, 5, 4, 5]), np.array([6, 7, 6, 7])] * 9
    pairs, counts = cooccurrence.count_neighbours([blocks], 30)
    vectors = cooccurrence.compute_embeddings(pairs, counts, 30, 8, std=0.06)
    assert vectors.any(dim=1).nonzero()[:, 0].tolist() == [4, 5, 6, 7]
    assert vectors[4:8].square().mean().sqrt() == pytest.approx(0.06, rel=1e-4)
