"""The models that pretrain_step.py compares, by name, and their options of fairseq-train."""

from importlib.util import find_spec
from itertools import product

import peers
from common import size_options
from maelm_fairseq.base.errors import install_command
from maelm_fairseq.precision import is_fast_in_bfloat16

STOCK = "--task masked_lm --criterion masked_lm --arch roberta_base --optimizer adam".split()
OURS = "--task mae_lm --criterion mae_lm --arch mae_lm_base --optimizer torch_adamw".split()
MLM_OPTIONS = ["--decoder-layers", 0, "--encoder-mask-fraction", 1]
STOCK_NAME = "roberta_base"
KEEPING = "roberta_base, freed memory kept"
UNCUT = "MLM, uncut"
BFLOAT16 = "bfloat16"
NO_BIAS = "no relative bias"
OPTIONS_OF_MODEL = {
    "mae_lm_base": OURS,
    "mae_lm_base, shared": [*OURS, "--share-decoder-layers"],
    "MLM": [*OURS, *MLM_OPTIONS],
    UNCUT: [*OURS, *MLM_OPTIONS],  # its last layer computes all rows, even those that nobody reads
}
OPTIONS_OF_PART = {
    peers.COMPILED: ["--compile-layers"],
    BFLOAT16: ["--bf16-autocast"],
    NO_BIAS: ["--relative-position-num-buckets", 0],
}


def combined(name, *parts):
    """A name with those of its parts, of which empty ones are left out."""
    return ", ".join([name, *filter(None, parts)])


def all_variants():
    """The options of all models: {name: options}; None for models of transformers."""
    variants = {STOCK_NAME: STOCK, KEEPING: STOCK}
    for name, model_options in OPTIONS_OF_MODEL.items():
        for parts in product(["", peers.COMPILED], ["", BFLOAT16], ["", NO_BIAS]):
            options = list(model_options)
            for part in parts:
                options += OPTIONS_OF_PART.get(part, [])
            variants[combined(name, *parts)] = options
    for name, *parts in product(peers.PEERS, ["", peers.COMPILED], ["", BFLOAT16, peers.FLASH]):
        variants[combined(name, *parts)] = None
    return variants


VARIANTS = all_variants()


def is_of_transformers(variant):
    return VARIANTS[variant] is None


def why_skipped(variant, args):
    """Why a model cannot be measured here, in words; None if it can."""
    # Where bfloat16 is slow, the plugin computes in float32.
    if BFLOAT16 in variant and not is_fast_in_bfloat16(args.device):
        return "bfloat16 is slow here"
    if is_of_transformers(variant) and not find_spec("transformers"):
        return f"{install_command('benchmarks')} for it"
    if peers.FLASH in variant and (args.device != "cuda" or not find_spec("flash_attn")):
        return "it needs a GPU and the package flash_attn"
    is_counted = not (variant.startswith(STOCK_NAME) or BFLOAT16 in variant or UNCUT in variant)
    if args.device == "meta" and not is_counted:
        return "counted are our models and those of transformers, in fp16"
    if peers.COMPILED in variant and args.data:
        return "blocks of a text have many lengths, for each of which it would be compiled"
    return None


def training_arguments(folder, args, variant):
    """The options of fairseq-train for a model of VARIANTS, with data in a folder."""
    # Models of transformers get the batches of the MLM.
    options = VARIANTS[variant] or VARIANTS["MLM"]
    arguments = [args.data or folder, "--tokens-per-sample", args.tokens, *size_options(args)]
    arguments += ["--sample-break-mode", "complete_doc" if args.data else "none"]
    arguments += ["--mask-prob", args.mask_prob, "--batch-size", args.micro_batch]
    arguments += ["--num-workers", 0, "--lr", 1e-4]
    arguments += ["--dropout", args.dropout, "--attention-dropout", args.attention_dropout]
    arguments += ["--adam-betas", "(0.9, 0.98)", "--clip-norm", 2.0]
    arguments += ["--update-freq", args.accumulate]
    arguments += ["--required-batch-size-multiple", 1]
    if options is not STOCK:
        arguments += ["--decoder-layers", args.decoder_layers, "--max-positions", args.tokens]
    if args.device != "cpu" and BFLOAT16 not in variant:
        arguments += ["--fp16", "--fp16-init-scale", 128]  # as in the recipes
    return [*arguments, *options]
