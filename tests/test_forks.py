"""A command that runs in a fork (`fork_server.py`) behaves like a real process."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from conftest import FORKS, PYTHON, ROOT, TINY, command

pytestmark = pytest.mark.skipif(FORKS.name == "bin", reason="TESTS_FORK=0")

# What a program can observe of a new interpreter. Module names and the values of `sys.path` are those of fairseq-train.
STATE = """
import atexit, logging, os, signal, sys
if __name__ == "__main__":
    atexit.register(print, "at exit")
    import __main__
    print(__name__, os.path.basename(getattr(__main__, "__file__", "none")), sys.argv, sys.path, os.getcwd())
    print(sorted({*os.environ} - {"PWD", "SHLVL", "_", "OLDPWD"}), os.environ["PYTHONPATH"])
    print(sys.stdin.read(), sys.stdout.isatty(), sys.stdout.encoding, sys.stdout.line_buffering, sys.stderr.errors)
    print(logging.root.handlers, logging.root.level, logging.root.manager.disable, sys.excepthook is sys.__excepthook__)
    print([(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)])
    print([name for name in sys.modules if name.partition(".")[0] in ("fairseq_cli", "maelm_fairseq")])
    import torch
    print(torch.get_num_threads(), torch.get_default_dtype())
    print("error", file=sys.stderr)
    {}
"""
ENDINGS = [
    "pass",
    "sys.exit(3)",
    "sys.exit('wrong')",
    "{}['key']",
    "__import__('faulthandler').disable(), os.abort()",
    "raise KeyboardInterrupt",
    "os._exit(9)",
]


def outcomes(*arguments, cwd):
    """What a real process and a fork do: [(exit status, standard output, standard error)]."""
    for python in [sys.executable, PYTHON]:
        done = subprocess.run(
            [python, *arguments],
            cwd=cwd, env={**os.environ, "PYTHONPATH": "here"}, input="text", capture_output=True, text=True,
        )  # fmt: skip
        yield done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("ending", ENDINGS)
def test_state_streams_and_exit_status(tmp_path, ending):
    program = tmp_path / "program.py"
    program.write_text(STATE.replace("{}", ending, 1))
    real, fork = outcomes("program.py", "--an", "argument", cwd=tmp_path)
    assert fork == real


def test_code_and_modules(tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "module.py").write_text(STATE.replace("{}", "pass", 1))
    for arguments in [("-c", STATE.replace("{}", "pass", 1), "a", "b"), ("-m", "module", "a")]:
        real, fork = outcomes(*arguments, cwd=tmp_path)
        assert fork == real and real[0] == 0


def test_is_a_fork_and_so_are_the_programs_it_starts():
    nested = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import os; print(os.getppid())'])"
    for code in ["import os; print(os.getppid())", nested]:
        parent = int(subprocess.check_output([PYTHON, "-c", code]))
        with open(f"/proc/{parent}/cmdline") as stream:
            assert "fork_server.py" in stream.read()


def test_random_numbers():
    """torch's are the same in all processes, or not, in a fork as in a real process."""
    code = "import random, numpy, torch; print(random.random(), numpy.random.rand(), torch.rand(()).item())"
    drawn = [
        [subprocess.check_output([python, "-c", code]).split() for _ in range(2)] for python in (PYTHON, sys.executable)
    ]
    same = [[one == other for one, other in zip(*outputs)] for outputs in drawn]
    assert same[0] == same[1] and same[0][:2] == [False, False]


WAITS = "import os, signal, sys, time; {}; print(os.getpid(), flush=True); time.sleep(1000)"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_it(number):
    for python in [sys.executable, PYTHON]:
        for prepare, status in [("pass", -number), (f"signal.signal({int(number)}, lambda *_: sys.exit(7))", 7)]:
            process = subprocess.Popen(
                [python, "-c", WAITS.format(prepare)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            process.stdout.readline()
            process.send_signal(number)
            process.communicate()
            assert process.returncode == status


def test_it_dies_with_its_client():
    with subprocess.Popen([PYTHON, "-c", WAITS.format("pass")], stdout=subprocess.PIPE) as process:
        pid = int(process.stdout.readline())
        process.kill()
    while os.path.exists(f"/proc/{pid}"):
        time.sleep(0.01)


def test_fairseq_train_prints_the_same(data, tmp_path):
    """All but the times, and what fairseq prints when it is imported."""

    def printed(real):
        options = ["--save-dir", tmp_path, "--no-save", "--log-format", "none", "--num-workers", 0]
        done = subprocess.run(
            command("fairseq-train", data, *TINY, *options, real=real),
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        lines = [line.partition(" | ")[2] for line in done.stdout.splitlines()]
        changing = re.compile(r"done training in|tensorboardX|_wall|_wps|_ups")
        return [line for line in lines if not changing.search(line)]

    fork, real = printed(real=False), printed(real=True)
    assert fork == real and len(fork) > 50
