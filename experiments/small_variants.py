"""The encoders of small.py: what their pretraining differs in, and their names."""

import re

from maelm_fairseq.base.errors import UsageError

DEMO_OPTIONS = (
    "--batch-size 32 --update-freq 1 --max-positions 64 --encoder-mask-fade-updates 0 "
    "--max-update 1500 --total-num-update 1500"
)
RANDOM_OPTIONS = "--no-cooccurrence-embeddings"
HALF_OPTIONS = "--max-update 9000 --total-num-update 9000"
SHORT_OPTIONS = "--max-update 3000 --total-num-update 3000"
UNTRAINED = "untrained"
VARIANTS = {
    "small": "",
    "half": HALF_OPTIONS,
    "small_batch": "--batch-size 32 --update-freq 1",
    "short": SHORT_OPTIONS,
    "short_random": f"{SHORT_OPTIONS} {RANDOM_OPTIONS}",
    "demo": DEMO_OPTIONS,
    "demo_random": f"{DEMO_OPTIONS} {RANDOM_OPTIONS}",
}
# Other objectives of pretraining, with half the updates: the planned comparison of RESULTS.md.
OWN_DECODER = (
    "--no-share-decoder-layers --decoder-relative-bias "
    "--leave-unmasked-prob 0 --random-token-prob 0"
)
ALL_MASKS_AT_ONCE = "--encoder-mask-fraction 1 --encoder-mask-fade-updates 0"
OBJECTIVES = {
    "mae_lm": f"{HALF_OPTIONS} {OWN_DECODER}",
    "all_masks": f"{HALF_OPTIONS} {OWN_DECODER} {ALL_MASKS_AT_ONCE}",
    "mlm": f"{HALF_OPTIONS} {ALL_MASKS_AT_ONCE} --decoder-layers 0",
}
FURTHER = "further"
# Each changes one thing of the short variant. Deeper and wider encoders get fewer updates, so that
# they take the same time.
OTHER_SETTINGS = {
    "deep": "--encoder-layers 4 --decoder-layers 4 --max-update 1800 --total-num-update 1800",
    "wide": (
        "--encoder-embed-dim 384 --encoder-ffn-embed-dim 1536 --encoder-attention-heads 6 "
        "--max-update 1700 --total-num-update 1700"
    ),
    "thin": (
        "--encoder-layers 12 --decoder-layers 12 --encoder-embed-dim 128 "
        "--encoder-ffn-embed-dim 512 --encoder-attention-heads 2 "
        "--max-update 1700 --total-num-update 1700"
    ),
    "masks15": f"{SHORT_OPTIONS} --mask-prob 0.15",
    "rate": f"{SHORT_OPTIONS} --lr 2e-3 --clip-norm 2",
    "half_batch": "--batch-size 32 --update-freq 1 --max-update 6000 --total-num-update 6000",
    "double_batch": "--batch-size 64 --update-freq 2 --max-update 1500 --total-num-update 1500",
    "vocabulary16": SHORT_OPTIONS,
    "cased": SHORT_OPTIONS,
    "task_texts": SHORT_OPTIONS,
    FURTHER: (
        "--max-update 500 --total-num-update 500 --warmup-updates 50 --lr 5e-4 "
        "--encoder-mask-fade-updates 0"
    ),
}
# Only words are tagged with these; see tags.mk.
TAGGERS = {"half_cased": HALF_OPTIONS}
# Those whose losses are of other tokens, or of fewer in a text: they cannot be compared.
OTHER_LOSSES = ["masks15", "vocabulary16", "cased"]
DATA_OF_RECIPE = "data"
# Variants that read other data, with its folder in RUN.
DATA_OF_VARIANT = {
    "vocabulary16": "data_vocabulary16",
    "cased": "data_cased",
    "half_cased": "data_cased",
    "task_texts": "data_with_task_texts",
    FURTHER: "data_of_task_texts",
}
OPTIONS_OF_VARIANT = {**VARIANTS, **OBJECTIVES, **OTHER_SETTINGS, **TAGGERS}
VARIANT_TITLES = {
    "small": "the small recipe",
    "half": "9,000 updates",
    "small_batch": "batches of 32 blocks instead of 64",
    "mae_lm": "9,000 updates, MAE-LM",
    "all_masks": "9,000 updates, all masks shown to MAE-LM's encoder",
    "mlm": "9,000 updates, MLM",
    "short": "3,000 updates",
    "short_random": "3,000 updates, random initial embeddings",
    "deep": "1,800 updates, 4 layers",
    "wide": "1,700 updates, width 384",
    "thin": "1,700 updates, 12 layers of width 128",
    "masks15": "3,000 updates, 15% of the tokens predicted",
    "rate": "3,000 updates, rate 2e-3 and clipping at 2",
    "half_batch": "6,000 updates, 32 blocks in a batch",
    "double_batch": "1,500 updates, 128 blocks in a batch",
    "vocabulary16": "3,000 updates, a vocabulary of 16,000 pieces",
    "cased": "3,000 updates, text with its capitals",
    "task_texts": "3,000 updates, the training texts of the tasks mixed in",
    FURTHER: "3,000 updates, then 500 on the training texts of the tasks",
    "half_cased": "9,000 updates, text with its capitals",
    UNTRAINED: "the small recipe's encoder, untrained",
    "demo": "the demo",
    "demo_random": "the demo, random initial embeddings",
}
NOT_FINE_TUNED = ["demo", "demo_random", *TAGGERS]
FINE_TUNED_VARIANTS = [variant for variant in VARIANT_TITLES if variant not in NOT_FINE_TUNED]
SEEDS = [1, 2, 3]
MORE_SEEDS = [4, 5]  # of one variant
OTHER_SETTINGS_SEEDS = [1]


def encoder_names():
    """The names of all encoders that are trained, first one seed of each variant, then the next."""
    names = []
    for seed in SEEDS:
        names += [f"{variant}-{seed}" for variant in [*VARIANTS, *OBJECTIVES]]
    names += [f"half-{seed}" for seed in MORE_SEEDS]
    for seed in OTHER_SETTINGS_SEEDS:
        names += [f"{variant}-{seed}" for variant in [*OTHER_SETTINGS, *TAGGERS]]
    return names


def variant_and_seed(name):
    """Splits VARIANT-SEED into a pair."""
    match = re.fullmatch(r"(\w+)-(\d+)", name)
    if not match or match[1] not in VARIANT_TITLES:
        raise UsageError(f"{name}: expected VARIANT-SEED with one of {', '.join(VARIANT_TITLES)}")
    return match[1], int(match[2])


def data_folder(name, run):
    """The folder of an encoder's data, which has its vocabulary, in the folder `run`."""
    variant, _ = variant_and_seed(name)
    return run / DATA_OF_VARIANT.get(variant, DATA_OF_RECIPE)


def options_of_recipe(name, run):
    """The options of pretrain_small.sh with which an encoder is trained in the folder `run`."""
    variant, seed = variant_and_seed(name)
    if variant == UNTRAINED:
        raise UsageError(f"{name}: it is not trained, and has the sizes of small-1")
    options = f"--data {data_folder(name, run)} {OPTIONS_OF_VARIANT[variant]} --seed {seed}"
    if variant == FURTHER:
        options += f" --finetune-from-model {run}/short-{seed}/checkpoint_last.pt"
    return options
