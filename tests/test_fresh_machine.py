"""Which Python `make` takes on a new machine, and the one line it prints where there is none."""

import shlex
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT


class Machine:
    """A machine whose only commands are those added to it."""

    def __init__(self, folder):
        self.bin = folder / "bin"
        self.venv = folder / "venv"
        self.home = folder / "home"
        self.bin.mkdir()
        self.add("uname", "echo Linux x86_64")

    def add(self, name, script, folder=None):
        path = (folder or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def python(self, name, version, complete=True, folder=None):
        """Adds a Python that claims to have this version; with `-m`, it only prints its command.

        One that is not complete has no ensurepip, as on Debian without python3-venv.
        """
        version = tuple(map(int, version.split(".")))
        ensurepip = "sys" if complete else None
        code = f"import sys; sys.version_info = {version}; "
        code += f"sys.modules['ensurepip'] = {ensurepip}; exec(sys.argv.pop(1))"
        run_code = shlex.join([sys.executable, "-ISc", code])
        print_command = 'if [ "$1" = -m ]; then echo "${0##*/} $*"; exit; fi'
        self.add(name, f'{print_command}\nshift\nexec {run_code} "$@"', folder)

    def run(self, *command):
        return subprocess.run(
            list(map(str, command)),
            env={"PATH": str(self.bin), "HOME": str(self.home)},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    def made(self, *asked):
        """The command that makes the environment."""
        done = self.run("recipes/make_environment.sh", self.venv, *asked)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()[-1]

    def refusal(self, *variables):
        """What `make demo` says when it refuses to start."""
        done = self.run(shutil.which("make"), "demo", f"VENV={self.venv}", *variables)
        assert (done.returncode, done.stdout) == (2, "")
        message, from_make = done.stderr.splitlines()
        assert message.startswith("error: ")
        assert "Error 1" in from_make
        return message


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.mark.parametrize("pythons, taken", [
    ({"python3": "3.11", "python3.12": "3.12"}, "python3"),
    ({"python3": "3.13", "python3.11": "3.11", "python3.12": "3.12"}, "python3.12"),
    ({"python3": "3.9", "python3.11": "3.11"}, "python3.11"),
    ({"python3.12": "3.13", "python3.11": "3.11"}, "python3.11"),
])  # fmt: skip
def test_the_first_python_that_will_do(machine, pythons, taken):
    machine.add("uv", "exit 1")
    for name, version in pythons.items():
        machine.python(name, version)
    assert machine.made() == f"{taken} -m venv {machine.venv}"


def test_uv_where_no_python_will_do(machine):
    machine.python("python3", "3.13")
    machine.python("python3.12", "3.12", complete=False)
    machine.add("python3.11", "echo 'pyenv: python3.11: command not found' >&2; exit 127")
    # Where `pip install --user uv` puts it.
    machine.add("uv", 'echo "uv $*"', machine.home / ".local" / "bin")
    assert machine.made() == f"uv venv --quiet --seed --python 3.12 {machine.venv}"


def test_no_python_will_do(machine):
    machine.python("python3", "3.14")
    machine.python("python3.12", "3.12", complete=False)
    machine.python("python3.10", "3.10")  # no compiler
    message = machine.refusal()
    tried = "(tried python3 python3.12 python3.11 python3.10)"
    assert f"found no Python that will do {tried}. This needs " in message
    assert "`pip install uv`" in message
    assert not machine.venv.exists()


def test_the_python_asked_for(machine):
    machine.python("python3", "3.12")
    machine.python("other", "3.11")
    assert machine.made("other") == f"other -m venv {machine.venv}"
    machine.python("other", "3.13")
    for name in ["other", "nosuch"]:
        message = machine.refusal(f"PYTHON={name}")
        assert f"(tried {name})" in message
        assert message.endswith(f"without PYTHON={name}")
        assert not machine.venv.exists()


def test_an_environment_that_is_there_stays(machine):
    machine.python("python3", "3.11")
    machine.python("python", "3.12", folder=machine.venv / "bin")
    (machine.venv / "pyvenv.cfg").touch()
    done = machine.run("recipes/make_environment.sh", machine.venv)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (machine.venv / "bin" / "python").unlink()
    assert "is a virtual environment whose pip does not work" in machine.refusal()
    (machine.venv / ".installing").touch()  # the last installation was killed
    assert machine.made() == f"python3 -m venv --clear {machine.venv}"


def test_systems_that_fairseq_has_no_builds_for(machine):
    machine.python("python3", "3.12")
    for system in ["Linux aarch64", "MINGW64_NT-10.0 x86_64"]:
        machine.add("uname", f"echo {system}")
        assert f"no builds for {system}" in machine.refusal()
