"""How long the host needs for an update, by part: time that a GPU waits for where it is faster.

Tensors are so small that almost all of the time is Python's and PyTorch's dispatch, on one thread of a CPU, in fp16, as
in the recipes; attention is one kernel forward and one backward, and so is dropout, as on a GPU.
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
    """Within the block, the CPU is used as a GPU is, by the model and by fairseq's optimizer for fp16."""
    of_model = mock.patch.object(cpu_kernels, "computes", lambda x: False)
    of_optimizer = mock.patch.object(torch.cuda, "current_device", lambda: "cpu")
    with kernels_of_a_gpu(), of_model, of_optimizer:
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
        optimizer, criterion = trainer.optimizer, trainer.criterion
        places = [(optimizer, "zero_grad"), (optimizer, "clip_grad_norm"), (optimizer, "step")]
        places += [(trainer, "_set_seed"), (trainer, "_reduce_and_log_stats")]
        for part, (place, name) in zip(PARTS_OF_REST, places):
            setattr(place, name, self.timed(getattr(place, name), part))
        criterion.forward = self.timed(criterion.forward, FORWARD)
        optimizer.backward = self.timed(optimizer.backward, BACKWARD)

    def timed(self, function, part):
        """A function that takes the time of another."""

        def replacement(*args, **kwargs):
            start = time.perf_counter()
            result = function(*args, **kwargs)
            self.seconds[part] += time.perf_counter() - start
            return result

        return replacement

    def milliseconds(self, steps):
        """Of a micro-batch, forward and backward, and of the rest of an update, in all and by part."""
        self.seconds.clear()
        with as_on_a_gpu():
            update = self.training.seconds(steps)
        found = {part: seconds / steps for part, seconds in self.seconds.items()}
        found[REST] = update - found[FORWARD] - found[BACKWARD]
        for part in [FORWARD, BACKWARD]:
            found[part] /= self.args.accumulate
        return {part: 1000 * seconds for part, seconds in found.items()}
