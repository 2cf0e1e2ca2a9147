"""The miniature's jobs: what is done again, what is refused, what resumes."""

import os
import signal
import subprocess
import sys

import pytest

from conftest import ROOT, succeed

sys.path[:0] = [str(ROOT / "recipes"), str(ROOT / "recipes" / "miniature")]
import jobs  # noqa: E402
from jobs import AGAIN, DONE, TO_DO, Job, Jobs  # noqa: E402
from maelm_fairseq.errors import UsageError  # noqa: E402


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


def test_a_job_without_its_output_is_done_again(kitchen):
    kitchen.cook()
    (kitchen.folder / "bread" / "result").unlink()
    assert kitchen.states() == [DONE, TO_DO]
    assert kitchen.cook() == ["bread"]


def test_a_changed_input_option_or_version_is_named(kitchen, monkeypatch):
    kitchen.cook()
    (kitchen.folder / "flour").write_text("rye")
    assert kitchen.states() == [AGAIN, AGAIN]
    assert kitchen.reasons() == [
        "its input flour changed",
        "`dough white` is to be done again: its input flour changed",
    ]
    (kitchen.folder / "flour").write_text("wheat")
    assert kitchen.states() == [DONE, DONE]
    kitchen.options = ["--salt", "2", "--oil"]
    assert kitchen.reasons()[0] == "--salt was 1, is 2; --oil was not given, is given"
    kitchen.options = ["--salt", "1"]
    version = jobs.__version__
    monkeypatch.setattr(jobs, "__version__", version + "1")
    assert kitchen.reasons()[0] == f"the code's version was {version}, is {version}1"


def test_what_the_old_version_left_is_removed_first_and_an_equal_result_ends_the_chain(kitchen, capsys):
    kitchen.cook()
    (kitchen.folder / "dough" / "crumbs").write_text("old")
    (kitchen.folder / "dough.log").write_text("old")
    (kitchen.folder / "flour").write_text("rye")
    assert kitchen.cook() == ["dough"]  # it came out equal, so the bread is made from the same dough
    assert not (kitchen.folder / "dough" / "crumbs").exists() and not (kitchen.folder / "dough.log").exists()
    assert "bread white  (unchanged)" in capsys.readouterr().out
    assert kitchen.states() == [DONE, DONE]


def test_results_without_a_record_are_done_again(kitchen):
    kitchen.cook()
    (kitchen.folder / "records" / "bread" / "white.json").unlink()
    assert kitchen.reasons() == ["", "there is no record of what it was made from"]
    assert kitchen.cook() == ["bread"]


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
    with pytest.raises(UsageError) as raised:
        kitchen.cook()
    assert str(raised.value) == (
        f"{tmp_path}/dough: `dough white` would have to be done again: --salt was 1, is 2. That takes long: "
        "undo the change, choose another --dest, or remove this folder to do it again"
    )
    assert kitchen.cooked == [] and (tmp_path / "bread" / "result").exists()
    (tmp_path / "dough" / "result").unlink()
    (tmp_path / "dough").rmdir()
    (tmp_path / "dough.log").write_text("old")
    assert kitchen.cook()[0] == "dough"
    assert not (tmp_path / "dough.log").exists()


def test_a_precious_job_is_refused_if_its_input_is_to_be_made_again(tmp_path):
    kitchen = Kitchen(tmp_path)
    kitchen.cook()
    (tmp_path / "flour").write_text("rye")
    made = kitchen.jobs()
    made.jobs[1].precious = True
    with pytest.raises(UsageError, match="`bread white` would have to be done again: `dough white` is to be"):
        made.run(made.states(), at_a_time=1)
    assert (tmp_path / "dough" / "result").read_text() == "dough"


def test_a_precious_job_without_a_record_is_refused(tmp_path):
    kitchen = Kitchen(tmp_path, precious=True)
    (tmp_path / "dough").mkdir()
    (tmp_path / "dough" / "result").write_text("from an older version")
    with pytest.raises(UsageError, match="no record of what it was made from"):
        kitchen.cook()
    assert (tmp_path / "dough" / "result").read_text() == "from an older version"


def test_the_state_is_shown(kitchen, capsys):
    kitchen.cook()
    (kitchen.folder / "flour").write_text("rye")
    (kitchen.folder / "bread" / "result").unlink()
    made = kitchen.jobs()
    capsys.readouterr()
    made.show(made.states())
    assert capsys.readouterr().out == (
        "0 of 2 jobs are done\n"
        "  dough: 0 done; to do: nothing\n"
        "    to do again: white: its input flour changed\n"
        "  bread: 0 done; to do: white\n"
    )


RECIPE = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
import child_processes

def amid_start():
    os.write(1, b"started\\n")
    while not os.path.exists(sys.argv[2]):
        time.sleep(0.01)

child_processes.terminate_children_on_sigterm()
options = dict(preexec_fn=amid_start) if sys.argv[2] else {}
with child_processes.program(["sh", "-c", "echo started; exec sleep 60"], **options):
    pass
"""


@pytest.mark.parametrize("amid_start", [True, False], ids=["amid its start", "while it runs"])
def test_a_recipe_that_is_stopped_leaves_no_program_behind(tmp_path, amid_start):
    go_on = tmp_path / "go-on"
    process = subprocess.Popen(
        [sys.executable, "-c", RECIPE, ROOT / "recipes", go_on if amid_start else ""],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGTERM)
    go_on.touch()
    _, errors = process.communicate()
    assert process.returncode == 143 and not errors
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


SIGNALS_AMID_SIGNALS = """
import signal, sys
sys.path.insert(0, sys.argv[1])
import child_processes

def exceptions(place):
    seen = raised = 0

    def second(*_):
        nonlocal seen
        seen += 1
        if seen == place:
            signal.raise_signal(signal.SIGTERM)
        return second

    child_processes.stopped = False
    sys.settrace(second)
    try:
        signal.raise_signal(signal.SIGTERM)
    except SystemExit as error:
        raised += error.code == 143
    sys.settrace(None)
    return raised, seen < place

child_processes.terminate_children_on_sigterm()
place, after = 0, False
while not after:
    place += 1
    raised, after = exceptions(place)
    assert raised == 1, (place, raised)
try:
    signal.raise_signal(signal.SIGTERM)  # while the program ends
except SystemExit:
    raise AssertionError
print(place, "places")
"""


def test_a_second_signal_anywhere_in_the_handler_of_the_first_does_no_harm():
    places, _ = succeed("python", "-c", SIGNALS_AMID_SIGNALS, ROOT / "recipes").split()
    assert int(places) > 5


@pytest.mark.parametrize("content", ["", "[]", '{"finished": 1}', '{"finished": true, "made_from": {"version": 3}}'])
def test_a_damaged_record_of_a_job_is_named(tmp_path, content):
    made = Jobs([Job("kind", (), None, output=str(tmp_path / "out"), leaves=[str(tmp_path / "out")])], str(tmp_path))
    (tmp_path / "out").write_text("made")
    (tmp_path / "kind.json").write_text(content)
    with pytest.raises(UsageError, match="kind.json: .*remove it and run again"):
        made.states()
