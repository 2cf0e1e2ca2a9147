"""Jobs: what is done again, what is refused, what resumes."""

import os
import signal
import subprocess
import sys

import pytest

from conftest import ROOT

sys.path[:0] = [str(ROOT / folder) for folder in ["recipes", "experiments"]]
import jobs  # noqa: E402
from jobs import AGAIN, DONE, TO_DO, Job, Jobs  # noqa: E402
from maelm_fairseq.engine.errors import UsageError  # noqa: E402


class Kitchen:
    """Two jobs in a folder: `dough` is made from flour, `bread` from dough; each writes what it is made from."""

    def __init__(self, folder, precious=False):
        self.folder, self.options, self.cooked, self.precious = folder, ["--salt", "1"], [], precious
        (folder / "flour").write_text("wheat")

    def write(self, name, source):
        self.cooked.append(name)
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "result").write_text((self.folder / source).read_text() if name == "bread" else "dough")

    def job(self, name, source, **more):
        folder = str(self.folder / name)
        return Job(
            *(name, ("white",), lambda: self.write(name, source), folder + "/result", [folder]),
            inputs=lambda: {os.path.basename(source): str(self.folder / source)}, logs=[folder + ".log"], **more,
        )  # fmt: skip

    def jobs(self):
        dough = self.job("dough", "flour", options=lambda: self.options, precious=self.precious)
        return Jobs([dough, self.job("bread", "dough/result", needs=["dough white"])], str(self.folder / "records"))

    def states(self):
        return [state.status for state in self.jobs().states().values()]

    def reasons(self):
        return [state.reason for state in self.jobs().states().values()]

    def cook(self):
        """Does the jobs that are to be done; returns their names."""
        made, self.cooked = self.jobs(), []
        made.run(made.states(), at_a_time=2)
        return self.cooked


@pytest.fixture
def kitchen(tmp_path):
    return Kitchen(tmp_path)


def test_what_is_done_is_not_done_again(kitchen):
    assert kitchen.states() == [TO_DO, TO_DO]
    assert kitchen.cook() == ["dough", "bread"]
    assert kitchen.states() == [DONE, DONE]
    assert kitchen.cook() == []
    (kitchen.folder / "bread" / "result").unlink()
    assert kitchen.states() == [DONE, TO_DO] and kitchen.cook() == ["bread"]
    (kitchen.folder / "records" / "bread" / "white.json").unlink()
    assert kitchen.reasons() == ["", "there is no record of what it was made from"]
    assert kitchen.cook() == ["bread"]


def test_a_changed_input_option_or_version_is_named(kitchen, monkeypatch):
    kitchen.cook()
    (kitchen.folder / "flour").write_text("rye")
    assert kitchen.states() == [AGAIN, AGAIN]
    assert kitchen.reasons() == [
        "other input flour",
        "`dough white` is to be done again: other input flour",
    ]
    (kitchen.folder / "flour").write_text("wheat")
    assert kitchen.states() == [DONE, DONE]
    kitchen.options = ["--salt", "2", "--oil"]
    assert kitchen.reasons()[0] == "other --salt, --oil"
    kitchen.options = ["--salt", "1"]
    version = jobs.__version__
    monkeypatch.setattr(jobs, "__version__", version + "1")
    assert kitchen.reasons()[0] == "other version of the code"


def test_what_the_old_version_left_is_removed_first_and_an_equal_result_ends_the_chain(kitchen, capsys):
    kitchen.cook()
    (kitchen.folder / "dough" / "crumbs").write_text("old")
    (kitchen.folder / "dough.log").write_text("old")
    (kitchen.folder / "flour").write_text("rye")
    assert kitchen.cook() == ["dough"]  # it came out equal, so the bread is made from the same dough
    assert not (kitchen.folder / "dough" / "crumbs").exists() and not (kitchen.folder / "dough.log").exists()
    assert "bread white  (unchanged)" in capsys.readouterr().out
    assert kitchen.states() == [DONE, DONE]


@pytest.mark.parametrize("changed", [False, True])
def test_a_job_that_was_stopped_resumes_unless_something_changed(kitchen, changed):
    def stop(name, source):
        (kitchen.folder / "dough").mkdir()
        (kitchen.folder / "dough" / "half").write_text("")
        raise KeyboardInterrupt

    write, kitchen.write = kitchen.write, stop
    with pytest.raises(KeyboardInterrupt):
        kitchen.jobs().perform(kitchen.jobs().jobs[0])
    kitchen.write = write
    if changed:
        (kitchen.folder / "flour").write_text("rye")
    assert kitchen.states() == [AGAIN if changed else TO_DO, TO_DO]
    kitchen.cook()
    assert (kitchen.folder / "dough" / "half").exists() != changed


def test_a_precious_job_is_refused_before_anything_is_done(tmp_path):
    kitchen = Kitchen(tmp_path, precious=True)
    kitchen.cook()
    kitchen.options = ["--salt", "2"]
    with pytest.raises(UsageError, match="dough: `dough white` would have to be done again: other --salt. That takes"):
        kitchen.cook()
    assert kitchen.cooked == [] and (tmp_path / "bread" / "result").exists()
    (tmp_path / "dough" / "result").unlink()
    (tmp_path / "dough").rmdir()
    (tmp_path / "dough.log").write_text("old")
    assert kitchen.cook()[0] == "dough"
    assert not (tmp_path / "dough.log").exists()


RECIPE = """
import sys
sys.path.insert(0, sys.argv[1])
import child_processes

child_processes.terminate_children_on_sigterm()
with child_processes.program(["sh", "-c", "echo started; exec sleep 60"]):
    pass
"""


def test_a_recipe_that_is_stopped_leaves_no_program_behind():
    process = subprocess.Popen(
        [sys.executable, "-c", RECIPE, ROOT / "recipes"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == 143 and not errors
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
