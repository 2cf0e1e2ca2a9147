"""Checks that fairseq works here; if it does not, prints why and how to fix it in one line, and exits with 1.

python recipes/check_installation.py [GPUS]

With GPUS, checks that this machine has so many, too.
"""

import sys

try:
    import maelm_fairseq  # noqa: F401
except ImportError as error:
    sys.exit(f"error: {error}")
import torch

wanted, found = int((sys.argv + ["0"])[1]), torch.cuda.device_count()
if wanted > found:
    sys.exit(f"error: --gpus {wanted}: PyTorch sees {found} here; --gpus {found} uses {'them' if found else 'the CPU'}")
