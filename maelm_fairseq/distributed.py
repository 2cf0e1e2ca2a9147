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


def compute_in_first_process(compute, shapes):
    """Tensors that the first process computes, for all processes.

    Args:
        compute: a function that returns a list of float32 tensors on the CPU; others do not call it
        shapes: of these tensors
    Returns: what `compute` returns
    """
    if not is_running():
        return compute()
    if torch.distributed.get_rank() == 0:
        tensors = compute()
    else:
        tensors = [torch.empty(shape) for shape in shapes]
    device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
    tensors = [tensor.to(device) for tensor in tensors]
    for tensor in tensors:
        torch.distributed.broadcast(tensor, 0)
    return [tensor.cpu() for tensor in tensors]
