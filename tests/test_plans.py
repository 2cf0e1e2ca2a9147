"""What the comparison runs; its arithmetic and choice of pilots."""

import sys

import pytest

from conftest import ROOT

sys.path[:0] = [str(ROOT / folder) for folder in ["recipes", "experiments"]]
import comparison  # noqa: E402
import evaluate  # noqa: E402
import plans  # noqa: E402
import runs  # noqa: E402
from arithmetic import operations  # noqa: E402
from evaluation.tasks import PRIMARY, SECONDARY  # noqa: E402
from kept_records import FINE_TUNED, Records  # noqa: E402
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


class OnlyCommands(runs.Runs):
    """Notes the programs that would be run."""

    def __init__(self, *args):
        super().__init__(*args)
        self.commands = {}

    def execute(self, name, command, device=None):
        self.commands[name] = list(map(str, command))


def test_texts_are_downloaded_unless_they_are_given(tmp_path):
    plan = plans.SMALL
    downloaded, given = (OnlyCommands(plan, tmp_path, None, *folders) for folders in [(), ("data", "tasks")])
    downloaded.prepare()
    assert list(downloaded.commands) == ["text", "data", "labelled"]
    assert downloaded.commands["labelled"][-len(plan.tasks) :] == list(plan.tasks)
    given.prepare()
    assert given.commands == {}


def test_models_are_fine_tuned_beside_their_evaluation(tmp_path, monkeypatch):
    """The evaluation knows all options of both commands."""
    monkeypatch.setattr(Records, "add", lambda *_: None)
    (run, *_), folder = plans.SCORES.runs(), OnlyCommands(plans.SCORES, tmp_path, Records(plans.SCORES, tmp_path))
    folder.train = lambda run, device: None
    folder.fine_tune(run, None)
    folder.evaluate(run, None, "frozen", plans.SCORES.tasks)
    tuning, frozen = (evaluate.parse(folder.commands[f"{kind}-mlm-1"][2:]) for kind in (FINE_TUNED, "frozen"))
    assert tuning.tasks == ["trec", "rotten_tomatoes"] and tuning.fine_tune == ["mean"]
    assert frozen.tasks == list(plans.SCORES.tasks) and not frozen.fine_tune
    assert (tuning.dest, tuning.few_shot_repeats) == (frozen.dest, frozen.few_shot_repeats)


def test_records_of_the_repository_are_of_this_plan():
    """Those of runs that took days are read, count as done and can be reported; only the rest is to be done."""
    plan, kept = plans.SCORES, Records(plans.SCORES, ROOT / "experiments" / "records")
    folder = runs.Runs(plan, "nowhere", kept)
    found = [run for run in plan.runs() if kept.has(run, folder.options(run))]
    assert {*KEPT} <= {run.name for run in found}
    assert all(set(kept.outcomes(run)) == set(plan.tasks) for run in found)
    assert all(kept.learning_rate(model) for model in plan.pilots)
    assert "| MLM | 0.001 | 5.797" in Results(plan, kept, "command").summary()
