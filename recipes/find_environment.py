"""Finds the plugin of this repository, installed or not, and says so if fairseq is missing.

A recipe that is started as a Python program imports this module before all others.
"""

import importlib.util
import os
import sys

if importlib.util.find_spec("fairseq") is None:
    advice = "run `make install`, and activate its environment"
    sys.exit(f"error: {sys.executable}: no package fairseq; {advice}")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
