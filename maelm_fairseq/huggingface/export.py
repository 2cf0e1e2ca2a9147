"""Exports an encoder to Hugging Face: a folder that `AutoModel.from_pretrained` loads, with the
same features.

    python -m maelm_fairseq.huggingface.export --checkpoint FILE_or_DIR --data DIR --dest DIR

A model without relative position bias becomes a RobertaModel, one whose bias fits exactly into
MPNet's 32 buckets an MPNetModel. These stock classes leave out MAE-LM's decoder. Every other model
becomes a class in a file of ours beside the weights, which users load with trust_remote_code=True;
it fills masks through the decoder. --format code asks for it. A fine-tuned checkpoint becomes the
class of its head, an MLM (--decoder-layers 0) a ...ForMaskedLM.

--dest receives config.json, model.safetensors, the tokenizer's files, and a model card, README.md;
without a head, also what makes it a SentenceTransformer, which takes the mean of all tokens as
hub.embed does. It appears once the tokenizer has given the same tokens as this package on lines of
the data and on edge cases, and, where transformers is installed, once the export has answered as
the hub does to what its users give it: texts or pairs, lists of words or questions, padded on
either side, truncated. transformers is not needed. A folder that already holds the same export,
whatever its model card says, is compared in the same way, and not changed.
"""

import filecmp
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ..base.command_line import Parser
from ..base.destinations import check_new
from ..base.errors import UsageError
from ..base.files import atomic_folder, scratch_folder
from ..base.json_files import save_json
from ..base.running import run_main
from ..checkpoints.building import build_model, find_checkpoint_file, read_checkpoint
from ..checkpoints.checkpoint_info import info_of_checkpoint
from ..finetuning.squad import SquadTask
from ..heads import SpanHead, only_head_name
from ..hub import MaeLm
from ..label_scale import UNSCALED, fold_label_scale_into_head
from ..vocabulary import load_dictionary_and_tokenizer
from . import weights
from .card import model_card
from .config_json import MODELING_FILE, make_config, sentence_transformers_files
from .export_kinds import ENCODER

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
CARD = "README.md"


class Exported(NamedTuple):
    """What an export did."""

    class_name: str  # of transformers, or of the file of code
    left_out: list  # parts of the checkpoint that the class does not have
    comparison: str  # a sentence about what transformers answers
    is_unchanged: bool  # the folder held the same export before, and is unchanged


def parse_args():
    parser = Parser("python -m maelm_fairseq.huggingface.export", description=__doc__)
    add = parser.add_argument
    add("--checkpoint", required=True, metavar="FILE_or_DIR", help="pretrained or fine-tuned")
    add("--data", required=True, metavar="DIR", help="folder of its vocabulary")
    add("--dest", required=True, metavar="DIR", help="new folder to write, or the same export")
    formats = ["auto", "code"]
    add(
        "--format",
        default="auto",
        choices=formats,
        help="code: never a stock class (default: auto)",
    )
    add("--description", metavar="TEXT", help="for the model card: of the text and its language")
    return parser.parse_args()


def export(checkpoint, data, dest, format="auto", description=None):
    """Writes the folder; the arguments are the program's options.

    Returns: `Exported`
    Raises:
        FileNotFoundError: an input does not exist
        UsageError: an input cannot be used, or the destination exists and is not this export
        ImportError: a package of the extra `huggingface` is missing
    """
    dest = os.path.abspath(dest)
    exists = all(os.path.isfile(os.path.join(dest, name)) for name in (CONFIG, WEIGHTS))
    if not exists:
        check_new(dest)
    # These need the extra `huggingface`: without it, this fails now, not after the work.
    import safetensors.torch  # noqa: F401

    from .tokenizer import check_tokenizer, recorded_lines, write_tokenizer
    from .verification import compare_with_transformers

    checkpoint = find_checkpoint_file(checkpoint)
    contents = read_checkpoint(checkpoint)
    info = info_of_checkpoint(contents, checkpoint)
    dictionary, tokenizer = load_dictionary_and_tokenizer(data)
    stored = set(contents["model"])
    model = build_model(contents, dictionary, checkpoint)
    unused = stored - set(model.state_dict())
    head_name, head = find_head(model, checkpoint)
    if info.label_scale != UNSCALED:
        fold_label_scale_into_head(head, *info.label_scale)
        info = replace(info, label_scale=UNSCALED)
    family = weights.OWN_CLASSES if format == "code" else weights.choose_family(model, head)
    kind = kind_of_export(model, family, head, info)
    labels = labels_of_head(kind, head, info)
    config = make_config(model, family, kind, labels, info.masks_in_encoder)
    tensors, remaining = weights.weights_for_transformers(model, family, kind, head_name)

    with scratch_folder(dest) if exists else atomic_folder(dest) as folder:
        write_model(folder, config, tensors, family)
        if kind.gives_features:
            write_json_files(folder, sentence_transformers_files(config, model.max_positions()))
        hf_tokenizer = write_tokenizer(folder, tokenizer, model.max_positions(), kind.reads_words)
        check_tokenizer(hf_tokenizer, tokenizer, recorded_lines(data), kind.reads_words)
        card = model_card(os.path.basename(dest), info, config, data, kind, description)
        Path(folder, CARD).write_text(card, encoding="utf-8")
        if exists:
            check_same_files(dest, folder)
        hub_model = MaeLm(model, dictionary, tokenizer, data, info)
        comparison = compare_with_transformers(folder, config, hub_model, data, kind)
    left_out = sorted({name.partition(".")[0] for name in remaining | unused})
    return Exported(config["architectures"][0], left_out, comparison, is_unchanged=exists)


def find_head(model, checkpoint):
    """The name and the module of the head that a model was fine-tuned with; None without one."""
    name = only_head_name(model.classification_heads)
    if name is None:
        return None, None
    head = model.classification_heads[name]
    if isinstance(head, SpanHead) and name != SquadTask.head_name:
        raise UsageError(
            f"{checkpoint}: fine-tuned on SQuAD by version 0.2, on other pieces of text: "
            "fine-tune it again"
        )
    return name, head


def check_same_files(dest, folder):
    """Refuses a folder `dest` with other files, or other contents, than the export in `folder`.

    The model card is for users to edit, and may differ.
    """
    found, expected = relative_paths(dest) - {CARD}, relative_paths(folder) - {CARD}
    other = set()
    for name in found & expected:
        if not filecmp.cmp(os.path.join(dest, name), os.path.join(folder, name), shallow=False):
            other.add(name)
    faults = {
        "other contents of": other,
        "no": expected - found,
        "also": found - expected,
    }
    differences = []
    for fault, names in faults.items():
        if names:
            differences.append(f"{fault} {', '.join(sorted(names))[:200]}")
    if differences:
        raise UsageError(
            f"{dest}: exists already, and is not the same as this export would be: found "
            f"{'; '.join(differences)}; choose another --dest"
        )


def relative_paths(folder):
    """The paths of all files in a folder, relative to it: set."""
    paths = set()
    for parent, _, names in os.walk(folder):
        paths.update(os.path.relpath(os.path.join(parent, name), folder) for name in names)
    return paths


def kind_of_export(model, family, head, info):
    """The `ExportKind` that the model with its head, or None, becomes."""
    if info.imported_from is not None:
        has_new_parts = model.decoder is not None or info.import_lacks_head
        if has_new_parts:  # of import_roberta, and untrained
            return ENCODER
    return weights.choose_kind(model, family, head, info.masks_in_encoder)


def labels_of_head(kind, head, info):
    """The names of the classes of a head, ["score"] for regression, None for other models."""
    if kind.has_labels:
        return info.classes(head.out_proj.out_features) or ["score"]
    return None


def write_model(folder, config, tensors, family):
    """Writes configuration, weights, and for `weights.OWN_CLASSES` the classes."""
    import safetensors.torch

    save_json(config, os.path.join(folder, CONFIG))
    # save_file would make it readable for its owner only.
    contents = safetensors.torch.save(tensors, metadata={"format": "pt"})
    Path(folder, WEIGHTS).write_bytes(contents)
    if family is weights.OWN_CLASSES:
        shutil.copyfile(Path(__file__).with_name(MODELING_FILE), Path(folder, MODELING_FILE))


def write_json_files(folder, files):
    """Writes {path: contents} into a folder."""
    for name, contents in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        save_json(contents, path)


def main():
    args = parse_args()
    # The warnings of transformers about heads that an encoder lacks are alarming but harmless. It
    # reads these variables when it is imported.
    os.environ.update(TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1")
    exported = export(**vars(args))
    summary = f"{args.dest}, {exported.class_name} with config, tokenizer and model card"
    if exported.left_out:
        summary += f"; left out: {', '.join(exported.left_out)}"
        is_stock = not exported.class_name.startswith(weights.OWN_CLASSES.class_prefix)
        if is_stock and "lm_head" in exported.left_out:
            summary += " (to fill masks, export with --format code)"
    if exported.is_unchanged:
        print(f"left unchanged, as it is this export already: {summary}")
        if args.description:
            print(f"--description was not used: edit {os.path.join(args.dest, CARD)} instead")
    else:
        print(f"written: {summary}")
    print(exported.comparison)


if __name__ == "__main__":
    run_main(main)
