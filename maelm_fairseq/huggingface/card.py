"""The model card: README.md of an exported folder, with the metadata that the hub reads."""

import os

from ..files import read_json
from ..records import count, positive
from .weights import MASKED_LM, MODEL, MPNET, QUESTION_ANSWERING, SEQUENCE_CLASSIFICATION, kind_of

PIPELINES = {
    MODEL: "feature-extraction",
    MASKED_LM: "fill-mask",
    SEQUENCE_CLASSIFICATION: "text-classification",
    QUESTION_ANSWERING: "question-answering",
}

CARD = """\
---
library_name: transformers
pipeline_tag: {pipeline}
tags:
- {tag}
- fairseq
# Please fill in, and remove the "#":
# language: en
# license: mit
---

# {name}

{what}

## How to use it
```python
{usage}
```
For `{name}` write the path of this folder or its name on the hub. It needs transformers 4.41 or newer, and no
`trust_remote_code`.

## Training
{training}

## Limits
{limits}
"""


def model_card(name, state, config, data, head=None):
    """The text of the model card.

    Args:
        name: of the exported folder
        state: contents of the checkpoint
        config: contents of config.json
        data: folder of the data; its `train.json` says how much text the model was trained on
        head: name of the exported head, or None
    """
    kind = kind_of(config)
    pairs = os.path.isdir(os.path.join(data, "input1"))
    mask_fraction = state["cfg"]["task"].get("encoder_mask_fraction")  # None after fine-tuning
    return CARD.format(
        pipeline=PIPELINES[kind],
        tag="masked-lm" if mask_fraction == 1 else "mae-lm",
        name=name,
        what=what_it_is(kind, mask_fraction, config, head),
        usage=usage(kind, name, config, pairs),
        training="\n".join("- " + line for line in training(state, data, head)),
        limits="\n".join("- " + line for line in limits(kind, config)),
    )


def what_it_is(kind, mask_fraction, config, head):
    """Two or three sentences."""
    stock_class = config["architectures"][0]
    if mask_fraction == 1:
        method = "pretrained by masked language modelling"
    elif mask_fraction is None:
        method = "pretrained by MAE-LM ([Meng et al., ICLR 2024](https://arxiv.org/abs/2302.02060)) or its MLM baseline"
    else:
        method = (
            "pretrained by MAE-LM ([Meng et al., ICLR 2024](https://arxiv.org/abs/2302.02060)): masked language "
            "modelling without showing the encoder `[MASK]`"
        )
    after = {
        MODEL: "",
        MASKED_LM: ", with its language-model head",
        SEQUENCE_CLASSIFICATION: f", fine-tuned, with the classification head `{head}`",
        QUESTION_ANSWERING: f", fine-tuned for question answering, with the span head `{head}`",
    }[kind]
    sizes = (
        f"{config['num_hidden_layers']} layers of width {config['hidden_size']} with "
        f"{config['num_attention_heads']} heads, {config['max_position_embeddings'] - 2} positions, "
        f"{config['vocab_size']:,} tokens"
    )
    if config["model_type"] == MPNET.model_type:
        sizes += ", and a relative position bias of T5's buckets (32, up to distance 128)"
    text = (
        f"A text encoder {method}{after}. It was trained with [fairseq](https://github.com/facebookresearch/fairseq) "
        f"and the plugin maelm_fairseq, and exported to the stock class `{stock_class}`, which computes the same as "
        f"the original up to rounding: {sizes}."
    )
    if "id2label" in config and config["problem_type"] != "regression":
        text += " Its labels: " + ", ".join(f"`{label}`" for label in config["label2id"]) + "."
    return text


def usage(kind, name, config, pairs):
    """Python code that loads the folder and uses it."""
    if kind == MASKED_LM:
        return (
            "from transformers import pipeline\n\n"
            f'fill_mask = pipeline("fill-mask", model="{name}")\n'
            'fill_mask("one of the best <mask> i have ever seen .")'
        )
    if kind == SEQUENCE_CLASSIFICATION:
        text = '{"text": "one text", "text_pair": "and another"}' if pairs else '"a text"'
        score = ', function_to_apply="none"' if config["problem_type"] == "regression" else ""
        return (
            "from transformers import pipeline\n\n"
            f'classify = pipeline("text-classification", model="{name}")\n'
            f"classify({text}{score})"
        )
    auto_class = "AutoModelForQuestionAnswering" if kind == QUESTION_ANSWERING else "AutoModel"
    lines = [
        f"from transformers import {auto_class}, AutoTokenizer",
        "",
        f'tokenizer = AutoTokenizer.from_pretrained("{name}")',
        f'model = {auto_class}.from_pretrained("{name}")',
    ]
    if kind == QUESTION_ANSWERING:
        lines += [
            'question, text = "Who came ?", "Nobody came ."',
            'inputs = tokenizer(question, text, return_offsets_mapping=True, return_tensors="pt")',
            'offsets = inputs.pop("offset_mapping")[0].tolist()',
            "found = model(**inputs)",
            "start, end = found.start_logits.argmax(), found.end_logits.argmax()  # both 0: no answer",
            "answer = text[offsets[start][0] : offsets[end][1]]",
        ]
    else:
        lines += [
            'inputs = tokenizer(["one sentence .", "and a longer one ."], padding=True, return_tensors="pt")',
            f"features = model(**inputs).last_hidden_state  # (2, tokens, {config['hidden_size']})",
        ]
    return "\n".join(lines)


def training(state, data, head):
    """Lines about data, settings and validation, as far as the checkpoint and the data folder know them."""
    cfg, lines = state["cfg"], []
    if os.path.isfile(os.path.join(data, "train.json")):
        record = read_json(os.path.join(data, "train.json"), "the record of a run of data-prep/prepare.sh", RECORD)
        counts = [f"{record[key]:,} {word}" for key, word in COUNTS.items()]
        shard = f", in this one of {record['shards']} shards" if record["shards"] > 1 else ""
        lines.append(f"Data: {', '.join(counts)}{shard}")
    done = (state.get("optimizer_history") or [{}])[-1].get("num_updates")
    if done is not None:
        lines.append(f"Updates: {done:,}")
    for title, names in SETTINGS.items():
        section = cfg.get(title) or {}
        known = [name for name in names if section.get(name) not in (None, "")]
        values = [f"`{name}` {section[name]}" for name in known if head is None or name != "decoder_layers"]
        if section.get("_name"):
            values.insert(0, section["_name"])
        if values:
            lines.append(f"{title.capitalize().replace('_', ' ')}: {', '.join(values)}")
    value = (state.get("extra_state") or {}).get("val_loss")
    if value is not None:
        metric = (cfg.get("checkpoint") or {}).get("best_checkpoint_metric", "loss")
        unit = " bits per predicted token" if metric == "loss" and head is None else ""
        lines.append(f"Validation {metric}: {value}{unit}")
    return lines


COUNTS = {"documents": "documents", "text_lines": "lines", "tokens": "tokens"}  # of train.json
RECORD = {**dict.fromkeys(COUNTS, count), "shards": positive}

# Options that the card lists, by the sections of fairseq's configuration.
SETTINGS = {
    "model": ["dropout", "attention_dropout", "pooler_dropout", "decoder_layers"],
    "task": [
        "mask_prob", "encoder_mask_fraction", "leave_unmasked_prob", "random_token_prob", "mask_whole_words",
        "tokens_per_sample", "sample_break_mode",
    ],
    "dataset": ["batch_size", "max_tokens"],
    "optimization": ["lr", "update_freq", "clip_norm"],
    "optimizer": ["adam_betas", "adam_eps", "weight_decay"],
    "lr_scheduler": ["warmup_updates", "total_num_update"],
    "common": ["seed", "fp16"],
}  # fmt: skip


def limits(kind, config):
    """Lines about what the exported model cannot do."""
    lines = []
    if kind != MASKED_LM:
        lines.append(
            "It fills no masks: the stock classes have no place for a decoder, and a pipeline for fill-mask would use "
            "a head with random weights."
        )
    if kind == MODEL:
        lines.append(
            "The pooler is untrained, as transformers warns on loading: `pooler_output` is random. Use "
            "`last_hidden_state`."
        )
    if kind in [MODEL, MASKED_LM]:
        lines.append("It is no sentence encoder: fine-tune it before you compare sentences by its features.")
    positions = config["max_position_embeddings"] - 2
    lines.append(f"It reads up to {positions} tokens of a text.")
    lines.append("It reflects the text it was trained on, with its biases.")
    lines.append("Licence: fill in yours above; the training text may have one of its own.")
    return lines
