"""The devices of a machine, handed out to work that runs at the same time: each piece gets a GPU of its own.

On the CPU, pieces of work share the cores evenly.
"""

import concurrent.futures
import contextlib
import os
import queue
from dataclasses import dataclass, field
from typing import Dict, Optional

import torch

from child_processes import stop_all
from maelm_fairseq.base.errors import UsageError


@dataclass
class Device:
    """What one piece of work runs on."""

    environment: Dict[str, str] = field(default_factory=dict)  # the variables that limit a child process to it
    number: Optional[int] = None  # of the GPU among those that this process sees; None for the CPU

    def __str__(self):
        return "the CPU" if self.number is None else "GPU " + self.environment["CUDA_VISIBLE_DEVICES"]


def cores():
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def find_devices(jobs=None):
    """The devices for pieces of work that run at the same time: list of :class:`Device`.

    Args:
        jobs: the number of pieces, at most that of the GPUs; None for one on each GPU, or one on the CPU
    """
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs} must be over 0")
    if not torch.cuda.is_available():
        threads = {"OMP_NUM_THREADS": str(max(1, cores() // jobs))} if jobs and jobs > 1 else {}
        return [Device(threads)] * (jobs or 1)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else list(map(str, range(torch.cuda.device_count())))
    if jobs is not None and jobs > len(names):
        raise UsageError(f"--jobs {jobs}, but there are {len(names)} GPUs; give at most as many")
    gpus = [Device({"CUDA_VISIBLE_DEVICES": name.strip()}, number) for number, name in enumerate(names)]
    return gpus[:jobs]


class DeviceQueue:
    """A list of :class:`Device`, of which each is used by one piece of work at a time."""

    def __init__(self, devices):
        self.size, self._free = len(devices), queue.Queue()
        for device in devices:
            self._free.put(device)

    def run(self, function, items):
        """The results of a function of (item, device) for each item, as many at a time as there are devices.

        When one fails, no further one begins, and the processes that others have started are stopped.
        """

        def work(item):
            device = self._free.get()
            try:
                with contextlib.nullcontext() if device.number is None else torch.cuda.device(device.number):
                    return function(item, device)
            finally:
                self._free.put(device)

        if self.size == 1:  # in this thread, where an interruption arrives
            return [work(item) for item in items]
        with concurrent.futures.ThreadPoolExecutor(self.size) as pool:
            futures = [pool.submit(work, item) for item in items]
            try:
                for future in concurrent.futures.as_completed(futures):
                    future.result()  # raises the first error
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                stop_all()
                raise
            return [future.result() for future in futures]
