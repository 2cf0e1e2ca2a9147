"""Checks that fairseq works here; if it does not, prints why and how to fix it in one line, and exits with 1.

python recipes/check_installation.py [GPUS]

With GPUS, checks that this machine has so many, too.
"""

import sys


def check(gpus):
    try:
        import maelm_fairseq  # noqa: F401
    except ImportError as error:
        sys.exit(f"error: {error}")
    import torch

    found = torch.cuda.device_count()
    if gpus > found:
        instead = f"--gpus {found} uses {'them' if found else 'the CPU'}"
        sys.exit(f"error: --gpus {gpus}: PyTorch sees {found} here; {instead}")


if __name__ == "__main__":
    check(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
