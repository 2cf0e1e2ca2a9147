"""Exports an encoder to Hugging Face: a folder that `AutoModel.from_pretrained` loads, with exactly the same features.

    python -m maelm_fairseq.huggingface.export --checkpoint FILE_or_DIR --data DIR --dest DIR

--format roberta is for models without relative position bias (RobertaModel), --format mpnet for those whose bias
MPNet's 32 buckets hold exactly (MPNetModel); auto takes the first that fits, and never approximates. An MLM
(--decoder-layers 0) becomes a ...ForMaskedLM, a fine-tuned checkpoint the class of its head. The decoder of MAE-LM is
left out. --dest receives config.json, model.safetensors, the tokenizer's files, and a model card, README.md; it appears
after the tokenizer gave the same tokens as this package on lines of the data and on odd strings. transformers is not
needed.
"""

import argparse
import os

from ..checkpoint import build_model, find_checkpoint, read_checkpoint
from ..errors import Parser, UsageError, run
from ..files import atomic_folder, save_json
from ..heads import SequenceClassificationHead, SpanHead
from ..hub import read_labels
from ..model import modules
from .card import model_card
from .weights import (
    BUCKETS,
    LAYOUTS,
    MASKED_LM,
    MODEL,
    MPNET,
    QUESTION_ANSWERING,
    ROBERTA,
    SEQUENCE_CLASSIFICATION,
    check_shapes,
    convert,
    import_safetensors,
    mpnet_table,
    write_weights,
)


def parse_args():
    parser = Parser(
        prog="python -m maelm_fairseq.huggingface.export",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--checkpoint", required=True, metavar="FILE_or_DIR", help="pretrained or fine-tuned")
    parser.add_argument(
        "--data",
        required=True,
        metavar="DIR",
        help="what it was trained on: dict.txt and sentencepiece.model; label/dict.txt for a classifier",
    )
    parser.add_argument("--dest", required=True, metavar="DIR", help="new folder to write")
    parser.add_argument(
        "--format", default="auto", choices=["auto", *LAYOUTS], help="family of the class (default: auto)"
    )
    parser.add_argument("--head", metavar="NAME", help="which head, if a fine-tuned checkpoint has several")
    return parser.parse_args()


def export(checkpoint, data, dest, format="auto", head=None):
    """Writes the folder; see the program's help.

    Args:
        checkpoint: a `.pt` file, or a folder with `checkpoint_best.pt` or else `checkpoint_last.pt`
        data: folder with `dict.txt` and `sentencepiece.model`
        dest: the new folder
        format: auto, roberta or mpnet
        head: name of a head; None for the only one, if any
    Returns:
        name of the class, and the parts of the checkpoint that are left out
    Raises:
        FileNotFoundError: an input does not exist
        ValueError: an input cannot be used, no class holds the model exactly, or the destination exists
        ImportError: a package of the extra `huggingface` is missing
    """
    dest = os.path.abspath(dest)
    if os.path.lexists(dest):
        raise UsageError(f"{dest}: exists already; remove it or choose another --dest")
    # These fail now, not after the work, if a package is missing.
    import_safetensors()
    from .tokenizer import check_tokenizer, read_vocabulary, reference, sample_lines, write_tokenizer

    checkpoint = find_checkpoint(checkpoint)
    state = read_checkpoint(checkpoint)
    dictionary, _ = read_vocabulary(data)
    parts = modules(state["model"])
    model = build_model(state, dictionary, checkpoint)
    kind, head = choose_kind(state, model, head)
    layout = choose_layout(model, format)
    labels = read_classes(model, head, data) if kind == SEQUENCE_CLASSIFICATION else None
    config = stock_config(model, layout, kind, labels)
    weights, dropped = convert(model, layout, kind, head)
    check_shapes(weights, config)
    dropped += sorted(parts - modules(model.state_dict()))
    runs = kind == QUESTION_ANSWERING

    with atomic_folder(dest) as folder:
        save_json(config, os.path.join(folder, "config.json"))
        write_weights(weights, os.path.join(folder, "model.safetensors"))
        tokenizer = write_tokenizer(folder, data, model.max_positions(), runs)
        check_tokenizer(tokenizer, reference(data, runs), sample_lines(data), runs)
        with open(os.path.join(folder, "README.md"), "w", encoding="utf-8", newline="\n") as stream:
            stream.write(model_card(os.path.basename(dest), state, config, data, head))
    return config["architectures"][0], dropped


def choose_kind(state, model, head):
    """Which class of a family the model becomes, and the name of its head or None."""
    heads = model.classification_heads
    known = ", ".join(heads)
    if not heads:
        if head is not None:
            raise UsageError(f"--head {head}: the checkpoint has no head, expected a fine-tuned one; leave out --head")
        masks_in_encoder = state["cfg"]["task"].get("encoder_mask_fraction") == 1
        return (MASKED_LM if model.lm_head and not model.decoder and masks_in_encoder else MODEL), None
    if head is None and len(heads) > 1:
        raise UsageError(f"the checkpoint has the heads {known}: choose one with --head")
    head = known if head is None else head
    if head not in heads:
        raise UsageError(f"--head {head}: no such head, the checkpoint has: {known}")
    if isinstance(heads[head], SequenceClassificationHead):
        inner, width = heads[head].dense.out_features, model.cfg.encoder_embed_dim
        if inner != width:
            raise UsageError(
                f"head {head!r} has an inner layer of {inner}, but those of stock classes are as wide as the encoder, "
                f"{width}: it cannot be exported"
            )
        return SEQUENCE_CLASSIFICATION, head
    if isinstance(heads[head], SpanHead) and heads[head].out_features == 2:
        return QUESTION_ANSWERING, head
    raise UsageError(f"head {head!r} ({type(heads[head]).__name__}) has no stock class: it cannot be exported")


def choose_layout(model, format):
    """The family of classes that holds the model exactly.

    Raises:
        ValueError: the requested one does not, or none does
    """
    bias = model.encoder.relative_bias
    if bias is None:
        return LAYOUTS.get(format, ROBERTA)
    none = "RobertaModel has no relative position bias"
    if format == "roberta":
        raise UsageError(f"--format roberta: the model has a relative position bias, but {none}: use --format mpnet")
    try:
        mpnet_table(bias)
    except UsageError as error:
        if format == "mpnet":
            raise UsageError(f"--format mpnet does not hold this model exactly: {error}") from None
        raise UsageError(
            f"no stock class holds this model exactly: {none}, and {error}; one pretrained with "
            "--relative-position-buckets t5 or --relative-position-num-buckets 0 fits"
        ) from None
    return MPNET


def read_classes(model, head, data):
    """The names of a classification head's outputs, in order: list of str."""
    outputs = model.classification_heads[head].out_proj.out_features
    if outputs == 1:
        return ["score"]
    fix = "give with --data the folder of the data it was fine-tuned on"
    return read_labels(os.path.join(data, "label", "dict.txt"), outputs, fix)


def stock_config(model, layout, kind, labels=None):
    """The contents of config.json."""
    cfg = model.cfg
    config = {
        "architectures": [layout.family + kind],
        "model_type": layout.model_type,
        "vocab_size": model.embed_tokens.num_embeddings,
        "hidden_size": cfg.encoder_embed_dim,
        "num_hidden_layers": cfg.encoder_layers,
        "num_attention_heads": cfg.encoder_attention_heads,
        "intermediate_size": cfg.encoder_ffn_embed_dim,
        "hidden_act": "gelu",
        "hidden_dropout_prob": cfg.dropout,
        "attention_probs_dropout_prob": cfg.attention_dropout,
        "max_position_embeddings": cfg.max_positions + 2,
        "layer_norm_eps": model.encoder.norm.eps,
        "initializer_range": 0.02,
        "pad_token_id": model.pad,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
    if layout is ROBERTA:
        config.update(type_vocab_size=2, classifier_dropout=cfg.pooler_dropout)
    else:
        config.update(relative_attention_num_buckets=BUCKETS)
    if labels is not None:
        config["id2label"] = {str(i): label for i, label in enumerate(labels)}
        config["label2id"] = {label: i for i, label in enumerate(labels)}
        config["problem_type"] = "regression" if len(labels) == 1 else "single_label_classification"
    return config


def main():
    args = parse_args()
    name, dropped = export(args.checkpoint, args.data, args.dest, args.format, args.head)
    left_out = f"; left out: {', '.join(dropped)}" if dropped else ""
    print(f"written: {args.dest}, a {name} with config, tokenizer and model card{left_out}")


if __name__ == "__main__":
    run(main)
