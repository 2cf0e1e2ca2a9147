#!/usr/bin/env python3
"""Evaluates pretrained encoders; `evaluate.sh` starts it, and its --help describes it."""

import sys
from pathlib import Path

from maelm_fairseq.base.running import run_main

FETCH = Path(__file__).resolve().parent.parent / "data-prep" / "fetch_labelled.py"


def main():
    from maelm_fairseq.evaluation import program  # needs packages of the extra `finetune`

    program.main(sys.argv[1:], "recipes/evaluate.sh", FETCH)


if __name__ == "__main__":
    run_main(main)
