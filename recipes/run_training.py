"""Runs a training command for lib.sh: appends its output to a log, shows its progress, and passes signals on to it.

python recipes/run_training.py SAVE_DIR COMMAND...

SIGTERM, SIGUSR1 and Ctrl-C ask the command to stop, which takes as long as an update and saving a checkpoint. Exits
with the command's status: 75 if it stopped on request. SAVE_DIR/finished records a command that has finished.
"""

import os
import signal
import subprocess
import sys

from show_progress import Progress

# As in maelm_fairseq.preemption, which takes seconds to import.
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
STOPPED = 75


class Training:
    """A training command as a child process."""

    def __init__(self):
        self.process = None
        self.stopping = False

    def stop(self, number, frame):
        """Handles a signal. A terminal's Ctrl-C reaches the command too, so it is passed on as SIGTERM, not counted."""
        again = self.stopping and number == signal.SIGINT
        self.stopping = True
        if self.process:
            self.process.send_signal(signal.SIGINT if again else signal.SIGTERM)

    def run(self, command, log):
        """Runs the command to its end; returns its exit status as a shell would."""
        for number in SIGNALS:
            signal.signal(number, self.stop)
        progress = Progress()
        streams = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        with open(log, "ab", buffering=0) as logged, subprocess.Popen(command, **streams) as self.process:
            if self.stopping:
                self.process.terminate()
            for line in self.process.stdout:
                logged.write(line)
                shown = progress.line(line.decode("utf-8", "replace").rstrip("\n"))
                if shown is not None:
                    print(shown, flush=True)
        status = self.process.returncode
        return status if status >= 0 else 128 - status


def main():
    save_dir, *command = sys.argv[1:]
    log = os.path.join(save_dir, "train.log")
    status = Training().run(command, log)
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
