"""What the comparison runs, its compute, and its choice of learning rates."""

import pytest

from conftest import ROOT
from evaluation.labelled_tasks import PRIMARY, SECONDARY
from plans import SCORES
from preregistration import MAE_LM, MLM, SHARED, TASKS, UNSEEN
from pretraining import training_flops
from record_store import Records
from runs import Runs


def test_the_tasks_are_those_of_the_evaluation():
    assert list(TASKS) == PRIMARY and set(UNSEEN) < set(SECONDARY)


def test_the_longer_run_takes_the_compute_of_the_mlm():
    mlm, shared = (training_flops(model, SCORES.size, 46.5, 8002) for model in (MLM, SHARED))
    assert 16360 * shared / (12250 * mlm) == pytest.approx(1, abs=1e-3)
    assert shared / mlm == pytest.approx(0.749, abs=5e-4)


def test_each_model_has_the_learning_rate_of_its_own_pilot(tmp_path):
    records = Records(SCORES, tmp_path)
    records.keep_learning_rate(MLM, [8.1, 7.9, 7.9])
    records.keep_learning_rate(SHARED, [8, 8, 7])
    runs = Runs(SCORES, tmp_path, records)
    first = [run for run in SCORES.runs() if run.pilots in (MLM, SHARED) and run.seed == 1]
    options = {run.name: runs.options(run) for run in first}
    rates = {name: given[given.index("--lr") + 1] for name, given in options.items()}
    assert rates == {"mlm-1": "0.001", "shared-1": "0.002", "shared_long-1": "0.002"}
    assert records.learning_rate(MAE_LM) is None


def test_the_committed_records_count_as_done():
    """They are of runs that took days."""
    records = Records(SCORES, ROOT / "experiments" / "records")
    runs = Runs(SCORES, "nowhere", records)
    assert all(records.learning_rate(model) for model in SCORES.pilots())
    for run in SCORES.runs():
        records.check(run, runs.options(run))
        assert records.has(run)
