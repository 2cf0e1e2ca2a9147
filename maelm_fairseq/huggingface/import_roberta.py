"""Imports a RoBERTa encoder trained by masked language modelling, to continue its pretraining with MAE-LM.

    python -m maelm_fairseq.huggingface.import_roberta --checkpoint FILE_or_DIR --data DIR --dest checkpoint.pt

--checkpoint is one of fairseq's own `roberta` (RoBERTa, XLM-R), or a folder of transformers with the layout of XLM-R or
CamemBERT and its SentencePiece model. --data is a folder that `data-prep/prepare.sh --spm-model` prepared with that
model. Encoder and language-model head then compute exactly what they did. The decoder is new, and so is the head where
there is none: with a new decoder in front of it, it has to learn its input anyway. With --share-decoder-layers the
encoder's last layers are the decoder, and none is new. --dest is for `fairseq-train --finetune-from-model`, with the
options that are printed; hub, effective_rank and export read it too.
"""

import argparse
import os
import shlex
from dataclasses import asdict
from itertools import zip_longest

import sentencepiece
import torch

from ..errors import MissingFileError, Parser, UsageError, run
from ..files import atomic_write
from ..layers import AUTHORS, BUCKETS
from ..model import MaeLmConfig, MaeLmModel
from ..sizes import check_sizes
from ..vocabulary import load_dictionary, load_sentencepiece
from .roberta_source import read_source
from .roberta_weights import our_weights

FLAGS = ["share_decoder_layers", "decoder_relative_bias"]


def parse_args():
    parser = Parser(
        prog="python -m maelm_fairseq.huggingface.import_roberta",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    defaults = MaeLmConfig()
    parser.add_argument(
        "--checkpoint", required=True, metavar="FILE_or_DIR", help="of fairseq's roberta, or a folder of transformers"
    )
    parser.add_argument(
        "--data", required=True, metavar="DIR", help="prepared with the SentencePiece model of the checkpoint"
    )
    parser.add_argument("--dest", required=True, metavar="FILE", help="checkpoint to write")
    parser.add_argument(
        "--decoder-layers",
        type=int,
        default=defaults.decoder_layers,
        metavar="N",
        help="layers of the new decoder; 0 to go on with masked language modelling (default: %(default)s)",
    )
    parser.add_argument(
        "--share-decoder-layers",
        action="store_true",
        help="no new decoder: its layers are the encoder's last ones, which have learned to predict",
    )
    parser.add_argument(
        "--relative-position-num-buckets",
        type=int,
        default=0,
        metavar="N",
        help="buckets of a relative position bias, zero at first; 0 for no bias (default: %(default)s)",
    )
    parser.add_argument(
        "--relative-position-max-distance",
        type=int,
        default=defaults.relative_position_max_distance,
        metavar="N",
        help="this and all larger distances share a bucket (default: %(default)s)",
    )
    parser.add_argument(
        "--relative-position-buckets",
        choices=BUCKETS,
        default=AUTHORS,
        help="how distances share buckets (default: %(default)s)",
    )
    parser.add_argument(
        "--decoder-relative-bias", action="store_true", help="give the decoder a relative position bias too"
    )
    parser.add_argument(
        "--relative-position-local-init",
        action="store_true",
        help="initialise half of the decoder's heads to attend to the left or right neighbour: small decoders then "
        "learn several times faster; needs --decoder-relative-bias",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of what is new (default: %(default)s)")
    return parser.parse_args()


def import_roberta(checkpoint, data, dest, seed=1, **options):
    """Writes the checkpoint; see the program's help.

    Args:
        checkpoint: a `.pt` file of fairseq, a folder with one, or a folder of transformers
        data: folder with the `dict.txt` and `sentencepiece.model` of its vocabulary
        dest: the new file
        seed: of what is newly initialised
        options: decoder_layers, share_decoder_layers, decoder_relative_bias, relative_position_num_buckets (here 0 by
            default), relative_position_max_distance, relative_position_buckets, relative_position_local_init (here of
            the decoder alone), as in :class:`~maelm_fairseq.model.MaeLmConfig`
    Returns:
        source: :class:`~maelm_fairseq.huggingface.roberta_source.Source`
        cfg: :class:`~maelm_fairseq.model.MaeLmConfig` of the new checkpoint
    Raises:
        FileNotFoundError: an input does not exist
        ValueError: an input cannot be used, the sizes contradict each other, or the destination exists
        ImportError: safetensors is needed and not installed
    """
    dest = os.path.abspath(dest)
    if os.path.lexists(dest):
        raise UsageError(f"{dest}: exists already; remove it or choose another --dest")
    source = read_source(checkpoint)
    cfg = model_config(source.config, **options)
    check_sizes(cfg)
    if cfg.relative_position_local_init and not cfg.decoder_relative_bias:
        raise UsageError(
            "--relative-position-local-init needs --decoder-relative-bias: the encoder must compute what it did"
        )
    dictionary = check_vocabulary(source, data)
    weights = our_weights(source)
    state = build_state(weights, cfg, dictionary, data, seed)
    state["imported_from"] = os.path.basename(os.path.abspath(source.path))  # for the model card
    state["imported_head"] = source.has_head
    os.makedirs(os.path.dirname(dest), exist_ok=True)
    with atomic_write(dest, "wb") as stream:
        torch.save(state, stream)
    return source, cfg


def model_config(config, relative_position_num_buckets=0, **options):
    """The configuration of our model for one named as in config.json."""
    return MaeLmConfig(
        encoder_layers=config["num_hidden_layers"],
        encoder_embed_dim=config["hidden_size"],
        encoder_ffn_embed_dim=config["intermediate_size"],
        encoder_attention_heads=config["num_attention_heads"],
        dropout=config["hidden_dropout_prob"],
        attention_dropout=config["attention_probs_dropout_prob"],
        max_positions=config["max_position_embeddings"] - 2,
        relative_position_num_buckets=relative_position_num_buckets,
        **options,
    )


def check_vocabulary(source, data):
    """Compares the vocabulary of the source with that of the data: SentencePiece model, dict.txt, embedding rows.

    Args:
        source: :class:`~maelm_fairseq.huggingface.roberta_source.Source`
        data: folder with `dict.txt` and `sentencepiece.model`
    Returns:
        the dictionary of the data, with `<mask>`
    Raises:
        FileNotFoundError: a file is missing
        ValueError: they differ
    """
    dictionary, model_file = load_dictionary(data), os.path.join(data, "sentencepiece.model")
    if not os.path.isfile(model_file):
        raise MissingFileError(f"{model_file}: not found, expected data prepared by data-prep/prepare.sh --spm-model")
    processor = load_sentencepiece(model_file, dictionary)
    if source.model_file is not None:
        try:
            theirs = sentencepiece.SentencePieceProcessor(model_file=source.model_file)
        except (RuntimeError, OSError):
            raise UsageError(f"{source.model_file}: not a SentencePiece model; replace it by the original") from None
        if theirs.serialized_model_proto() != processor.serialized_model_proto():
            raise UsageError(
                f"{data}: prepared with another SentencePiece model than {source.model_file}; prepare it with "
                "data-prep/prepare.sh --spm-model and that file"
            )
    if source.dictionary_folder is not None:
        compare_dictionaries(os.path.join(source.dictionary_folder, "dict.txt"), dictionary, data)
    elif source.model_file is None:
        raise MissingFileError(
            f"{source.path}: its vocabulary is unknown: put beside it the dict.txt or the SentencePiece model of its "
            "training"
        )
    rows = len(source.special_rows) + source.config["vocab_size"] - max(source.special_rows) - 1
    if rows != len(dictionary):
        raise UsageError(
            f"{source.path}: embeddings of {rows:,} symbols, but the vocabulary of {data} has {len(dictionary):,} "
            "(with special symbols and <mask>, which must be the last)"
        )
    return dictionary


def compare_dictionaries(path, dictionary, data):
    """Refuses a dict.txt with other symbols than the dictionary of the data."""
    theirs = load_dictionary(os.path.dirname(path)).symbols
    pairs = enumerate(zip_longest(theirs, dictionary.symbols, fillvalue="nothing"))
    differing = [(i, one, other) for i, (one, other) in pairs if one != other]
    if differing:
        i, one, other = differing[0]
        raise UsageError(
            f"{path}: not the vocabulary of {data}: {len(theirs):,} symbols and {len(dictionary):,}, the first that "
            f"differ are {one!r} and {other!r} ({i}); prepare the data with the SentencePiece model of the checkpoint "
            "(a byte-level BPE, as of roberta.base, cannot be imported)"
        )


def build_state(weights, cfg, dictionary, data, seed):
    """The contents of the checkpoint."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = MaeLmModel(cfg, dictionary, pretraining=True)
    if cfg.relative_position_num_buckets:
        torch.nn.init.zeros_(model.encoder.relative_bias.table.weight)
    model.load_state_dict({**model.state_dict(), **weights})
    task = {"_name": "mae_lm", "data": os.path.abspath(data)}
    task["encoder_mask_fraction"] = 0.0 if cfg.decoder_layers else 1.0
    return {
        "model": model.state_dict(),
        "cfg": {"model": {"_name": "mae_lm_base", **asdict(cfg)}, "task": task},
        # fairseq reads these before it resets them.
        "optimizer_history": [{"optimizer_name": "none", "lr_scheduler_state": {}}],
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}},
    }


def training_options(cfg, dest):
    """The options of fairseq-train that continue with the checkpoint: list of strings."""
    names = ["encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads"]
    names += ["max_positions", "decoder_layers", "relative_position_num_buckets"]
    if cfg.relative_position_num_buckets:
        names += ["relative_position_max_distance", "relative_position_buckets"]
    plugin = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    options = ["--user-dir", plugin, "--task", "mae_lm", "--criterion", "mae_lm", "--arch", "mae_lm_base"]
    for name in names:
        options += ["--" + name.replace("_", "-"), str(getattr(cfg, name))]
    options += ["--" + name.replace("_", "-") for name in FLAGS if getattr(cfg, name)]
    if not cfg.decoder_layers:
        options += ["--encoder-mask-fraction", "1"]
    return [*options, "--tokens-per-sample", str(min(512, cfg.max_positions)), "--finetune-from-model", dest]


def main():
    args = vars(parse_args())
    source, cfg = import_roberta(**args)
    exact = ["the encoder"] + ["the language-model head"] * source.has_head
    new = [f"the decoder ({cfg.decoder_layers} layers)"] * (cfg.decoder_layers > 0 and not cfg.share_decoder_layers)
    new += ["the language-model head, which the source lacks"] * (not source.has_head)
    print(f"written: {args['dest']}; exactly as in {source.path}: {' and '.join(exact)}")
    print(f"new: {' and '.join(new) or 'nothing'}; left out: {', '.join(source.dropped) or 'nothing'}")
    print("continue with this command, and the options for optimizer, batches and --save-dir:")
    print(shlex.join(["fairseq-train", args["data"], *training_options(cfg, args["dest"])]))


if __name__ == "__main__":
    run(main)
