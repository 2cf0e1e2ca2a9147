"""Runs that tests stop by signals, also of two processes."""

import concurrent.futures
import contextlib
import os
import random
import socket
import subprocess

from conftest import command

STOPPED = 75


# A --user-dir that is the plugin's, and sends signals: in an update, or when something is logged.
TRAP = """
import logging, os, signal
import maelm_fairseq.plugin, maelm_fairseq.task

moment, number, times, rank, kill = {moment!r}, {number}, {times}, {rank}, os.{kill}

def spring():
    global moment
    moment = None
    for _ in range(times):
        kill(0 if kill is os.killpg else os.getpid(), number)

class Trap(logging.Handler):
    def emit(self, record):
        if isinstance(moment, str) and moment in record.getMessage():
            spring()

def train_step(self, *args, original=maelm_fairseq.task.MaeLmTask.train_step, **kwargs):
    if moment == kwargs["update_num"] and os.environ.get("RANK", str(rank)) == str(rank):
        spring()
    return original(self, *args, **kwargs)

logging.getLogger().addHandler(Trap())
maelm_fairseq.task.MaeLmTask.train_step = train_step
"""


def trap(tmp_path, moment, number, group=False, times=1, rank=0):
    """Options of a run to which signals are sent.

    Args:
        moment: the number of updates after which they are sent, in the process with this `rank`;
            or a text, upon whose logging they are sent
        number: the signal
        group: whether they are sent to the process group
        times: how many signals are sent
    """
    plugin = tmp_path / "plugin_with_trap"
    plugin.mkdir()
    code = TRAP.format(
        moment=moment,
        number=int(number),
        times=times,
        rank=rank,
        kill="killpg" if group else "kill",
    )
    (plugin / "__init__.py").write_text(code)
    return ["--user-dir", plugin]


def start(arguments, **environment):
    """Starts a command in a process group of its own; its output is the process's `stdout`."""
    return subprocess.Popen(
        list(map(str, arguments)),
        env={**os.environ, **environment},
        start_new_session=True,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def finish(processes, status):
    """Waits for processes that must all exit with `status`; returns what the first printed."""
    with concurrent.futures.ThreadPoolExecutor() as readers:
        printed = list(readers.map(lambda process: process.stdout.read(), processes))
    assert [process.wait() for process in processes] == [status] * len(processes), printed
    if status == STOPPED:
        assert "Traceback" not in printed[0]
        assert "Exception ignored" not in printed[0]
    return printed[0]


def free_port():
    """A port that is free, as is the next one.

    Both are outside the range from which systems choose ports for connections.
    """
    while True:
        port = random.randrange(10_000, 30_000)
        with contextlib.suppress(OSError), socket.socket() as first, socket.socket() as second:
            first.bind(("", port))
            second.bind(("", port + 1))
            return port


def two_processes(*arguments, each=((), ())):
    """Starts fairseq-train as two processes on the CPU; `each` has further options of each."""
    options = [*arguments, "--distributed-backend", "gloo", "--distributed-world-size", 2]
    options += ["--distributed-no-spawn", "--distributed-init-method", "env://"]
    options += ["--ddp-backend", "legacy_ddp"]
    environment = dict(MASTER_ADDR="localhost", MASTER_PORT=str(free_port()), WORLD_SIZE="2")
    processes = []
    for rank in range(2):
        words = command("fairseq-train", *options, "--distributed-rank", rank, *each[rank])
        processes.append(start(words, **environment, RANK=str(rank)))
    return processes
