"""The settings of fine-tuning: defaults, and what a search tries."""

import argparse

import pytest

from maelm_fairseq.finetuning import glue
from maelm_fairseq.finetuning.task_loading import task_class_of
from maelm_fairseq.runs.finetune_options import hyperparameters_to_try


def settings(task="mae_lm_sentences", name="RTE", width=768, **given):
    args = dict(dict.fromkeys(["batch_size", "lr", "warmup_ratio", "epochs"]), search=False)
    defaults = task_class_of(task).default_settings(name, width, num_layers=12)
    return hyperparameters_to_try(argparse.Namespace(**{**args, **given}), defaults)


def test_the_space_of_a_search_is_the_papers():
    """Batch {16, 32}, lr {1, 2, 3, 4}e-5, warm-up {1/16, 1/10}, and the epochs of the task."""
    space = settings(name="MNLI", search=True)
    assert len(space) == len(set(space)) == 2 * 4 * 2 * 3
    assert {s.lr for s in space} == {1e-5, 2e-5, 3e-5, 4e-5}
    assert {s.batch_size for s in space} == {16, 32}
    assert {s.warmup_ratio for s in space} == {1 / 16, 1 / 10}
    assert {s.epochs for s in space} == {2, 3, 5}
    assert {s.lr for s in settings(search=True, width=1024)} == {5e-6, 7e-6, 1e-5, 2e-5}
    assert {s.epochs for s in settings(search=True)} == {2, 3, 5, 10}
    assert {s.epochs for s in settings("squad", "squad", search=True)} == {2, 3}


def test_a_search_for_a_small_encoder_tries_more_epochs_and_fewer_batch_sizes():
    space = settings(name="own", width=256, search=True)
    assert {s.epochs for s in space} == {5, 12, 20}
    assert {s.batch_size for s in space} == {32}
    assert {s.lr for s in space} == {2.5e-4, 5e-4, 7.5e-4, 1e-3}
    assert len(space) == 12


def test_defaults():
    """Those of GLUE's tasks are published; other tasks have defaults, too.

    Small encoders get higher learning rates.
    """
    assert settings() == [glue.HYPERPARAMETERS["RTE"]]
    assert settings(width=1024) == [glue.HYPERPARAMETERS["RTE"]]
    (own,) = settings(name="own", width=256)
    assert own.lr == pytest.approx(5e-4)
    assert settings(name="own", width=64)[0].lr == pytest.approx(5e-4)
    assert own.epochs == 12
    assert settings(name="MNLI", width=256)[0].epochs == 5
    assert settings("mae_lm_tokens", "RTE")[0].epochs == 5
    assert settings("mae_lm_tokens", "RTE", width=256)[0].epochs == 12
