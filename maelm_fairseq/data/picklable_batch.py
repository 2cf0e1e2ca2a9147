"""A batch, and how loader workers send it."""

import io
import pickle

import torch


class PicklableBatch(dict):
    """A batch that loader workers send as bytes.

    PyTorch would open a file and a socket for each tensor.
    """

    def __reduce__(self):
        stream = io.BytesIO()
        pickler = pickle.Pickler(stream, pickle.HIGHEST_PROTOCOL)
        pickler.dispatch_table = {torch.Tensor: reduce_tensor}
        pickler.dump(dict(self))
        return pickle.loads, (stream.getvalue(),)


def reduce_tensor(tensor):
    """What pickle stores of a tensor: a NumPy array, and the function that turns it back."""
    return torch.from_numpy, (tensor.numpy(),)
