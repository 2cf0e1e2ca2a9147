"""The programs that experiments call, as a user would."""

import subprocess
from pathlib import Path

RECIPES = Path(__file__).resolve().parent.parent / "recipes"


def run_quietly(*command):
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
