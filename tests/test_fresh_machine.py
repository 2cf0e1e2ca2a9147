"""Which Python `make` takes on a machine that it has never seen, and the one line where there is none."""

import shlex
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT


class Machine:
    """A machine whose only commands are those added to it."""

    def __init__(self, folder, system="Linux x86_64"):
        self.bin, self.venv, self.home = folder / "bin", folder / "venv", folder / "home"
        self.bin.mkdir()
        self.add("uname", f"echo {system}")

    def add(self, name, script, folder=None):
        path = (folder or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def python(self, name, version, complete=True, folder=None):
        """Adds a Python that claims to have this version; with `-m`, it only says what it was asked for."""
        version = tuple(map(int, version.split(".")))
        code = f"import sys; sys.version_info = {version}; sys.modules['ensurepip'] = {'sys' if complete else None}; "
        code = shlex.join([sys.executable, "-ISc", code + "exec(sys.argv.pop(1))"])
        self.add(name, f'if [ "$1" = -m ]; then echo "${{0##*/}} $*"; exit; fi\nshift\nexec {code} "$@"', folder)

    def run(self, *command):
        return subprocess.run(
            list(map(str, command)), env={"PATH": str(self.bin), "HOME": str(self.home)}, cwd=ROOT,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def made(self, *asked):
        """What makes the environment; and what is said on the way to it."""
        done = self.run("recipes/make_environment.sh", self.venv, *asked)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[-1], done.stderr

    def refusal(self, *variables):
        """What `make demo` says when it refuses to start."""
        done = self.run(shutil.which("make"), "demo", f"VENV={self.venv}", *variables)
        assert done.returncode == 2 and not done.stdout, done.stdout
        message, from_make = done.stderr.splitlines()
        assert message.startswith("error: ") and "Error 1" in from_make
        return message


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.mark.parametrize(
    "pythons, taken",
    [
        ({"python3": "3.11", "python3.12": "3.12"}, "python3"),
        ({"python3": "3.13", "python3.11": "3.11", "python3.12": "3.12"}, "python3.12"),
        ({"python3": "3.9", "python3.11": "3.11"}, "python3.11"),
        ({"python3.12": "3.13", "python3.11": "3.11"}, "python3.11"),
    ],
)
def test_the_first_python_that_will_do(machine, pythons, taken):
    machine.add("uv", "exit 1")
    for name, version in pythons.items():
        machine.python(name, version)
    assert machine.made()[0] == f"{taken} -m venv {machine.venv}"


def test_uv_where_no_python_will_do(machine):
    machine.python("python3", "3.13")
    machine.python("python3.12", "3.12", complete=False)
    machine.add("python3.11", "echo 'pyenv: python3.11: command not found' >&2; exit 127")
    machine.add("uv", 'echo "uv $*"', machine.home / ".local" / "bin")  # as `pip install --user uv` leaves it
    assert machine.made()[0] == f"uv venv --quiet --seed --python 3.12 {machine.venv}"


def test_no_python_will_do(machine):
    machine.python("python3", "3.14")
    found = machine.refusal()
    assert "python3 is Python 3.14; this needs Python 3.11 or 3.12" in found and "`pip install uv`" in found
    machine.python("python3.12", "3.12", complete=False)
    assert "python3.12 lacks ensurepip" in machine.refusal()
    machine.python("python3.10", "3.10")  # no compiler
    assert "python3.10 is Python 3.10 without g++" in machine.refusal()
    assert not machine.venv.exists()


def test_the_python_asked_for(machine):
    machine.python("python3", "3.12")
    machine.python("other", "3.11")
    assert machine.made("other")[0] == f"other -m venv {machine.venv}"
    assert "nosuch does not run" in machine.refusal("PYTHON=nosuch")
    machine.python("other", "3.13")
    assert "other is Python 3.13" in machine.refusal("PYTHON=other") and not machine.venv.exists()


def test_an_environment_that_is_there_stays(machine):
    machine.python("python3", "3.11")
    machine.python("python", "3.12", folder=machine.venv / "bin")
    (machine.venv / "pyvenv.cfg").touch()
    done = machine.run("recipes/make_environment.sh", machine.venv)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    machine.python("python", "3.13", folder=machine.venv / "bin")
    assert f"{machine.venv} has Python 3.13; this needs Python 3.11 or 3.12" in machine.refusal()
    (machine.venv / "bin" / "python").unlink()
    assert "is a virtual environment whose pip does not work" in machine.refusal()
    (machine.venv / ".installing").touch()  # the last installation was killed
    assert machine.made()[0] == f"python3 -m venv --clear {machine.venv}"


def test_systems_that_fairseq_has_no_builds_for(machine):
    machine.add("uname", "echo Linux aarch64")
    machine.add("g++", "")
    machine.python("python3", "3.12")
    found = machine.refusal()
    assert "python3 is Python 3.12; this needs Python 3.10 with a C++ compiler" in found and "Linux aarch64" in found
    machine.add("uv", 'echo "uv $*"')
    command, warning = machine.made()
    assert "--python 3.10" in command and "source is compiled, which has not been tried" in warning
    machine.add("uname", "echo MINGW64_NT-10.0 x86_64")
    assert "no builds for MINGW64_NT-10.0 x86_64" in machine.refusal()
