#!/usr/bin/env python3
"""What is pretrained: arms, which differ in one thing, and seeds.

    python arms.py            the names of all encoders, ARM-SEED, what matters most first
    python arms.py pilots     those of the pilots, whose seeds are not used again
    python arms.py A-1        the options of fairseq-train for one

Seeds decide weights, the order of the text and masks: encoders of one seed start from the same weights.
"""

import os
import re
import sys
from dataclasses import dataclass

UPDATES = int(os.environ.get("UPDATES", 6_000))  # fewer for a trial
FADE = ["--encoder-mask-fade-updates", str(UPDATES // 6)]
MIXED = ["--leave-unmasked-prob", "0.1", "--random-token-prob", "0.1"]  # 80/10/10
ALL_MASKS = ["--encoder-mask-fraction", "1"]
MLM = ["--decoder-layers", "0", *ALL_MASKS]
SHARED = ["--share-decoder-layers", "--decoder-layers", "4"]
PILOT_SEEDS = [101, 102, 103]


def decoder(layers):
    """A decoder of its own; without a relative position bias it stays at token frequencies for thousands of updates."""
    return ["--decoder-layers", str(layers), "--decoder-relative-bias"]


@dataclass(frozen=True)
class Arm:
    title: str
    options: list
    seeds: int
    updates: int = UPDATES


ARMS = {
    "A": Arm("MAE-LM", [*decoder(4), *FADE], 6),
    "B": Arm("decoder, all masks in the encoder", [*decoder(4), *ALL_MASKS], 6),
    "D": Arm("MLM, 80/10/10", [*MLM, *MIXED], 6),
    "E": Arm("shared layers, 80/10/10", [*SHARED, *MIXED, *FADE], 6),
    "A2": Arm("MAE-LM, 80/10/10", [*decoder(4), *MIXED, *FADE], 4),
    "C": Arm("decoder, half of the masks in the encoder", [*decoder(4), "--encoder-mask-fraction", "0.5", *FADE], 2),
    "D2": Arm("MLM, masks only", MLM, 4),
    "A-no-fade": Arm("MAE-LM without fading", decoder(4), 1, UPDATES // 2),
    "A-decoder1": Arm("MAE-LM, decoder of 1", [*decoder(1), *FADE], 1, UPDATES // 2),
    "A-decoder2": Arm("MAE-LM, decoder of 2", [*decoder(2), *FADE], 1, UPDATES // 2),
}
# Of learning, tried by pilots of a quarter of the updates. All arms take 1e-3 (see RESULTS.md).
RATES = {"A": ["1e-3", "2e-3"], "D": ["5e-4", "1e-3", "2e-3"], "E": ["1e-3", "2e-3"]}
PILOTS = ["A", "D"]
for _name in PILOTS:  # the choice between the paper's 15% and 30%
    _options = [*ARMS[_name].options, "--mask-prob", "0.15"]
    ARMS[f"{_name}-masked15"] = Arm(f"{ARMS[_name].title}, 15% predicted", _options, 0)
for _name, _rates in RATES.items():
    for _rate in _rates:
        _options = [*ARMS[_name].options, "--lr", _rate]
        ARMS[f"{_name}-lr{_rate}"] = Arm(f"{ARMS[_name].title}, learning rate {_rate}", _options, 0, UPDATES // 4)
FINE_TUNING_RATE, FINE_TUNING_RATES = "5e-4", ["2e-4", "1e-3"]  # and those that were tried on pilots besides
TIMED = ["A", "B", "D", "E"]  # whose updates are timed on a quiet machine
TRAJECTORIES = ["A", "B", "D"]  # whose first two seeds keep their checkpoints at each quarter


def split(name):
    """ARM-SEED or ARM-SEED-KIND -> the arm's name, the seed, and the kind, "reset", "rates" or ""."""
    arm, seed, kind = re.fullmatch(r"(.+)-(\d+)(?:-(reset|rates))?", name).groups("")
    return arm, int(seed), kind


def encoders():
    """The names of all encoders: four seeds of the arms that are tested, the described ones, more seeds, and C."""
    names = [f"{name}-{seed}" for name, arm in ARMS.items() for seed in range(1, arm.seeds + 1)]
    return sorted(names, key=lambda name: (name[:2] == "C-", split(name)[1] if ARMS[split(name)[0]].seeds > 2 else 4.5))


def pilots():
    """The names of the pilots.

    ARM-SEED-reset is ARM-SEED with newly initialised layers, ARM-SEED-rates its fine-tuning with other learning rates.
    """
    first = PILOT_SEEDS[0]
    names = [f"{name}-{seed}{end}" for seed in PILOT_SEEDS for name in PILOTS for end in ("", "-reset")]
    names += [f"{name}-{first}-rates" for name in PILOTS]
    return [*(f"{name}-{first}" for name, arm in ARMS.items() if not arm.seeds), *names]


def keeps_trajectory(name):
    """Whether an encoder's checkpoints within its run are kept and measured."""
    arm, seed, _ = split(name)
    return arm in TRAJECTORIES and seed <= 2


def options(name):
    """The options of fairseq-train for an encoder, but for folders and devices.

    The learning rate rises for 6% of the updates, then falls linearly to zero.
    """
    kept = -1 if keeps_trajectory(name) else 1
    name, seed, _ = split(name)
    arm = ARMS[name]
    every = arm.updates // 4
    return [
        *"--task mae_lm --criterion mae_lm --arch mae_lm_tiny --encoder-layers 12 --encoder-embed-dim 128".split(),
        *"--encoder-ffn-embed-dim 512 --encoder-attention-heads 4 --max-positions 64 --tokens-per-sample 64".split(),
        *"--relative-position-buckets t5 --relative-position-local-init --dropout 0 --attention-dropout 0".split(),
        *"--mask-prob 0.3 --batch-size 32 --batch-size-valid 64 --num-workers 0".split(),
        *"--optimizer torch_adamw --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 2 --lr 1e-3".split(),
        *["--adam-betas", "(0.9, 0.98)", "--lr-scheduler", "polynomial_decay", "--seed", seed, *arm.options],
        *["--warmup-updates", arm.updates * 6 // 100, "--total-num-update", arm.updates, "--max-update", arm.updates],
        *["--save-interval-updates", every, "--keep-interval-updates", kept, "--no-epoch-checkpoints"],
        *"--distributed-world-size 1 --log-format json --log-interval 50".split(),
    ]


def main():
    if len(sys.argv) == 1:
        print(*encoders(), sep="\n")
    elif sys.argv[1] == "pilots":
        print(*pilots(), sep="\n")
    else:
        print(" ".join(f"'{word}'" for word in options(sys.argv[1])))


if __name__ == "__main__":
    main()
