"""What the comparison runs; its arithmetic and choice of pilots."""

import sys

import pytest

from conftest import ROOT

sys.path[:0] = [str(ROOT / folder) for folder in ["recipes", "experiments"]]
import comparison  # noqa: E402
import plans  # noqa: E402
import runs  # noqa: E402
from arithmetic import operations  # noqa: E402
from evaluation.tasks import PRIMARY, SECONDARY  # noqa: E402
from kept_records import Records  # noqa: E402
from results import Results  # noqa: E402

KEPT = ["mlm-1", "shared_long-1", "shared-1", "mae_lm-1", "scratch-1"]  # in the repository, all but fine-tuning


def test_the_tasks_are_those_of_the_evaluation():
    assert list(comparison.TASKS) == PRIMARY
    assert set(comparison.UNSEEN) < set(SECONDARY)
    assert set(plans.TINY.tasks) <= {*PRIMARY, *SECONDARY}


def test_the_longer_run_costs_what_the_mlm_costs():
    once = [operations(model, plans.SCORES.size, 46.5, 8002) for model in (comparison.MLM, comparison.SHARED)]
    assert 16360 * once[1] / (12250 * once[0]) == pytest.approx(1, abs=1e-3)
    assert once[1] / once[0] == pytest.approx(0.749, abs=5e-4)


def test_each_model_has_the_learning_rate_of_its_own_pilot(tmp_path):
    plan, kept = plans.SCORES, Records(plans.SCORES, tmp_path)
    kept.keep_learning_rate(comparison.MLM, [8.1, 7.9, 7.9])
    kept.keep_learning_rate(comparison.SHARED, [8, 8, 7])
    folder = runs.Runs(plan, tmp_path, kept)
    chosen = {run.name: folder.options(run) for run in plan.runs() if run.pilots in (comparison.MLM, comparison.SHARED)}
    rates = {name: options[options.index("--lr") + 1] for name, options in chosen.items() if name.endswith("1")}
    assert rates == {"mlm-1": "0.001", "shared-1": "0.002", "shared_long-1": "0.002"}
    assert kept.learning_rate(comparison.MAE_LM) is None


def test_records_of_the_repository_are_of_this_plan():
    """Those of runs that took days are read, count as done and can be reported; only the rest is to be done."""
    plan, kept = plans.SCORES, Records(plans.SCORES, ROOT / "experiments" / "records")
    folder = runs.Runs(plan, "nowhere", kept)
    found = [run for run in plan.runs() if kept.has(run, folder.options(run))]
    assert {*KEPT} <= {run.name for run in found}
    assert all(set(kept.outcomes(run)) == set(plan.tasks) for run in found)
    assert all(kept.learning_rate(model) for model in plan.pilots)
    assert "| MLM | 0.001 | 5.797" in Results(plan, kept, "command").summary()
