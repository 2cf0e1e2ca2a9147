"""The processes of a run, each of which trains on a part of the data."""

import torch


def is_running():
    """Whether this process is one of several, which can exchange values."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def from_all_processes(value):
    """The values that all processes have at this place, a list.

    fairseq also has a function for this, but only for values that are short.
    """
    if not is_running():
        return [value]
    values = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, value)
    return values


def from_first_process(tensor):
    """A tensor, on the CPU, with the values that it has in the first of all processes."""
    if not is_running():
        return tensor
    device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
    shared = tensor.to(device)
    torch.distributed.broadcast(shared, 0)
    return shared.cpu()
