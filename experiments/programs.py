"""Programs that the experiments run; what they print goes into log files."""

import os
import subprocess
import sys

from child_processes import program
from maelm_fairseq.base.errors import UsageError


def execute(command, log, variables=None):
    """Runs a program, and appends its output to a log.

    Args:
        command: list of strings and numbers
        log: path of the file; its folder must exist
        variables: more of the environment
    Raises:
        UsageError: it failed, or was stopped
    """
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    environment = dict(os.environ, PATH=path, PYTHON=sys.executable, OMP_WAIT_POLICY="passive", **(variables or {}))
    print(f"running: {log}", flush=True)
    with open(log, "ab") as stream:
        with program(list(map(str, command)), stdout=stream, stderr=subprocess.STDOUT, env=environment) as process:
            status = process.wait()
    if status:
        with open(log, encoding="utf-8", errors="replace") as lines:
            last = (lines.read().strip().splitlines() or [""])[-1]
        raise UsageError(f"{command[0]} stopped with exit status {status}: {last}; the whole log is {log}")
