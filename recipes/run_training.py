"""Runs a training command for lib.sh: appends its output to a log, shows its progress, and passes signals on to it.

python recipes/run_training.py SAVE_DIR COMMAND...

SIGTERM, SIGUSR1 and Ctrl-C ask the command to stop, which takes as long as an update and saving a checkpoint; so does
SIGKILL to this program. Exits with the command's status: 75 if it stopped on request. SAVE_DIR/finished records a
command that has finished.
"""

import contextlib
import ctypes
import glob
import os
import re
import signal
import sys

from child_processes import logged_program
from maelm_fairseq.base.signals import SIGNALS, STOPPED

KILLED = [128 + number for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGKILL)]
WORKER_STATUS = re.compile(rb"torchrun_worker.sh: exit status (\d+)$")


def children(pid):
    """The numbers of the processes that a process has started; none if it has ended."""
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        with contextlib.suppress(OSError), open(path, encoding="ascii") as stream:
            found += map(int, stream.read().split())
    return found


def stop_with_parent():
    """Makes Linux ask this process to stop when its parent is killed, which can pass on no signal then."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # 1: PR_SET_PDEATHSIG


class Training:
    """A training command as a child process: a list of strings."""

    def __init__(self, command):
        self.command = command
        self.by_torchrun = os.path.basename(command[0]) == "torchrun"
        self.process, self.stopping = None, False
        self.workers_ended_with = []  # exit statuses of torchrun's workers

    def stop(self, number, frame):
        """Handles a signal. A terminal's Ctrl-C reaches the command too, so it is passed on as SIGTERM, not counted."""
        again = self.stopping and number == signal.SIGINT
        self.stopping = True
        if self.process:
            self.pass_on(signal.SIGINT if again else signal.SIGTERM)

    def pass_on(self, number):
        """Sends a signal to the training: with torchrun, to what its workers have started."""
        pids = [self.process.pid]
        if self.by_torchrun:
            pids = [pid for worker in children(self.process.pid) for pid in children(worker)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if not pids and not self.workers_ended_with:  # torchrun waits for the other machines
            self.process.kill()

    def run(self, log):
        """Runs the command to its end; returns its exit status as a shell would."""
        for number in SIGNALS:
            signal.signal(number, self.stop)
        # Ctrl-C must not reach torchrun: see pass_on.
        options = dict(start_new_session=self.by_torchrun, preexec_fn=stop_with_parent)
        with logged_program(self.command, log, **options) as (self.process, lines):
            if self.stopping:
                self.process.terminate()
            for line, shown in lines:
                ended = WORKER_STATUS.search(line) if self.by_torchrun else None
                if ended:
                    self.workers_ended_with.append(int(ended.group(1)))
                if shown is not None:
                    print(shown, flush=True)
        status = self.process.returncode
        status = next(filter(None, self.workers_ended_with), status if status >= 0 else 128 - status)
        # These signals end no training that has begun: it would have stopped with a checkpoint.
        return STOPPED if self.stopping and status in KILLED else status


def main():
    save_dir, *command = sys.argv[1:]
    log = os.path.join(save_dir, "train.log")
    status = Training(command).run(log)
    if status == 0:
        with open(os.path.join(save_dir, "finished"), "w", encoding="utf-8") as stream:
            stream.write(" ".join(command) + "\n")
    elif status == STOPPED:
        print(f"training stopped on request; the same command resumes; the full log is in {log}", file=sys.stderr)
    else:
        resumes = "; the same command resumes" * os.path.exists(os.path.join(save_dir, "checkpoint_last.pt"))
        print(f"training failed with exit status {status}; the full log is in {log}{resumes}", file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main()
