"""Predictions of fine-tuned models for whole files, outside fairseq's commands."""

import torch

from ..data.batching import batches_of_similar_length
from ..fairseq_api import utils

BATCH_TOKENS = 2048  # of a batch, including padding


@torch.no_grad()
def predict_split(task, model, split):
    """Predicts the examples of a split.

    Args:
        task, model: from `task_loading.load_task`
        split: such as "test"
    Returns: {index of a sequence: what the task's `compute_predictions` gives}
    """
    task.load_dataset(split)
    dataset = task.datasets[split]
    predictions = {}
    for rows in batches_of_similar_length(torch.from_numpy(dataset.sizes), BATCH_TOKENS):
        sample = dataset.collater([dataset[i] for i in rows.tolist()])
        net_input = sample["net_input"]
        if next(model.parameters()).is_cuda:
            net_input = utils.move_to_cuda(net_input)
        output = task.compute_output(model, net_input)
        batch_predictions = task.compute_predictions(output, sample, dataset)
        predictions.update(zip(rows.tolist(), batch_predictions))
    return predictions
