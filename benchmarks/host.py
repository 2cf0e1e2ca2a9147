"""How long the host needs for an update, by part: time that a GPU waits for where it is faster.

Tensors are so small that almost all of the time is Python's and PyTorch's dispatch, on one thread
of a CPU. They are in fp16, as in the recipes. Attention is one kernel forward and one backward, and
so is dropout, as on a GPU.
"""

import contextlib
import copy
import time
from collections import defaultdict
from unittest import mock

import torch

from common import Training
from counts import kernels_of_a_gpu
from maelm_fairseq import cpu_kernels
from variants import training_arguments

FORWARD, BACKWARD, REST = "forward", "backward", "the rest of an update"
PARTS_OF_REST = ["gradients to zero", "gradient norm", "optimizer", "seeds", "log"]
CHANNELS = 2  # of a head
WARM_UP = 5  # updates


@contextlib.contextmanager
def as_on_a_gpu():
    """Within the block, the model and fairseq's fp16 optimizer use the CPU as if it were a GPU."""
    model_on_gpu = mock.patch.object(cpu_kernels, "use_cpu_kernels", lambda x: False)
    optimizer_on_gpu = mock.patch.object(torch.cuda, "current_device", lambda: "cpu")
    with kernels_of_a_gpu(), model_on_gpu, optimizer_on_gpu:
        yield


class HostTime:
    """A model of VARIANTS with tiny tensors, of the depth in `args`, with data in a folder."""

    def __init__(self, folder, args, variant):
        self.args = copy.copy(args)
        self.args.width = CHANNELS * args.heads
        arguments = training_arguments(folder, self.args, variant)
        with as_on_a_gpu():
            self.training = Training(arguments, "cpu", args.accumulate)
            self.training.seconds(WARM_UP)
        self.seconds = defaultdict(float)
        trainer = self.training.trainer
        optimizer = trainer.optimizer
        criterion = trainer.criterion
        methods = [(optimizer, "zero_grad"), (optimizer, "clip_grad_norm"), (optimizer, "step")]
        methods += [(trainer, "_set_seed"), (trainer, "_reduce_and_log_stats")]
        for part, (owner, name) in zip(PARTS_OF_REST, methods):
            setattr(owner, name, self.timed(getattr(owner, name), part))
        criterion.forward = self.timed(criterion.forward, FORWARD)
        optimizer.backward = self.timed(optimizer.backward, BACKWARD)

    def timed(self, function, part):
        """A function that calls another, and adds the time that it takes to a part."""

        def replacement(*args, **kwargs):
            start = time.perf_counter()
            result = function(*args, **kwargs)
            self.seconds[part] += time.perf_counter() - start
            return result

        return replacement

    def milliseconds(self, steps):
        """Milliseconds by part, averaged over updates: {part: milliseconds}.

        FORWARD and BACKWARD are those of a micro-batch. REST is the rest of an update, in all.
        """
        self.seconds.clear()
        with as_on_a_gpu():
            seconds_of_update = self.training.seconds(steps)
        seconds = {part: total / steps for part, total in self.seconds.items()}
        seconds[REST] = seconds_of_update - seconds[FORWARD] - seconds[BACKWARD]
        for part in [FORWARD, BACKWARD]:
            seconds[part] /= self.args.accumulate
        return {part: 1000 * value for part, value in seconds.items()}
