#!/usr/bin/env python3
"""Scores a bag of words on labelled files, the baseline of fine-tuning; `--help` describes it."""

import find_environment  # noqa: F401  comes first
from maelm_fairseq.base.running import run_main


def main():
    from maelm_fairseq.baselines import bag_of_words  # needs packages of the extra `finetune`

    bag_of_words.main()


if __name__ == "__main__":
    run_main(main)
