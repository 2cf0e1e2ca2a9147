#!/usr/bin/env python3
"""What is pretrained: arms, which differ in one thing, and seeds.

    python arms.py            the names of all encoders, ARM-SEED, what matters most first
    python arms.py pilots     the names of the pilots, whose seeds are not used again
    python arms.py A-1        the options of fairseq-train for one encoder

Seeds decide the initial weights, the order of the text, and the masks: encoders of one seed start
from the same weights.
"""

import os
import re
from dataclasses import dataclass

from maelm_fairseq.base.command_line import Parser
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.running import run_main

UPDATES = int(os.environ.get("UPDATES", 6_000))  # a trial takes fewer
FADE = ["--encoder-mask-fade-updates", str(UPDATES // 6)]
MIXED_OPTIONS = ["--leave-unmasked-prob", "0.1", "--random-token-prob", "0.1"]  # 80/10/10
ALL_MASKS_OPTIONS = ["--encoder-mask-fraction", "1"]
HALF_OF_MASKS = ["--encoder-mask-fraction", "0.5"]
MLM_OPTIONS = ["--decoder-layers", "0", *ALL_MASKS_OPTIONS]
SHARED_OPTIONS = ["--share-decoder-layers", "--decoder-layers", "4"]
PILOT_SEEDS = [101, 102, 103]


def decoder(layers):
    """The options for a decoder with weights of its own.

    Without a relative position bias, it predicts no better than by token frequencies for thousands
    of updates.
    """
    return ["--decoder-layers", str(layers), "--decoder-relative-bias"]


@dataclass(frozen=True)
class Arm:
    title: str
    options: list
    seeds: int
    updates: int = UPDATES


ARMS = {
    "A": Arm("MAE-LM", [*decoder(4), *FADE], 6),
    "B": Arm("decoder, all masks in the encoder", [*decoder(4), *ALL_MASKS_OPTIONS], 6),
    "D": Arm("MLM, 80/10/10", [*MLM_OPTIONS, *MIXED_OPTIONS], 6),
    "E": Arm("shared layers, 80/10/10", [*SHARED_OPTIONS, *MIXED_OPTIONS, *FADE], 6),
    "A2": Arm("MAE-LM, 80/10/10", [*decoder(4), *MIXED_OPTIONS, *FADE], 4),
    "C": Arm("decoder, half of the masks in the encoder", [*decoder(4), *HALF_OF_MASKS, *FADE], 2),
    "D2": Arm("MLM, masks only", MLM_OPTIONS, 4),
    "A-no-fade": Arm("MAE-LM without fading", decoder(4), 1, UPDATES // 2),
    "A-decoder1": Arm("MAE-LM, decoder of 1", [*decoder(1), *FADE], 1, UPDATES // 2),
    "A-decoder2": Arm("MAE-LM, decoder of 2", [*decoder(2), *FADE], 1, UPDATES // 2),
}
# Learning rates that were tried by pilots of a quarter of the updates. All arms take 1e-3 (see
# RESULTS.md).
RATES = {"A": ["1e-3", "2e-3"], "D": ["5e-4", "1e-3", "2e-3"], "E": ["1e-3", "2e-3"]}
PILOTS = ["A", "D"]
for _name in PILOTS:  # to choose between the paper's 15% and 30%
    _title = f"{ARMS[_name].title}, 15% predicted"
    _options = [*ARMS[_name].options, "--mask-prob", "0.15"]
    ARMS[f"{_name}-masked15"] = Arm(_title, _options, 0)
for _name, _rates in RATES.items():
    for _rate in _rates:
        _title = f"{ARMS[_name].title}, learning rate {_rate}"
        _options = [*ARMS[_name].options, "--lr", _rate]
        ARMS[f"{_name}-lr{_rate}"] = Arm(_title, _options, 0, UPDATES // 4)
FINE_TUNING_RATE = "5e-4"
FINE_TUNING_RATES = ["2e-4", "1e-3"]  # also tried on pilots
TIMED = ["A", "B", "D", "E"]  # arms whose updates are timed on a quiet machine
TRAJECTORIES = ["A", "B", "D"]  # arms whose first two seeds keep a checkpoint for each quarter


def arm_and_seed(name):
    """Splits ARM-SEED or ARM-SEED-VARIANT: the arm's name, the seed, and the variant.

    The variant is "reset", "rates" or "".
    """
    match = re.fullmatch(r"(.+)-(\d+)(?:-(reset|rates))?", name)
    if not match or match[1] not in ARMS:
        raise UsageError(f"{name}: expected ARM-SEED with one of {', '.join(ARMS)}")
    arm, seed, variant = match.groups("")
    return arm, int(seed), variant


def encoders():
    """The names of all encoders, in the order in which they are trained.

    First come four seeds of the arms that are tested, then the arms that are only described, then
    more seeds, and last C.
    """
    names = []
    for name, arm in ARMS.items():
        names += [f"{name}-{seed}" for seed in range(1, arm.seeds + 1)]

    def place(name):
        arm, seed, _ = arm_and_seed(name)
        is_tested = ARMS[arm].seeds > 2
        return arm == "C", seed if is_tested else 4.5

    return sorted(names, key=place)


def pilots():
    """The names of the pilots.

    ARM-SEED-reset is ARM-SEED with newly initialised layers, and ARM-SEED-rates its fine-tuning
    with other learning rates.
    """
    first_seed = PILOT_SEEDS[0]
    names = [f"{name}-{first_seed}" for name, arm in ARMS.items() if not arm.seeds]
    for seed in PILOT_SEEDS:
        for name in PILOTS:
            names += [f"{name}-{seed}", f"{name}-{seed}-reset"]
    return names + [f"{name}-{first_seed}-rates" for name in PILOTS]


def keeps_trajectory(name):
    """Whether an encoder's checkpoints from within its run are kept and measured."""
    arm, seed, _ = arm_and_seed(name)
    return arm in TRAJECTORIES and seed <= 2


def options_of_arm(name):
    """The options of fairseq-train for an encoder, except those for folders and devices.

    The learning rate rises for 6% of the updates, then falls linearly to zero.
    """
    arm_name, seed, _ = arm_and_seed(name)
    arm = ARMS[arm_name]
    updates = arm.updates
    kept_checkpoints = -1 if keeps_trajectory(name) else 1
    return [
        *"--task mae_lm --criterion mae_lm --arch mae_lm_tiny".split(),
        *"--encoder-layers 12 --encoder-embed-dim 128 --encoder-ffn-embed-dim 512".split(),
        *"--encoder-attention-heads 4 --max-positions 64 --tokens-per-sample 64".split(),
        *"--relative-position-buckets t5 --relative-position-local-init".split(),
        *"--dropout 0 --attention-dropout 0".split(),
        *"--mask-prob 0.3 --batch-size 32 --batch-size-valid 64 --num-workers 0".split(),
        *"--optimizer torch_adamw --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 2".split(),
        *["--lr", "1e-3", "--adam-betas", "(0.9, 0.98)", "--lr-scheduler", "polynomial_decay"],
        *["--seed", seed, *arm.options],
        *["--warmup-updates", updates * 6 // 100],
        *["--total-num-update", updates, "--max-update", updates],
        *["--save-interval-updates", updates // 4, "--keep-interval-updates", kept_checkpoints],
        *"--no-epoch-checkpoints".split(),
        *"--distributed-world-size 1 --log-format json --log-interval 50".split(),
    ]


def main():
    parser = Parser("arms.py", description=__doc__)
    parser.add_argument("selection", nargs="?", metavar="pilots or ARM-SEED")
    selection = parser.parse_args().selection
    if selection is None:
        print(*encoders(), sep="\n")
    elif selection == "pilots":
        print(*pilots(), sep="\n")
    else:
        print(" ".join(f"'{word}'" for word in options_of_arm(selection)))


if __name__ == "__main__":
    run_main(main)
