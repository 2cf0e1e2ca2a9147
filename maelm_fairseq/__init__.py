"""MAE-LM for fairseq: masked language modelling with the masks left out of the encoder.

`--user-dir` imports this package; fairseq is imported by then, and `maelm_fairseq.plugin`
registers everything. Without fairseq, importing the package imports nothing:
`maelm_fairseq.base` needs neither fairseq nor torch.
"""

import os
import sys

__version__ = "0.2.0"
PLUGIN_FOLDER = os.path.dirname(os.path.abspath(__file__))  # for --user-dir

if "fairseq" in sys.modules:
    from . import plugin  # noqa: F401
