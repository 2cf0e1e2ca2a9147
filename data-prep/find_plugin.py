"""Finds the plugin, and says so if a package is missing.

A program imports this module before all others (`import find_plugin`): the plugin need not be
installed.
"""

import os
import sys

try:
    import numpy  # noqa: F401
    import sentencepiece  # noqa: F401
    import tqdm  # noqa: F401
except ImportError as error:
    sys.exit(f"error: {sys.executable}: {error}; run `make install`, and activate its environment")

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
