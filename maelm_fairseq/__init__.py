"""MAE-LM for fairseq: masked language modelling with the masks left out of the encoder.

`--user-dir` imports this package; fairseq is imported by then, and `maelm_fairseq.plugin`
registers everything. Without fairseq, importing the package imports nothing:
`maelm_fairseq.base` needs neither fairseq nor torch.
"""

import os
import sys

__version__ = "0.2.0"

# Whether `python -m` is starting one of this package's programs.
if sys.argv[:1] == ["-m"] and any(word.startswith(__name__ + ".") for word in sys.orig_argv):
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # which OpenMP reads when torch is imported
    print("loading ...", file=sys.stderr, flush=True)

if "fairseq" in sys.modules:
    from . import plugin  # noqa: F401
