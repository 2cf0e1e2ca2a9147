"""Runs a training command for lib.sh: appends its output to a log, shows its progress, and passes signals on to it.

python recipes/run_training.py SAVE_DIR FIRST_MACHINE COMMAND...

SIGTERM, SIGUSR1 and Ctrl-C ask the command to stop, which takes as long as an update and saving a checkpoint. Exits
with the command's status: 75 if it stopped on request. SAVE_DIR/finished records a command that has finished.

FIRST_MACHINE is empty, or ADDRESS:PORT in a run on several machines: when another is lost, this one ends with status 1.
"""

import contextlib
import glob
import os
import re
import signal
import subprocess
import sys

from machines import Machines
from show_progress import Progress

# As in maelm_fairseq.preemption, which takes seconds to import.
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
STOPPED = 75


# How torchrun reports the first of its processes that failed; it exits with 1 itself.
TORCHRUN_STATUS = re.compile(rb"\s*exitcode\s*: (-?\d+) \(pid: ")


def children(pid):
    """The numbers of the processes that a process has started; none if it has ended."""
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        with contextlib.suppress(OSError), open(path, encoding="ascii") as stream:
            found += map(int, stream.read().split())
    return found


def kill(pid):
    """Kills a process and all that it has started."""
    for child in children(pid):
        kill(child)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class Training:
    """A training command as a child process."""

    def __init__(self, command):
        self.command = command
        self.by_torchrun = os.path.basename(command[0]) == "torchrun"
        self.process = None
        self.stopping = self.lost = False

    def stop(self, number, frame):
        """Handles a signal. A terminal's Ctrl-C reaches the command too, so it is passed on as SIGTERM, not counted."""
        again = self.stopping and number == signal.SIGINT
        self.stopping = True
        if self.process:
            self.pass_on(signal.SIGINT if again else signal.SIGTERM)

    def pass_on(self, number):
        """Sends a signal to the training; to what torchrun has started, as torchrun itself would not wait for long."""
        for pid in (self.by_torchrun and children(self.process.pid)) or [self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def lose(self, message):
        """Ends the training, which waits for a lost machine and so can save nothing."""
        self.lost = True
        print(f"error: {message}; ending the training on this machine", file=sys.stderr, flush=True)
        if self.process:
            kill(self.process.pid)

    def run(self, log):
        """Runs the command to its end; returns its exit status as a shell would."""
        for number in SIGNALS:
            signal.signal(number, self.stop)
        progress, failed_with = Progress(), None
        streams = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        # Ctrl-C must not reach torchrun: see pass_on.
        streams["start_new_session"] = self.by_torchrun
        with open(log, "ab", buffering=0) as logged, subprocess.Popen(self.command, **streams) as self.process:
            if self.stopping:
                self.process.terminate()
            if self.lost:
                kill(self.process.pid)
            for line in self.process.stdout:
                logged.write(line)
                failure = TORCHRUN_STATUS.match(line) if self.by_torchrun else None
                if failure and failed_with is None:
                    failed_with = int(failure.group(1))
                shown = progress.line(line.decode("utf-8", "replace").rstrip("\n"))
                if shown is not None:
                    print(shown, flush=True)
        status = failed_with or self.process.returncode
        if self.lost:
            return 1
        return status if status >= 0 else 128 - status


def main():
    save_dir, first_machine, *command = sys.argv[1:]
    log = os.path.join(save_dir, "train.log")
    training, machines = Training(command), None
    if first_machine:
        address, _, port = first_machine.rpartition(":")
        machines = Machines(address, int(port), STOPPED, training.lose)
        machines.watch()
    status = training.run(log)
    if machines:
        machines.end(status)
    if status == 0:
        with open(os.path.join(save_dir, "finished"), "w", encoding="utf-8") as stream:
            stream.write(" ".join(command) + "\n")
    elif status == STOPPED:
        print(f"training stopped on request; the same command resumes; the full log is in {log}", file=sys.stderr)
    else:
        print(
            f"training failed with exit status {status}; the full log is in {log}; "
            "the same command resumes from the last checkpoint",
            file=sys.stderr,
        )
    sys.exit(status)


if __name__ == "__main__":
    main()
