"""Says so if this Python lacks a package that the recipes need.

A recipe that is started as a Python program imports this module before all others.
"""

import importlib.util
import sys

for package in ["fairseq", "maelm_fairseq"]:
    if importlib.util.find_spec(package) is None:
        advice = "run `make install`, and activate its environment"
        sys.exit(f"error: {sys.executable}: no package {package}; {advice}")
