"""Programs that run at the same time, each on a GPU of its own or with a share of the CPU's cores.

They end when this process does.
"""

import concurrent.futures
import os
import queue
import subprocess
import sys

import torch
from tqdm import tqdm

from ..base.errors import UsageError
from ..base.signals import EXIT_STOPPED, end_with_parent, handle_unless_ignored
from .machines import DISTRIBUTED_VARIABLES


def device_variables(jobs=None):
    """For each program that runs at the same time, the variables that limit it to its device.

    Args:
        jobs: the number of programs, at most one for each GPU; None for one on each GPU, or one on
            the CPU
    Returns: list of dicts
    """
    if not torch.cuda.is_available():
        if not jobs or jobs == 1:
            return [{}]
        threads = max(1, len(os.sched_getaffinity(0)) // jobs)
        return [{"OMP_NUM_THREADS": str(threads)}] * jobs
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else list(map(str, range(torch.cuda.device_count())))
    if jobs is not None and jobs > len(names):
        raise UsageError(f"--jobs {jobs}, but there are {len(names)} GPUs; give at most as many")
    return [{"CUDA_VISIBLE_DEVICES": name.strip()} for name in names[:jobs]]


class Jobs:
    """Programs that this process runs, `count` at the same time; see `device_variables`."""

    def __init__(self, count=None):
        self.count = 0
        self.running = set()
        self.stopped = False
        self._is_requested = False  # whether a signal has stopped them, rather than a failure
        self._free = queue.Queue()  # the variables of devices that no program uses
        for variables in device_variables(count):
            self._free.put(variables)
            self.count += 1

    def stop_on_signals(self):
        """Passes a signal to stop on to all programs, and ends this process when they have ended.

        Returns: self
        """
        handle_unless_ignored(self._on_signal)
        return self

    def stop(self):
        """Asks all running programs to stop, and any that is started from now on."""
        self.stopped = True
        for process in list(self.running):
            process.terminate()

    def _on_signal(self, *_):
        self._is_requested = True
        self.stop()
        if not self.running:
            self._end()

    def _end(self):
        if self._is_requested:
            print("stopped; the same command resumes", file=sys.stderr)
        sys.exit(EXIT_STOPPED)

    def execute(self, command, log, environment=None, show=None):
        """Runs a command.

        Args:
            command: list of its words, the first of which is the program
            log: path of the file to which its output is appended
            environment: variables in addition to this process's own
            show: function that gets each line of its output
        Returns:
            its exit status
        """
        # Programs of this Python come first: those of another may lack packages that it has.
        path = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
        inherited = {
            name: value for name, value in os.environ.items() if name not in DISTRIBUTED_VARIABLES
        }
        variables = {**inherited, "PATH": path, "PYTHON": sys.executable, **(environment or {})}
        with open(log, "ab", buffering=0) as stream:
            process = subprocess.Popen(
                list(map(str, command)),
                env=variables,
                preexec_fn=end_with_parent,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            self.running.add(process)
            if self.stopped:
                process.terminate()
            try:
                for line in process.stdout:
                    stream.write(line)
                    if show:
                        show(line.decode("utf-8", "replace").rstrip("\n"))
            except BaseException:
                process.terminate()
                raise
            finally:
                process.wait()
                self.running.discard(process)
        if self.stopped:
            self._end()
        return process.returncode

    def map(self, function, items):
        """The results of a function of (item, environment) for each item.

        After a failure no further call begins.
        """

        def work(item):
            environment = self._free.get()
            try:
                if self.stopped:
                    return None
                return function(item, environment)
            except BaseException:
                self.stop()
                raise
            finally:
                self._free.put(environment)

        with concurrent.futures.ThreadPoolExecutor(self.count) as pool:
            futures = [pool.submit(work, item) for item in items]
            done = concurrent.futures.as_completed(futures)
            for future in tqdm(done, "runs", total=len(futures), unit="run", disable=None):
                future.result()  # raises the first error
        return [future.result() for future in futures]
