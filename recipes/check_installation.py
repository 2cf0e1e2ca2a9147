"""Checks that fairseq works here.

If it does not, the program prints why and how to fix it in one line, and exits with 1.
"""

import sys

try:
    import maelm_fairseq.plugin  # noqa: F401
except ImportError as error:
    sys.exit(f"error: {error}")
