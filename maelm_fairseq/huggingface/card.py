"""The model card, README.md of an exported folder: card.md with the facts about the model."""

import os
from pathlib import Path
from string import Template

from ..engine.files import read_json
from .config import MODELING_FILE
from .weights import CODE, MASKED_LM, MODEL, QUESTION_ANSWERING, SEQUENCE_CLASSIFICATION, kind_of

PAPER = "[Meng et al., ICLR 2024](https://arxiv.org/abs/2302.02060)"
FEATURES = """\
tokenizer = AutoTokenizer.from_pretrained("$name"$trust)
model = AutoModel.from_pretrained("$name"$trust)
inputs = tokenizer(["one sentence .", "and a longer one ."], padding=True, return_tensors="pt")
features = model(**inputs).last_hidden_state  # (2, tokens, $width)"""
KINDS = {  # the pipeline, what the class has beside the encoder, and how it is used
    MODEL: ("feature-extraction", "", "from transformers import AutoModel, AutoTokenizer\n\n" + FEATURES),
    MASKED_LM: (
        "fill-mask",
        ", with its language-model head",
        'from transformers import AutoModel, AutoTokenizer, pipeline\n\nfill_mask = pipeline("fill-mask", '
        'model="$name"$trust)\nfill_mask("one of the best <mask> i have ever seen .")\n' + FEATURES,
    ),
    SEQUENCE_CLASSIFICATION: (
        "text-classification",
        ", fine-tuned, with the classification head `$head`",
        'from transformers import pipeline\n\nclassify = pipeline("text-classification", model="$name"$trust)\n'
        "classify($example)",
    ),
    QUESTION_ANSWERING: (
        "question-answering",
        ", fine-tuned for question answering, with the span head `$head`",
        """\
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("$name"$trust)
model = AutoModelForQuestionAnswering.from_pretrained("$name"$trust)
question, text = "Who came ?", "Nobody came ."
inputs = tokenizer(question, text, return_offsets_mapping=True, return_tensors="pt")
offsets = inputs.pop("offset_mapping")[0].tolist()
found = model(**inputs)
start, end = found.start_logits.argmax(), found.end_logits.argmax()  # both 0: no answer
answer = text[offsets[start][0] : offsets[end][1]]""",
    ),
}


def model_card(name, state, config, data, head=None):
    """The text of the model card, from the contents of the checkpoint (state) and of config.json."""
    kind, code = kind_of(config), config["model_type"] == CODE.model_type
    pipeline, part, usage = KINDS[kind]
    imported = "imported_from" in state  # and not trained since
    mask_fraction = 1 if imported else state["cfg"]["task"].get("encoder_mask_fraction")  # None after fine-tuning
    example = '"a text"'
    if os.path.isdir(os.path.join(data, "input1")):
        example = '{"text": "one text", "text_pair": "and another"}'
    if config.get("problem_type") == "regression":
        example += ', function_to_apply="none"'
    if mask_fraction == 1:
        method = "pretrained by masked language modelling" + " elsewhere" * imported
    else:
        method = f"pretrained by MAE-LM ({PAPER})" + " or its MLM baseline" * (mask_fraction is None)
    labels = ", ".join(f"`{label}`" for label in config.get("label2id", []))
    buckets = config.get("relative_position_num_buckets") or config.get("relative_attention_num_buckets")
    limits = []
    if kind != MASKED_LM:
        limits.append("It fills no masks: it has no decoder, and a pipeline would give it a head of random weights.")
    if kind == MODEL and not code:
        limits.append("Its pooler is untrained, and `pooler_output` random: use `last_hidden_state`.")
    if head is None:
        limits.append("It is no sentence encoder: fine-tune it before you compare sentences by its features.")
    trust_note = f". With `trust_remote_code=True` you let it run `{MODELING_FILE}` of this folder"
    facts = {
        "name": name,
        "pipeline": pipeline,
        "tag": "masked-lm" if mask_fraction == 1 else "mae-lm",
        "method": method,
        "made": "imported by maelm_fairseq" if imported else "trained with fairseq and the plugin maelm_fairseq",
        "class_name": f"`{config['architectures'][0]}`" + f" in `{MODELING_FILE}`" * code,
        "layers": config["num_hidden_layers"],
        "width": config["hidden_size"],
        "heads": config["num_attention_heads"],
        "positions": config["max_position_embeddings"] - (0 if code else 2),  # RoBERTa and MPNet count two more
        "tokens": f"{config['vocab_size']:,}",
        "bias": f", and a relative position bias of {buckets} buckets" if buckets else "",
        "labels": f" Its labels: {labels}." if labels and config["problem_type"] != "regression" else "",
        "trust": ", trust_remote_code=True" if code else "",
        "trust_note": trust_note if code else "",
        "training": "\n".join("- " + line for line in training(state, data)),
        "limits": "\n".join("- " + line for line in limits),
        "head": head,
        "example": example,
    }
    facts["part"], facts["usage"] = (Template(text).substitute(facts) for text in [part, usage])
    return Template(Path(__file__).with_name("card.md").read_text(encoding="utf-8")).substitute(facts)


def training(state, data):
    """Lines about data, masking and validation, as far as the checkpoint and the data folder know them."""
    if "imported_from" in state:
        return [f"None since it was imported from `{state['imported_from']}`, unchanged"]
    cfg, lines = state["cfg"], []
    path = os.path.join(data, "train.json")
    if os.path.isfile(path):
        record = read_json(path, "the record that data-prep/prepare.sh wrote")
        counts = {"documents": "documents", "text_lines": "lines", "tokens": "tokens"}
        lines.append("Data: " + ", ".join(f"{record.get(key, 0):,} {word}" for key, word in counts.items()))
    done = (state.get("optimizer_history") or [{}])[-1].get("num_updates")
    if done is not None:
        lines.append(f"Updates: {done:,}")
    sections = {"model": ["decoder_layers", "share_decoder_layers"], "task": ["mask_prob", "encoder_mask_fraction"]}
    sections.update(optimization=["lr", "update_freq"], dataset=["batch_size", "max_tokens"])
    known = [(name, (cfg.get(section) or {}).get(name)) for section, names in sections.items() for name in names]
    lines.append("Settings: " + ", ".join(f"`{name}` {value}" for name, value in known if value is not None))
    value = (state.get("extra_state") or {}).get("val_loss")
    if value is not None:
        lines.append(f"Validation {(cfg.get('checkpoint') or {}).get('best_checkpoint_metric', 'loss')}: {value}")
    return lines
