"""The model card: README.md of an exported folder, with the metadata that the hub reads."""

import os

from ..files import read_json
from ..records import count, positive
from .config import MODELING_FILE
from .weights import CODE, MASKED_LM, MODEL, MPNET, QUESTION_ANSWERING, SEQUENCE_CLASSIFICATION, kind_of

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
For `{name}` write the path of this folder or its name on the hub. {needs}

## Training
{training}

## Limits
{limits}
"""


STOCK_NEEDS = "It needs transformers 4.41 or newer, and no `trust_remote_code`."
CODE_NEEDS = (
    f"It needs transformers 4.41 or newer. With `trust_remote_code=True` you let transformers run `{MODELING_FILE}` of "
    "this folder: read it first, it is short."
)


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
    imported = "imported_from" in state  # and not trained since
    mask_fraction = 1 if imported else state["cfg"]["task"].get("encoder_mask_fraction")  # None after fine-tuning
    return CARD.format(
        pipeline=PIPELINES[kind],
        tag="masked-lm" if mask_fraction == 1 else "mae-lm",
        name=name,
        what=what_it_is(kind, mask_fraction, config, head, imported),
        needs=CODE_NEEDS if in_code(config) else STOCK_NEEDS,
        usage=usage(kind, name, config, pairs),
        training="\n".join("- " + line for line in training(state, data, head)),
        limits="\n".join("- " + line for line in limits(kind, config)),
    )


def in_code(config):
    """Whether the class is one of the modeling file."""
    return config["model_type"] == CODE.model_type


def what_it_is(kind, mask_fraction, config, head, imported):
    """Two or three sentences."""
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
        MASKED_LM: ", with its decoder and language-model head"
        if config.get("decoder_layers")
        else ", with its language-model head",
        SEQUENCE_CLASSIFICATION: f", fine-tuned, with the classification head `{head}`",
        QUESTION_ANSWERING: f", fine-tuned for question answering, with the span head `{head}`",
    }[kind]
    sizes = (
        f"{config['num_hidden_layers']} layers of width {config['hidden_size']} with "
        f"{config['num_attention_heads']} heads, {positions(config)} positions, {config['vocab_size']:,} tokens"
    )
    if config["model_type"] == MPNET.model_type:
        sizes += ", and a relative position bias of T5's buckets (32, up to distance 128)"
    elif config.get("relative_position_num_buckets"):
        sizes += f", and a relative position bias of {config['relative_position_num_buckets']} buckets"
    made = "trained with [fairseq](https://github.com/facebookresearch/fairseq) and the plugin maelm_fairseq"
    if imported:
        method, made = method + " elsewhere", "imported by maelm_fairseq"
    where = f"`{config['architectures'][0]}`" + (f" in `{MODELING_FILE}`" if in_code(config) else "")
    text = (
        f"A text encoder {method}{after}. It was {made}, and exported to the class {where}, which computes the same as "
        f"the original up to rounding: {sizes}."
    )
    if config.get("share_decoder_layers") and not config["masks_in_encoder"]:
        text += (
            f" Its decoder is the encoder's last layers ({config['decoder_layers']} of {config['num_hidden_layers']}): "
            "`<mask>` enters in front of them and attends to all tokens, which never attend to `<mask>`."
        )
    if "id2label" in config and config["problem_type"] != "regression":
        text += " Its labels: " + ", ".join(f"`{label}`" for label in config["label2id"]) + "."
    return text


def positions(config):
    """The most tokens of a text; RoBERTa and MPNet count two more."""
    return config["max_position_embeddings"] - (0 if in_code(config) else 2)


def usage(kind, name, config, pairs):
    """Python code that loads the folder and uses it."""
    trust = ", trust_remote_code=True" if in_code(config) else ""
    if kind == MASKED_LM:
        return "\n".join(
            [
                "from transformers import AutoModel, AutoTokenizer, pipeline",
                "",
                f'fill_mask = pipeline("fill-mask", model="{name}"{trust})',
                'fill_mask("one of the best <mask> i have ever seen .")',
                *features_usage(name, config, trust),
            ]
        )
    if kind == SEQUENCE_CLASSIFICATION:
        text = '{"text": "one text", "text_pair": "and another"}' if pairs else '"a text"'
        score = ', function_to_apply="none"' if config["problem_type"] == "regression" else ""
        return (
            "from transformers import pipeline\n\n"
            f'classify = pipeline("text-classification", model="{name}"{trust})\n'
            f"classify({text}{score})"
        )
    if kind == QUESTION_ANSWERING:
        lines = [
            "from transformers import AutoModelForQuestionAnswering, AutoTokenizer",
            "",
            f'tokenizer = AutoTokenizer.from_pretrained("{name}"{trust})',
            f'model = AutoModelForQuestionAnswering.from_pretrained("{name}"{trust})',
            'question, text = "Who came ?", "Nobody came ."',
            'inputs = tokenizer(question, text, return_offsets_mapping=True, return_tensors="pt")',
            'offsets = inputs.pop("offset_mapping")[0].tolist()',
            "found = model(**inputs)",
            "start, end = found.start_logits.argmax(), found.end_logits.argmax()  # both 0: no answer",
            "answer = text[offsets[start][0] : offsets[end][1]]",
        ]
    else:
        lines = ["from transformers import AutoModel, AutoTokenizer", "", *features_usage(name, config, trust)]
    return "\n".join(lines)


def features_usage(name, config, trust):
    """Lines of Python that compute features."""
    return [
        f'tokenizer = AutoTokenizer.from_pretrained("{name}"{trust})',
        f'model = AutoModel.from_pretrained("{name}"{trust})',
        'inputs = tokenizer(["one sentence .", "and a longer one ."], padding=True, return_tensors="pt")',
        f"features = model(**inputs).last_hidden_state  # (2, tokens, {config['hidden_size']})",
    ]


def training(state, data, head):
    """Lines about data, settings and validation, as far as the checkpoint and the data folder know them."""
    if "imported_from" in state:
        return [f"None since it was imported from `{state['imported_from']}`, unchanged"]
    cfg, lines = state["cfg"], []
    if os.path.isfile(os.path.join(data, "train.json")):
        path, expected = os.path.join(data, "train.json"), "the record that data-prep/prepare.sh wrote"
        record = read_json(path, expected, RECORD, fix="prepare the data again with data-prep/prepare.sh")
        counts = [f"{record[key]:,} {word}" for key, word in COUNTS.items()]
        shard = f", in this one of {record['shards']} shards" if record["shards"] > 1 else ""
        lines.append(f"Data: {', '.join(counts)}{shard}")
    done = (state.get("optimizer_history") or [{}])[-1].get("num_updates")
    if done is not None:
        lines.append(f"Updates: {done:,}")
    for title, names in SETTINGS.items():
        section = cfg.get(title) or {}
        known = [name for name in names if section.get(name) not in (None, "")]
        values = [f"`{name}` {shown(section[name])}" for name in known if head is None or "decoder" not in name]
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


def shown(value):
    """A value of an option: lists without brackets."""
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value


COUNTS = {"documents": "documents", "text_lines": "lines", "tokens": "tokens"}  # of train.json
RECORD = {**dict.fromkeys(COUNTS, count), "shards": positive}

# Options that the card lists, by the sections of fairseq's configuration.
SETTINGS = {
    "model": ["dropout", "attention_dropout", "pooler_dropout", "decoder_layers", "share_decoder_layers"],
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
        reason = "the stock classes have no place for a decoder, and a pipeline for fill-mask would use a head with "
        reason += "random weights"
        lines.append(f"It fills no masks: {'it was fine-tuned without its decoder' if in_code(config) else reason}.")
    if kind == MODEL and not in_code(config):
        lines.append(
            "The pooler is untrained, as transformers warns on loading: `pooler_output` is random. Use "
            "`last_hidden_state`."
        )
    if kind in [MODEL, MASKED_LM]:
        lines.append("It is no sentence encoder: fine-tune it before you compare sentences by its features.")
    lines.append(f"It reads up to {positions(config)} tokens of a text.")
    lines.append("It reflects the text it was trained on, with its biases.")
    lines.append("Licence: fill in yours above; the training text may have one of its own.")
    return lines
