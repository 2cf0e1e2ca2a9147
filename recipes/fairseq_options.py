"""Options of fairseq-train that several recipes share."""

import os

RECIPES = os.path.dirname(os.path.abspath(__file__))
PLUGIN = os.path.join(os.path.dirname(RECIPES), "maelm_fairseq")
ADAM = ["--optimizer", "torch_adamw", "--adam-betas", "(0.9, 0.98)", "--adam-eps", 1e-6, "--weight-decay", 0.01]
