#!/usr/bin/env python3
"""The parts in Python of continuing.mk.

python continuing.py vocabulary TEXT tokenizer.json
    trains a byte-level BPE, as of roberta-base
python continuing.py measure NAME --run RUN
    writes RUN/NAME/measured.csv, one row per measurement
"""

from pathlib import Path

import numpy as np
import tokenizers

from maelm_fairseq import hub
from maelm_fairseq.base.command_line import Parser
from maelm_fairseq.base.files import atomic_write
from maelm_fairseq.base.running import run_main
from maelm_fairseq.base.tokenizer import EOS, MASK, SPECIAL_SYMBOLS
from maelm_fairseq.evaluation.held_out_text import bits_per_token, matched_halves
from maelm_fairseq.evaluation.minimal_pairs import decide_pairs
from maelm_fairseq.evaluation.pair_files import Pairs
from maelm_fairseq.huggingface.tokenizer import recorded_lines
from maelm_fairseq.preparation import sentence_probes
from measure import read_losses, scores_of_fine_tuning
from measurements import HELD_OUT_TEXT, Measurement, write_record

FINE_TUNING_TASKS = ["trec", "rotten_tomatoes"]
SIZE = 8000
BASE = "base"  # the RoBERTa, not continued


def train_vocabulary(text, dest):
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train(
        [str(text)], vocab_size=SIZE, special_tokens=SPECIAL_SYMBOLS, show_progress=False
    )
    tokenizer.add_special_tokens([tokenizers.AddedToken(MASK, lstrip=True, normalized=False)])
    tokenizer.post_processor = tokenizers.processors.RobertaProcessing(
        ("</s>", EOS), ("<s>", 0), add_prefix_space=False
    )
    with atomic_write(dest) as stream:
        stream.write(tokenizer.to_str())


def measurements_of_continued(name, folder):
    """Yields the `Measurement`s of one model, without its arm and seed."""
    for measured in read_losses(folder / name / "train.log"):
        yield measured._replace(feature="validation")
    checkpoint = folder / name / "model.pt"
    yield from without_labels(hub.from_pretrained(checkpoint, folder / "data"))
    dest = folder / name / "tuned"
    for measured in scores_of_fine_tuning(checkpoint, dest, folder, FINE_TUNING_TASKS):
        yield measured._replace(layer="")


def agreement_pairs(lines):
    """`Pairs` of sentences of a text and the same sentences with a word that does not agree."""
    examples = list(sentence_probes.agreement(lines))[1::2]  # those with such a word
    good = [original for _, _, original in examples]
    bad = [changed for changed, _, _ in examples]
    places = [f"held-out text, pair {number}" for number in range(1, len(good) + 1)]
    return Pairs("agreement", "", places, good, bad, np.full(len(good), ""))


def without_labels(model):
    """Yields the `Measurement`s of what is measured without training."""
    lines = recorded_lines(model.data, ["valid"])
    pairs = agreement_pairs(lines)
    agreement = Measurement(task="agreement")
    yield agreement._replace(feature="examples", metric="count", value=len(pairs.good))
    ways = {"masks left out": False, "masks in the encoder": True}
    for feature, masks_in_encoder in ways.items():
        if masks_in_encoder or model.model.cfg.decoder_layers:
            model.masks_in_encoder = masks_in_encoder
            bits, _ = bits_per_token(model, lines, model.model.max_positions())
            yield Measurement(
                task=HELD_OUT_TEXT, feature=feature, metric="bits per token", value=bits
            )
            share = 100 * decide_pairs(model, pairs).mean()
            yield agreement._replace(feature=feature, metric="pairs", value=share)
    share, count = matched_halves(model, lines)
    halves = Measurement(task="halves")
    yield halves._replace(feature="examples", metric="count", value=count)
    yield halves._replace(feature="mean", metric="accuracy", value=share)


def main():
    parser = Parser(description=__doc__)
    parser.add_argument("what", choices=["vocabulary", "measure"])
    parser.add_argument("paths", nargs="+", metavar="ARGUMENT")
    parser.add_argument(
        "--run", type=Path, default=Path("run"), help="folder of data and models (default: run)"
    )
    args = parser.parse_args()
    if args.what == "vocabulary":
        return train_vocabulary(*args.paths)
    (name,) = args.paths
    if name == BASE:
        arm, seed = BASE, 1
    else:
        arm, _, seed = name.rpartition("-")
    measurements = []
    for measured in measurements_of_continued(name, args.run):
        measurements.append(measured._replace(arm=arm, seed=seed))
    write_record(args.run / name / "measured.csv", measurements)


if __name__ == "__main__":
    run_main(main)
