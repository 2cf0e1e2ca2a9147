"""The model card, README.md of an exported folder: card.md with the facts about the model."""

import json
import operator
import os
import re
from dataclasses import astuple, dataclass, field
from pathlib import Path
from string import Template
from typing import Dict, List, Optional, Tuple

from ..base.json_files import read_json
from ..base.typed_values import typed
from ..checkpoints.building import pretraining_option
from .config_json import MODELING_FILE
from .weights import CODE, MASKED_LM, MODEL, QUESTION_ANSWERING, SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION

GAP = "**please fill in**"
SECTIONS = ["checkpoint", "model", "task", "optimization", "dataset"]  # of a configuration of fairseq's
SHOWN = ["decoder_layers", "share_decoder_layers", "mask_prob", "encoder_mask_fraction"]  # of their options
SHOWN += ["encoder_mask_fade_updates", "lr", "update_freq", "batch_size", "max_tokens"]
PAPER = "[Meng et al., ICLR 2024](https://arxiv.org/abs/2302.02060)"


KINDS = {  # `example` is given to the tokenizer, `usage` is what the model makes of it
    MODEL: dict(
        pipeline="feature-extraction",
        example='"one sentence ."',
        usage="features = model(**inputs).last_hidden_state  # (1, tokens, width); a pooler_output is untrained",
        limits="It is an encoder only: it fills no masks, and has to be fine-tuned before you compare sentences by its "
        "vectors. sentence-transformers loads it, too: one vector a text, the mean over its tokens.",
    ),
    MASKED_LM: dict(
        pipeline="fill-mask",
        example='"one of the best <mask> i have ever seen ."',
        usage="logits = model(**inputs).logits  # (1, tokens, vocabulary)",
        limits="Fine-tune it before you compare sentences by its vectors, the mean over the tokens, which "
        "sentence-transformers gives.",
    ),
    SEQUENCE_CLASSIFICATION: dict(
        pipeline="text-classification",
        example='"a text"',
        usage="logits = model(**inputs).logits  # (1, labels)",
        limits="It was fine-tuned for one task, and fills no masks.",
    ),
    TOKEN_CLASSIFICATION: dict(
        pipeline="token-classification",
        example='["some", "words"], is_split_into_words=True',
        usage="logits = model(**inputs).logits  # (1, tokens, labels); the first token of a word has its label\n"
        'tag = pipeline("token-classification", $path, aggregation_strategy="first"$trust)\n'
        'tag("some words")  # other strategies label pieces of words',
        limits="It was fine-tuned for one task, and fills no masks.",
    ),
    QUESTION_ANSWERING: dict(
        pipeline="question-answering",
        example='"Who came ?", "Nobody came ."',
        usage="outputs = model(**inputs)  # start_logits and end_logits of each token; both highest at 0: no answer",
        limits="It was fine-tuned for one task, and fills no masks.",
    ),
}


@dataclass
class TextSize:
    """What data-prep/prepare.sh records of a split of a shard, or the sum of several."""

    shards: int = 1
    documents: int = 0
    text_lines: int = 0
    tokens: int = 0
    sample: List[Tuple[int, str]] = field(default_factory=list)  # number and text of lines


def read_record(data, split):
    """The record of a split, of all shards beside or in a folder; an empty one if another program prepared the data."""
    folder, total = Path(data).resolve(), TextSize(shards=0)
    shards = (folder.parent if re.fullmatch(r"shard\d+", folder.name) else folder).glob(f"shard*/{split}.json")
    for path in sorted(shards) or filter(Path.exists, [folder / f"{split}.json"]):
        one = read_json(path, TextSize, "the record that data-prep/prepare.sh wrote", "prepare the data again")
        total = TextSize(*map(operator.add, astuple(total), astuple(one)))
    return total


def model_card(name, state, config, data, kind, description=None):
    """The text of the model card of a folder, from the contents of the checkpoint (`state`) and of config.json.

    Args:
        data: folder of the training data
        kind: which class of its family the model becomes: `MODEL`, `MASKED_LM`, ...
        description: of the text and language that it was trained on
    """
    code = config["model_type"] == CODE.model_type
    imported = "imported_from" in state  # and not trained since
    mask_fraction = 1 if imported else pretraining_option(state, "encoder_mask_fraction")
    if mask_fraction == 1:
        method = "pretrained by masked language modelling" + " elsewhere" * imported
    else:
        method = f"pretrained by MAE-LM ({PAPER})" + " or its MLM baseline" * (mask_fraction is None)
        if state["cfg"]["model"].get("share_decoder_layers"):
            method += ", with shared decoder layers, unlike the paper's"
    facts = {
        **config,
        **KINDS[kind],
        "name": name,
        "path": json.dumps(name),
        "tag": "masked-lm" if mask_fraction == 1 else "mae-lm",
        "method": method,
        "class_name": f"`{config['architectures'][0]}`" + f" in `{MODELING_FILE}`" * code,
        "auto_class": "AutoModel" + kind.removeprefix(MODEL),
        "positions": config["max_position_embeddings"] - (0 if code else 2),  # RoBERTa and MPNet count two more
        "tokens": f"{config['vocab_size']:,}",
        "pretrained_positions": "",
        "more_imports": ", pipeline" * (kind == TOKEN_CLASSIFICATION),
        "trust": ", trust_remote_code=True" * code,
        "trust_note": f". With `trust_remote_code=True` you let it run `{MODELING_FILE}` of this folder" * code,
        "text": description or GAP,
        "training": "\n".join("- " + line for line in training(state, data)),
    }
    length = typed(Optional[int], pretraining_option(state, "tokens_per_sample"), "the checkpoint: tokens_per_sample")
    if length is not None and length < facts["positions"]:
        facts["pretrained_positions"] = f" In pretraining, it read at most {length}: later positions are untrained."
    form = state["task_state"].get("form")
    if form and len(form[1]) == 2:
        facts["example"] = '"one text", "and another"'
    facts["usage"] = Template(facts["usage"]).substitute(facts)
    return Template(Path(__file__).with_name("card.md").read_text(encoding="utf-8")).substitute(facts)


def training(state, data):
    """Lines about data, masking and validation, as far as the checkpoint and the data folder know them."""
    if "imported_from" in state:
        return [f"None since it was imported from `{state['imported_from']}`, unchanged"]
    record, lines, where = read_record(data, "train"), [], "the checkpoint"
    updates = (state.get("optimizer_history") or [{}])[-1].get("num_updates")
    sections = typed(Dict[str, dict], {name: state["cfg"].get(name) or {} for name in SECTIONS}, where)
    options = {name: value for section in sections.values() for name, value in section.items()}
    start = typed(Optional[str], options.get("finetune_from_model"), f"{where}: finetune_from_model")
    is_tuned = "mask_prob" not in options
    if record.tokens:
        counts = f"{record.documents:,} documents, {record.text_lines:,} lines, {record.tokens:,} tokens"
        lines.append("Pretraining data: " * is_tuned + "Data: " * (not is_tuned) + counts)
        lines[-1] += f" in {record.shards} shards" * (record.shards > 1)
    if updates is not None:
        lines.append(
            "Fine-tuning: " * is_tuned
            + f"Updates: {updates:,}"
            + (f", after those of `{os.path.basename(start)}`" if start else "")
        )
    shown = [f"`{name}` {options[name]}" for name in SHOWN if options.get(name) is not None]
    lines.append("Options: " + ", ".join(shown))
    extra_state = typed(dict, state.get("extra_state") or {}, f"{where}: extra_state")
    loss, metric = extra_state.get("val_loss"), options.get("best_checkpoint_metric", "loss")
    if loss is not None:
        lines.append(f"Validation {metric}: {loss}")
        mask_prob = typed(Optional[float], options.get("mask_prob"), f"{where}: mask_prob")
        if metric == "loss" and mask_prob is not None:  # of pretraining
            lines[-1] += f" bits per predicted token, {100 * mask_prob:g}% of the tokens masked"
            unigram = typed(Optional[float], state["task_state"].get("unigram_bits"), f"{where}: unigram_bits")
            lines[-1] += "" if unigram is None else f"; by token frequencies alone: {unigram:.4g}"
    return lines
