"""A command that runs in a fork (`forks.py`) behaves like a real process."""

import os
import subprocess
import sys

import pytest

from conftest import FORKS, PYTHON

pytestmark = pytest.mark.skipif(FORKS.name == "bin", reason="TESTS_FORK=0")

# What a program can observe of a new interpreter.
STATE = """
import atexit, logging, os, signal, sys
atexit.register(print, "at exit")
print(__name__, sys.argv, sys.path[:2], os.getcwd(), sys.stdin.read(), sys.stdout.isatty(), sys.stdout.encoding)
print(sorted({*os.environ} - {"PWD", "SHLVL", "_", "OLDPWD"}), os.environ["PYTHONPATH"])
print(logging.root.handlers, logging.root.level, logging.root.manager.disable, sys.excepthook is sys.__excepthook__)
print([(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)])
print([name for name in sys.modules if name.partition(".")[0] in ("fairseq_cli", "maelm_fairseq")])
import torch
print(torch.get_num_threads(), torch.get_default_dtype())
print("error", file=sys.stderr)
{}
"""


@pytest.mark.parametrize(
    "how, ending",
    [("file", "sys.exit('wrong')"), ("-c", "pass"), ("-m", "sys.exit(3)"), ("-c", "raise KeyboardInterrupt")],
)
def test_a_fork_does_what_a_process_does(tmp_path, how, ending):
    text = STATE.replace("{}", ending, 1)
    (tmp_path / "program.py").write_text(text)
    arguments = {"file": ["program.py"], "-c": ["-c", text], "-m": ["-m", "program"]}[how]
    outcomes = []
    for python in [sys.executable, PYTHON]:
        done = subprocess.run(
            [python, *arguments, "--an", "argument"],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": "here"}, input="text", capture_output=True, text=True,
        )  # fmt: skip
        outcomes.append((done.returncode, done.stdout, "Traceback" in done.stderr, "error\n" in done.stderr))
    assert outcomes[0] == outcomes[1]
