"""What happens to a test that hangs."""

import signal
import subprocess
import sys

from conftest import PYTHON, fork_servers, succeed
from hanging import watched

HANGS = """
import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGABRT])  # as if it were slow to print its stack
print("started", flush=True) or time.sleep(0.5)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGABRT]) and time.sleep(10_000)
"""


def test_its_processes_end_and_show_where_they_were():
    streams = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    running = [subprocess.Popen([python, "-c", HANGS], **streams) for python in (sys.executable, PYTHON)]
    for process in running:
        assert process.stdout.readline() == "started\n"
    with watched("a test", lambda: fork_servers, 0.1):
        printed = [process.stdout.read() for process in running]
    assert [process.wait() for process in running] == [-signal.SIGABRT] * 2
    assert all("Fatal Python error: Aborted" in text and "line 5 in <module>" in text for text in printed), printed
    assert "still there" in succeed("python", "-c", "print('still there')")  # the server of the forks
