#!/usr/bin/env python3
"""Scores a conditional random field on tagged files, the baseline of fine-tuning; see `--help`."""

import find_environment  # noqa: F401  comes first
from maelm_fairseq.base.running import run_main


def main():
    from maelm_fairseq.baselines import crf  # needs packages of the extra `finetune`

    crf.main()


if __name__ == "__main__":
    run_main(main)
