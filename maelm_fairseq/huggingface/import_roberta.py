"""Imports a RoBERTa encoder trained by masked language modelling, to continue its pretraining with
MAE-LM.

    python -m maelm_fairseq.huggingface.import_roberta
        --checkpoint DIR --data DIR --dest checkpoint.pt

--checkpoint is the folder of a Hugging Face model with the layout of RoBERTa, XLM-R or CamemBERT,
and with its vocabulary, a tokenizer.json of byte-level BPE or a SentencePiece model. --data is a
folder that `data-prep/prepare.sh --vocabulary` prepared with it; words of --add-tokens begin as the
mean of their old pieces.
Encoder and language-model head then compute exactly what they did. The decoder is new, and so is
the head where there is none: with a new decoder before it, it has to learn its input anyway. With
--share-decoder-layers the encoder's last layers are the decoder, and none is new. --dest is for
`fairseq-train --finetune-from-model`, with the options that are printed; hub, effective_rank and
export read it too.
"""

import os
import shlex
from dataclasses import asdict, fields

import torch

from .. import PLUGIN_FOLDER
from ..base.command_line import Parser, number_in_range
from ..base.destinations import check_new
from ..base.errors import UsageError
from ..base.option_fields import option_name
from ..base.running import run_main
from ..checkpoints.writing import save_state
from ..config import MaeLmConfig, check_model_options
from ..model import MaeLmModel
from ..vocabulary import FINGERPRINT, fingerprint, load_dictionary_and_tokenizer
from .roberta_source import read_source


def parse_args():
    parser = Parser("python -m maelm_fairseq.huggingface.import_roberta", description=__doc__)
    add = parser.add_argument
    add(
        "--checkpoint",
        required=True,
        metavar="DIR",
        help="folder of a Hugging Face model, with the vocabulary",
    )
    add(
        "--data",
        required=True,
        metavar="DIR",
        help="prepared with the vocabulary of the checkpoint",
    )
    add("--dest", type=os.path.abspath, required=True, metavar="FILE", help="checkpoint to write")
    help_texts = {field.name: field.metadata.get("help") for field in fields(MaeLmConfig)}
    layers = MaeLmConfig.decoder_layers
    add(
        "--decoder-layers", type=int, default=layers, metavar="N", help=help_texts["decoder_layers"]
    )
    add("--share-decoder-layers", action="store_true", help=help_texts["share_decoder_layers"])
    add(
        "--extend-positions",
        type=number_in_range(1, 10**6),
        metavar="N",
        help="positions of the encoder, more than it had; the new ones start as copies",
    )
    add(
        "--seed",
        type=number_in_range(0),
        default=1,
        metavar="N",
        help="seed of the new weights (default: %(default)s)",
    )
    return parser.parse_args()


def import_roberta(checkpoint, data, dest, seed=1, extend_positions=None, **options):
    """Writes the checkpoint; the arguments are the program's options.

    Returns:
        source: `roberta_source.RobertaSource`
        cfg: `config.MaeLmConfig` of the new checkpoint
    Raises:
        FileNotFoundError: an input does not exist
        UsageError: an input cannot be used, the sizes contradict each other, or the destination
            exists
        ImportError: safetensors is needed and not installed
    """
    check_new(dest)
    source = read_source(checkpoint)
    max_positions = add_positions(source, extend_positions)
    sizes = {**source.sizes, "relative_position_num_buckets": 0, **options}
    cfg = MaeLmConfig(**sizes, max_positions=max_positions)
    try:
        check_model_options(cfg)
    except UsageError as error:
        raise UsageError(f"{source.path}: {error}") from None
    dictionary = add_word_embeddings(source, data)
    checkpoint_contents = build_checkpoint(source, cfg, dictionary, data, seed)
    os.makedirs(os.path.dirname(os.path.abspath(dest)), exist_ok=True)
    save_state(checkpoint_contents, dest, must_be_new=True)
    return source, cfg


def add_positions(source, wanted):
    """How many positions the encoder gets; rows of `source` are repeated for those it lacks."""
    name = "encoder.embed_positions.weight"
    count = len(source.weights[name]) - 1  # the first row is for padding
    if wanted is None:
        return count
    if wanted < count:
        raise UsageError(
            f"--extend-positions {wanted}: the checkpoint has {count}, expected as many or more"
        )
    if wanted > count:
        source.new.append(f"positions {count + 1} to {wanted}, as the first ones")
    padding, rows = source.weights[name].split([1, count])
    source.weights[name] = torch.cat([padding, rows[torch.arange(wanted) % count]])
    return wanted


def add_word_embeddings(source, data):
    """The dictionary of a folder of data, after comparing it with the vocabulary of `source`.

    The embeddings of `source` get a row for each word that was added to its vocabulary: the mean of
    the word's old pieces.

    Raises:
        FileNotFoundError: a file is missing
        UsageError: vocabulary, dict.txt or the number of embeddings differ
    """
    dictionary, tokenizer = load_dictionary_and_tokenizer(data)
    advice = "prepare the data with data-prep/prepare.sh --vocabulary and that of the checkpoint"
    original = source.tokenizer
    words = tokenizer.words_added_to(original)
    if words is None:
        raise UsageError(f"{data}: prepared with another vocabulary than {original.path}; {advice}")
    if words:
        source.new.append(f"{len(words)} words, each the mean of its old pieces")
    names = ["embed_tokens.weight"]
    if source.has_head:
        names.append("lm_head.bias")
    for name in names:
        rows = source.weights[name]
        new = [rows[original.encode(" " + word)].mean(0, keepdim=True) for word in words]
        source.weights[name] = torch.cat([rows, *new])
    symbols = len(source.weights["embed_tokens.weight"])
    if symbols != len(dictionary):
        raise UsageError(
            f"{source.path}: embeddings of {symbols:,} symbols, but the vocabulary of {data} has "
            f"{len(dictionary):,} (with special symbols and <mask>): use the vocabulary that was "
            "saved with it"
        )
    return dictionary


def build_checkpoint(source, cfg, dictionary, data, seed):
    """The contents of the checkpoint."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = MaeLmModel(cfg, dictionary, needs_lm_head=True)
    model.load_state_dict({**model.state_dict(), **source.weights})
    task = {
        "_name": "mae_lm",
        "data": os.path.abspath(data),
        "encoder_mask_fraction": 0.0 if cfg.decoder_layers else 1.0,
    }
    return {
        "model": model.state_dict(),
        "cfg": {"model": {**asdict(cfg), "_name": "mae_lm_base"}, "task": task},
        "task_state": {FINGERPRINT: fingerprint(dictionary)},
        # fairseq reads these before it resets them.
        "optimizer_history": [{"optimizer_name": "none", "lr_scheduler_state": {}}],
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}},
        # For the export.
        "imported_from": os.path.basename(os.path.abspath(source.path)),
        "imported_head": source.has_head,
    }


def training_options(cfg, dest):
    """The options of fairseq-train that continue with the checkpoint: list of strings."""
    options = ["--user-dir", PLUGIN_FOLDER]
    options += ["--task", "mae_lm", "--criterion", "mae_lm", "--arch", "mae_lm_base"]
    for field in fields(MaeLmConfig):
        value = getattr(cfg, field.name)
        if value == field.default or field.name == "_name":
            continue
        options.append(option_name(field.name))
        if value is not True:
            options.append(str(value))
    if not cfg.decoder_layers:
        options += ["--encoder-mask-fraction", "1"]
    options += ["--tokens-per-sample", str(min(512, cfg.max_positions))]
    return [*options, "--finetune-from-model", dest]


def describe_import(source, cfg, dest):
    """What is as in the source, what is new and what was left out, in two lines."""
    exact = ["the encoder"]
    new = []
    if cfg.decoder_layers > 0 and not cfg.share_decoder_layers:
        new.append(f"the decoder ({cfg.decoder_layers} layers)")
    if source.has_head:
        exact.append("the language-model head")
    else:
        new.append("the language-model head, which the source lacks")
    new += source.new
    new_parts = " and ".join(new) or "nothing"
    left_out = ", ".join(source.dropped) or "nothing"
    return (
        f"written: {dest}; exactly as in {source.path}: {' and '.join(exact)}\n"
        f"new: {new_parts}; left out: {left_out}"
    )


def main():
    args = vars(parse_args())
    source, cfg = import_roberta(**args)
    print(describe_import(source, cfg, args["dest"]))
    print("continue with this command, and the options for optimizer, batches and --save-dir:")
    options = training_options(cfg, args["dest"])
    print(shlex.join(["fairseq-train", os.path.abspath(args["data"]), *options]))


if __name__ == "__main__":
    run_main(main)
