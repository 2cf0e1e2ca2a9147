#!/usr/bin/env python3
"""Writes a checkpoint with its trained embeddings and newly initialised layers: what an encoder must do better than.

python reset_layers.py model.pt reset.pt
"""

import os
import sys

import torch
from torch import nn

from maelm_fairseq.checkpoints.building import build_model
from maelm_fairseq.checkpoints.reading import read_file
from maelm_fairseq.checkpoints.writing import save
from maelm_fairseq.engine import init_bert_params
from maelm_fairseq.vocabulary import load_dictionary


def reset(source, dest):
    state = read_file(source)
    model = build_model(state, load_dictionary(state["cfg"]["task"]["data"]), source)
    torch.manual_seed(state["cfg"]["common"]["seed"])
    for module in model.encoder.layers.modules():
        if isinstance(module, nn.LayerNorm):
            module.reset_parameters()
        init_bert_params(module)
    state["model"] = model.state_dict()
    save(state, dest)


if __name__ == "__main__":
    reset(*map(os.path.abspath, sys.argv[1:]))
