"""The model card, README.md of an exported folder: card.md with the facts about the model."""

import json
import operator
import os
import re
from dataclasses import astuple, dataclass, field
from pathlib import Path
from string import Template
from typing import List, Tuple

from ..base.json_files import read_json
from .config_json import MODELING_FILE
from .weights import (
    CODE,
    MASKED_LM,
    MODEL,
    QUESTION_ANSWERING,
    SEQUENCE_CLASSIFICATION,
    TOKEN_CLASSIFICATION,
)

TO_FILL_IN = "**please fill in**"
PAPER = "[Meng et al., ICLR 2024](https://arxiv.org/abs/2302.02060)"

# `example` is given to the tokenizer; `usage` is what the model makes of it.
USES_BY_SUFFIX = {
    MODEL: dict(
        pipeline="feature-extraction",
        example='"one sentence ."',
        usage="features = model(**inputs).last_hidden_state  "
        "# (1, tokens, width); a pooler_output is untrained",
        limits="It is an encoder only: it fills no masks, and has to be fine-tuned before you "
        "compare sentences by its vectors. sentence-transformers loads it, too: one vector a text, "
        "the mean over its tokens.",
    ),
    MASKED_LM: dict(
        pipeline="fill-mask",
        example='"one of the best <mask> i have ever seen ."',
        usage="logits = model(**inputs).logits  # (1, tokens, vocabulary)",
        limits="Fine-tune it before you compare sentences by its vectors, the mean over the "
        "tokens, which sentence-transformers gives.",
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
        usage="logits = model(**inputs).logits  "
        "# (1, tokens, labels); the first token of a word has its label\n"
        'tag = pipeline("token-classification", $path, aggregation_strategy="first"$trust)\n'
        'tag("some words")  # other strategies label pieces of words',
        limits="It was fine-tuned for one task, and fills no masks.",
    ),
    QUESTION_ANSWERING: dict(
        pipeline="question-answering",
        example='"Who came ?", "Nobody came ."',
        usage="outputs = model(**inputs)  "
        "# start_logits and end_logits of each token; both highest at 0: no answer",
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
    """The record of a split: the sum over all shards, whether `data` contains them or is one.

    It is empty if another program prepared the data.
    """
    folder = Path(data).resolve()
    all_shards = folder.parent if re.fullmatch(r"shard\d+", folder.name) else folder
    paths = sorted(all_shards.glob(f"shard*/{split}.json"))
    if not paths:
        paths = filter(Path.exists, [folder / f"{split}.json"])
    total = TextSize(shards=0)
    for path in paths:
        record = read_json(
            path,
            TextSize,
            "the record that data-prep/prepare.sh wrote",
            "prepare the data again",
        )
        total = TextSize(*map(operator.add, astuple(total), astuple(record)))
    return total


def model_card(name, facts, config, data, suffix, description=None):
    """The text of a folder's model card, from the facts of the checkpoint and config.json.

    Args:
        name: of the folder
        facts: of the checkpoint, as `checkpoints.facts` has them
        config: the contents of config.json
        data: folder of the training data
        suffix: of the name of the class that the model becomes: `MODEL`, `MASKED_LM`, ...
        description: of the text and language that it was trained on
    """
    is_code = config["model_type"] == CODE.model_type
    is_mlm = facts.masks_in_encoder or facts.imported_from is not None
    positions = config["max_position_embeddings"]
    if not is_code:
        positions -= 2  # RoBERTa and MPNet count two more
    filled = {
        **config,
        **USES_BY_SUFFIX[suffix],
        "name": name,
        "path": json.dumps(name),
        "tag": "masked-lm" if is_mlm else "mae-lm",
        "method": method_of(facts),
        "class_name": f"`{config['architectures'][0]}`",
        "auto_class": "AutoModel" + suffix.removeprefix(MODEL),
        "positions": positions,
        "tokens": f"{config['vocab_size']:,}",
        "pretrained_positions": "",
        "more_imports": ", pipeline" if suffix == TOKEN_CLASSIFICATION else "",
        "trust": "",
        "trust_note": "",
        "text": " ".join((description or TO_FILL_IN).split()),  # it is one item of a list
        "training": "\n".join("- " + line for line in training(facts, data)),
    }
    if is_code:
        filled["class_name"] += f" in `{MODELING_FILE}`"
        filled["trust"] = ", trust_remote_code=True"
        filled["trust_note"] = (
            f". With `trust_remote_code=True` you let it run `{MODELING_FILE}` of this folder"
        )
    length = facts.pretraining.tokens_per_sample
    if length is not None and length < positions:
        filled["pretrained_positions"] = (
            f" In pretraining, it read at most {length}: later positions are untrained."
        )
    if suffix == SEQUENCE_CLASSIFICATION and facts.labels:
        filled["usage"] += "\nlabel = model.config.id2label[int(logits.argmax())]"
    if facts.texts_per_example == 2:
        filled["example"] = '"one text", "and another"'
    filled["usage"] = Template(filled["usage"]).substitute(filled)
    template = Path(__file__).with_name("card.md").read_text(encoding="utf-8")
    return Template(template).substitute(filled)


def method_of(facts):
    """How the encoder was pretrained, in words."""
    if facts.imported_from is not None:
        return "pretrained by masked language modelling elsewhere"
    if facts.masks_in_encoder:
        return "pretrained by masked language modelling"
    text = f"pretrained by MAE-LM ({PAPER})"
    if facts.pretraining.encoder_mask_fraction is None:
        text += " or its MLM baseline"
    if facts.options.share_decoder_layers:
        text += ", with shared decoder layers, unlike the paper's"
    return text


def training(facts, data):
    """Lines about data, options and validation, as far as checkpoint and data folder know them."""
    if facts.imported_from is not None:
        return [f"No further training: imported from `{facts.imported_from}`, unchanged"]
    options = facts.options
    record = read_record(data, "train")
    lines = []
    if record.tokens:
        counts = (
            f"{record.documents:,} documents, {record.text_lines:,} lines, {record.tokens:,} tokens"
        )
        if record.shards > 1:
            counts += f" in {record.shards} shards"
        lines.append(f"{'Pretraining data' if facts.is_fine_tuned else 'Data'}: {counts}")
    if facts.updates is not None:
        stage = "Fine-tuning" if facts.is_fine_tuned else "Pretraining"
        line = f"{stage}: {facts.updates:,} updates"
        start = options.finetune_from_model
        if start:
            folder, file = os.path.split(os.path.abspath(start))
            line += f", starting from `{os.path.basename(folder)}/{file}`"
        lines.append(line)
    lines.append("Options: " + ", ".join(shown_options(options)))
    if facts.valid_metric is not None:
        metric = options.best_checkpoint_metric
        lines.append(f"Validation {metric}: {facts.valid_metric}{validation_condition(facts)}")
    if facts.dev_scores:
        scores = [f"{metric} {value:.2f}" for metric, value in facts.dev_scores.items()]
        lines.append(f"Scores on the dev file, in percent: {', '.join(scores)}")
    if facts.labels:
        lines.append(f"Labels: {', '.join(facts.labels)}")
    return lines


def shown_options(options):
    """The options of the run in words, each with its value; a list of one value as the value."""
    shown = []
    for name, value in options.card_options().items():
        if isinstance(value, (list, tuple)) and len(value) == 1:
            (value,) = value
        if value is not None:
            shown.append(f"`{name}` {value}")
    return shown


def validation_condition(facts):
    """The unit and the circumstances of the validation loss, in words."""
    if facts.options.best_checkpoint_metric != "loss":
        return ""
    if facts.is_fine_tuned:
        return " bits" if facts.labels else ""
    text = f" bits per predicted token, {100 * facts.options.mask_prob:g}% of the tokens predicted"
    if facts.unigram_bits is not None:
        text += f"; by token frequencies alone: {facts.unigram_bits:.4g}"
    return text
