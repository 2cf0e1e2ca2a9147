"""The model card, README.md of an exported folder: card.md with what is known of the model."""

import json
import os
from pathlib import Path
from string import Template

from ..metrics import has_entities
from ..preparation.manifest import read_split_summary
from .config_json import MODELING_FILE
from .weights import OWN_CLASSES

TO_FILL_IN = "**please fill in**"
PRETRAINING_OPTIONS = [
    "decoder_layers",
    "share_decoder_layers",
    "mask_prob",
    "leave_unmasked_prob",
    "random_token_prob",
    "encoder_mask_fraction",
    "encoder_mask_fade_updates",
]
OPTIONS_OF_ANY_TRAINING = [
    "lr",
    "update_freq",
    "batch_size",
    "max_tokens",
    "max_update",
    "max_epoch",
    "warmup_updates",
    "lr_layer_decay",
]
PAPER = "[Meng et al., ICLR 2024](https://arxiv.org/abs/2302.02060)"
PIPELINE_LIMIT = (
    " The pipeline joins words by `B-` and `I-` alone: of labels such as `E-` and `S-`, it gives "
    "each word by itself. For whole names, give the model a list of words, and join their labels."
)
LEGAL_TAGS_LIMIT = (
    " Each word gets its most probable label here, while `maelm_fairseq` predicts the labels of a "
    "sentence together, as the most probable sequence in which every entity begins before it goes "
    "on. So these scores are lower here; by how much, depends on the data."
)


def model_card(name, info, config, data, kind, description=None):
    """The text of a folder's model card, from the checkpoint's `CheckpointInfo` and config.json.

    Args:
        name: name of the folder
        info: `checkpoint_info.CheckpointInfo` of the model
        config: the contents of config.json
        data: folder of the training data
        kind: `ExportKind`
        description: description of the text and language that it was trained on
    """
    uses_own_classes = config["model_type"] == OWN_CLASSES.model_type
    positions = config["max_position_embeddings"]
    if not uses_own_classes:
        positions -= 2  # RoBERTa and MPNet count two more
    values = {
        **config,
        "pipeline": kind.pipeline,
        "example": kind.example,
        "usage": kind.usage,
        "limits": kind.limits + limits_of_tags(info),
        "name": name,
        "path": json.dumps(name),
        "tag": tag_of(info),
        "method": describe_pretraining(info),
        "class_name": f"`{config['architectures'][0]}`",
        "auto_class": kind.auto_class,
        "positions": positions,
        "tokens": f"{config['vocab_size']:,}",
        "pretrained_positions": "",
        "extra_imports": kind.extra_imports,
        "trust": "",
        "trust_note": "",
        "text": " ".join((description or TO_FILL_IN).split()),  # it is one item of a list
        "training": "\n".join("- " + line for line in training_lines(info, data)),
    }
    if uses_own_classes:
        values["class_name"] += f" in `{MODELING_FILE}`"
        values["trust"] = ", trust_remote_code=True"
        values["trust_note"] = (
            f". With `trust_remote_code=True` you let it run `{MODELING_FILE}` of this folder"
        )
    trained_positions = info.pretraining.trained_positions
    if trained_positions is not None and trained_positions < positions:
        values["pretrained_positions"] = (
            f" In pretraining, it read at most {trained_positions}: later positions are untrained."
        )
    if info.labels:
        values["usage"] += kind.usage_of_labels
    if info.texts_per_example == 2:
        values["example"] = '"one text", "and another"'
    values["usage"] = Template(values["usage"]).substitute(values)
    template = Path(__file__).with_name("card.md").read_text(encoding="utf-8")
    return Template(template).substitute(values)


def limits_of_tags(info):
    """Further limits of an export that tags words, as a text; empty for others."""
    text = LEGAL_TAGS_LIMIT if info.tags_are_legal else ""
    if has_entities(info.labels or []) and any(label[0] in "ESLU" for label in info.labels):
        text += PIPELINE_LIMIT
    return text


def tag_of(info):
    """The tag that says how the encoder was trained."""
    if not info.is_pretrained:
        return "supervised"
    is_mlm = info.masks_in_encoder or info.imported_from is not None
    return "masked-lm" if is_mlm else "mae-lm"


def describe_pretraining(info):
    """How the encoder was pretrained, in words."""
    if not info.is_pretrained:
        return "trained on labelled examples alone, from random weights"
    if info.imported_from is not None:
        return "pretrained by masked language modelling elsewhere"
    if info.masks_in_encoder:
        return "pretrained by masked language modelling"
    text = f"pretrained by MAE-LM ({PAPER})"
    if info.pretraining.encoder_mask_fraction is None:
        text += " or its MLM baseline"
    if info.options.share_decoder_layers:
        text += ", with shared decoder layers, unlike the paper's"
    return text


def training_lines(info, data):
    """Lines about data, options and validation, as far as checkpoint and data folder know them."""
    if info.imported_from is not None:
        return [f"No further training: imported from `{info.imported_from}`, unchanged"]
    lines = [*data_lines(info, data), *stage_lines(info), *option_lines(info), *score_lines(info)]
    if info.labels:
        lines.append(f"Labels: {', '.join(info.labels)}")
    return lines


def data_lines(info, data):
    """A line about the text of pretraining, in the folder `data`, if it is known."""
    record = read_split_summary(data, "train")
    if not record.tokens or not info.is_pretrained:
        return []
    counts = (
        f"{record.documents:,} documents, {record.text_lines:,} lines, {record.tokens:,} tokens"
    )
    if record.shards > 1:
        counts += f" in {record.shards} shards"
    return [f"{'Pretraining data' if info.is_fine_tuned else 'Data'}: {counts}"]


def stage_lines(info):
    """A line for each stage of training: how long it was, and where it started."""
    lines = []
    pretraining = info.pretraining
    if info.is_fine_tuned and pretraining.pretraining_updates:
        start = pretraining.pretraining_start
        lines.append(stage_line("Pretraining", pretraining.pretraining_updates, start))
    if info.updates is not None:
        stage = "Fine-tuning" if info.is_fine_tuned else "Pretraining"
        start = info.options.finetune_from_model
        line = stage_line(stage, info.updates, start)
        if start and len(info.train_files_sha256) > 1:
            line += ", which had been fine-tuned on another training file"
        lines.append(line)
    return lines


def option_lines(info):
    """A line of options for each stage of training."""
    if not info.is_fine_tuned:
        names_of_stages = {"Options": [*PRETRAINING_OPTIONS, *OPTIONS_OF_ANY_TRAINING]}
    elif info.is_pretrained:
        names_of_stages = {
            "Options of pretraining": PRETRAINING_OPTIONS,
            "Options of fine-tuning": OPTIONS_OF_ANY_TRAINING,
        }
    else:
        names_of_stages = {"Options of fine-tuning": OPTIONS_OF_ANY_TRAINING}
    options = {**info.saved_options, **vars(info.pretraining)}
    lines = []
    for stage, names in names_of_stages.items():
        shown = shown_options(options, names)
        if shown:
            lines.append(f"{stage}: {', '.join(shown)}")
    return lines


def score_lines(info):
    """Lines about the last validation, and the scores on the dev file."""
    lines = []
    if info.last_valid_score is not None:
        metric = info.options.best_checkpoint_metric
        of_stage = " of fine-tuning" if info.is_fine_tuned else ""
        lines.append(
            f"Validation {metric}{of_stage}: {info.last_valid_score}{validation_condition(info)}"
        )
    if info.dev_scores:
        scores = [f"{metric} {value:.2f}" for metric, value in info.dev_scores.items()]
        together = ", with the tags of a sentence predicted together" if info.tags_are_legal else ""
        lines.append(f"Scores on the dev file, in percent{together}: {', '.join(scores)}")
    return lines


def stage_line(stage, updates, start):
    """How many updates a stage of training had, and where it started, if from a checkpoint."""
    line = f"{stage}: {updates:,} updates"
    if start:
        folder, file = os.path.split(os.path.abspath(start))
        line += f", starting from `{os.path.basename(folder)}/{file}`"
    return line


def shown_options(options, names):
    """Options that a reader wants to know, in words.

    Args:
        options: {name: value}; a list of one value is shown as the value
        names: names of those that are shown, as far as they are there
    """
    shown = []
    for name in names:
        value = options.get(name)
        if isinstance(value, (list, tuple)) and len(value) == 1:
            (value,) = value
        if value is not None:
            shown.append(f"`{name}` {value}")
    return shown


def validation_condition(info):
    """The unit and the circumstances of the validation loss, in words."""
    if info.options.best_checkpoint_metric != "loss":
        return ""
    if info.is_fine_tuned:
        return " bits" if info.labels else ""
    text = " bits per predicted token"
    if info.pretraining.mask_prob is not None:
        text += f", {100 * info.pretraining.mask_prob:g}% of the tokens predicted"
    if info.unigram_bits is not None:
        text += f"; by token frequencies alone: {info.unigram_bits:.4g}"
    return text
