"""Continues the pretraining of a Hugging Face encoder on your own text, and exports it again.

In steps: the text is prepared with the model's own vocabulary, the model imported and measured on
held-out text; its masked-language-model training continues; it is measured again, and exported to
DEST, which AutoModel, pipeline("fill-mask") and SentenceTransformer load. The same command resumes,
and trains further with more --updates. Everything but the export is in DEST.work, with the
checkpoints and the table of measurements, adaptation.md.

All other options go to fairseq-train, such as --tokens-per-sample 128, --lr 5e-5 or --batch-size 4
(sequences per GPU at a time; an update has 32).
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Dict

import maelm_fairseq.plugin  # noqa: F401  registers the task
from maelm_fairseq import hub
from maelm_fairseq.base.command_line import Parser, folder_name, number_in_range
from maelm_fairseq.base.destinations import check_new
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.files import atomic_write, set_aside
from maelm_fairseq.base.json_files import read_json, save_json
from maelm_fairseq.base.locks import one_at_a_time
from maelm_fairseq.base.markdown import markdown_table
from maelm_fairseq.base.provenance import check_same_origin, sha256
from maelm_fairseq.base.running import run_main
from maelm_fairseq.base.signals import EXIT_STOPPED
from maelm_fairseq.base.utf8 import read_lines
from maelm_fairseq.base.vocabulary_files import read_tokenizer
from maelm_fairseq.checkpoints.building import default_device
from maelm_fairseq.config import check_positions
from maelm_fairseq.evaluation.held_out_text import bits_per_token, matched_halves
from maelm_fairseq.evaluation.minimal_pairs import decide_pairs
from maelm_fairseq.evaluation.pair_files import read_pairs
from maelm_fairseq.huggingface.export import export
from maelm_fairseq.huggingface.import_roberta import (
    describe_import,
    import_roberta,
    training_options,
)
from maelm_fairseq.huggingface.roberta_source import read_source
from maelm_fairseq.runs.fairseq_args import parse_fairseq_args, refuse_recipe_options
from maelm_fairseq.runs.jobs import Jobs
from maelm_fairseq.training.option_checks import check_no_interpolation

RECIPES = Path(__file__).resolve().parent
WEIGHT_FILES = ["config.json", "model.safetensors", "pytorch_model.bin"]
# Options of fairseq-train that the recipe sets itself.
SET_BY_RECIPE = [
    "task",
    "criterion",
    "arch",
    "max_positions",
    "save_dir",
    "finetune_from_model",
    "restore_file",
    "no_save",
    "max_update",
]


def parse_args():
    parser = Parser("adapt.sh", description=__doc__)
    path = os.path.abspath
    add = parser.add_argument
    add(
        "--model",
        type=path,
        required=True,
        metavar="DIR",
        help="folder of a Hugging Face model with the layout of RoBERTa",
    )
    add(
        "--train",
        type=path,
        action="extend",
        nargs="+",
        required=True,
        metavar="FILE",
        help="text to train on, plain or gzip",
    )
    valid_options = parser.add_mutually_exclusive_group(required=True)
    valid_options.add_argument(
        "--valid", type=path, metavar="FILE", help="held-out text, to validate and measure on"
    )
    valid_options.add_argument(
        "--valid-documents",
        type=number_in_range(1),
        metavar="N",
        help="hold out N documents of --train instead, evenly spaced",
    )
    add(
        "--dest",
        type=lambda text: folder_name(path(text)),
        required=True,
        metavar="DIR",
        help="new folder for the model, beside DEST.work",
    )
    add(
        "--gpus",
        type=number_in_range(0),
        metavar="N",
        help="GPUs (default: all); 0 trains on the CPU",
    )
    add(
        "--updates",
        type=number_in_range(1),
        default=2000,
        metavar="N",
        help="updates of 32 sequences (default: %(default)s)",
    )
    add(
        "--add-tokens",
        type=path,
        metavar="FILE",
        help="words, one per line, that become tokens of their own",
    )
    add(
        "--extend-positions",
        type=number_in_range(1),
        metavar="N",
        help="positions of the new model, more than it had; the new ones start as copies",
    )
    add(
        "--pairs",
        type=path,
        metavar="PATH",
        help="minimal pairs to measure on: FILE.tsv with the columns good and bad, "
        "FILE.jsonl of BLiMP, or a folder of such files",
    )
    return parser.parse_known_args()


def measure_checkpoint(record, checkpoint, data, args, positions):
    """The measurements of a checkpoint, {what: value}.

    They are kept in a JSON file, `record`, with what they were made from.
    """
    pairs = args.pairs
    origin = {
        "checkpoint": sha256(checkpoint),
        "valid": sha256(args.valid or data / "valid.bin"),
        "pairs": pairs.sha256 if pairs else None,
    }
    if record.exists():
        earlier = read_json(record, Dict[str, dict], "measurements of adapt.sh")
        if earlier.get("origin") == origin and "found" in earlier:
            return earlier["found"]
    print(f"measuring {checkpoint}", flush=True)
    model = hub.from_pretrained(checkpoint, data)
    model.to("cpu" if args.gpus == 0 else default_device())
    lines = held_out_lines(args, data)
    bits, tokens = bits_per_token(model, lines, positions)
    share, halves = matched_halves(model, lines)
    found = {
        f"bits per token ({tokens:,} of held-out text)": bits,
        f"second halves found, % of {halves:,} lines": share,
    }
    if pairs:
        preferred = float(decide_pairs(model, pairs).mean())
        found[f"minimal pairs, % of {len(pairs.good):,}"] = 100 * preferred
    save_json({"origin": origin, "found": found}, record)
    return found


def held_out_lines(args, data):
    """The lines of the held-out text, shuffled."""
    from maelm_fairseq.huggingface.tokenizer import recorded_lines  # of the extra `huggingface`

    if args.valid:
        stripped = (line.strip() for _, line in read_lines(args.valid))
        lines = [line for line in stripped if line]
    else:
        lines = recorded_lines(data, ["valid"])
    random.Random(1).shuffle(lines)
    return lines


def show_line(line):
    """Prints a line of a child program; its errors go to standard error."""
    print(line, file=sys.stderr if line.startswith("error: ") else sys.stdout, flush=True)


def main():
    args, fairseq_args = parse_args()
    dest = Path(args.dest)
    work = Path(args.dest + ".work")
    log = work / "adapt.log"
    if not work.exists():
        check_new(dest)
    elif any(work.iterdir()) and not log.exists():
        raise UsageError(
            f"{work}: found a folder of other files, without {log.name}; expected none, or that "
            "of an earlier run; choose another --dest"
        )
    if args.pairs is not None:
        args.pairs = read_pairs(args.pairs)
    check_folders(args)
    positions = positions_of_model(args.model)
    check_options(args, fairseq_args, positions)
    jobs = Jobs().stop_on_signals()

    def execute(program, *command):
        status = jobs.execute([program, *command], log, show=show_line)
        if status:
            sys.exit(status)

    work.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(work):
        adapt(execute, args, fairseq_args, positions, dest, work)


def check_folders(args):
    """Refuses a destination that fairseq would misread, and a model that cannot be exported."""
    from maelm_fairseq.huggingface.tokenizer import write_tokenizer  # of the extra `huggingface`

    check_no_interpolation(argparse.Namespace(dest=args.dest))
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(folder, read_tokenizer(args.model), 1)


def positions_of_model(folder):
    """How many positions the model in a Hugging Face folder has."""
    return len(read_source(folder).weights["encoder.embed_positions.weight"]) - 1


def check_options(args, fairseq_args, positions):
    """Refuses options that would fail later; `positions` is how many the model has."""
    extended = positions if args.extend_positions is None else args.extend_positions
    if extended < positions:
        expected = f"the model has {positions}, expected as many or more"
        raise UsageError(f"--extend-positions {extended}: {expected}")
    options = ["DATA", "--task", "mae_lm", "--criterion", "mae_lm", "--arch", "mae_lm_base"]
    options += ["--optimizer", "torch_adamw"]
    options += ["--tokens-per-sample", "2", "--max-positions", str(extended)]
    recipe = parse_fairseq_args(options)
    whole = parse_fairseq_args([*options, *fairseq_args])
    refuse_recipe_options(SET_BY_RECIPE, recipe, whole, fairseq_args)
    tokens = whole.tokens_per_sample
    advice = f"lower it, or add --extend-positions {tokens}"
    check_positions(tokens, extended, f"--tokens-per-sample {tokens}", advice)


def adapt(execute, args, fairseq_args, positions, dest, work):
    """Takes all steps, except those that an earlier run has completed.

    Args:
        execute: runs a program with its arguments, and ends this one where it fails
        args, fairseq_args: the options of this program, and those for fairseq-train
        positions: number of positions of the model that is adapted
        dest: folder of the export
        work: folder of everything else
    """
    data = work / "data"
    imported = work / "imported.pt"
    record = work / "imported.json"
    origin = origin_of_import(args)
    if record.exists():
        advice = f"choose another --dest, or remove {dest} and {work}"
        check_same_origin(work, read_json(record, dict, "the record of an import"), origin, advice)
    prepare(execute, args, data)
    if not (record.exists() and imported.exists()):
        imported.unlink(missing_ok=True)
        source, cfg = import_roberta(
            args.model, data, imported, decoder_layers=0, extend_positions=args.extend_positions
        )
        print(describe_import(source, cfg, imported))
        save_json(origin, record)
    before = measure_checkpoint(work / "before.json", imported, data, args, positions)

    save_dir = work / "checkpoints"
    train_adapted(execute, args, fairseq_args, data, imported, save_dir)
    best = save_dir / "checkpoint_best.pt"
    after = measure_checkpoint(work / "after.json", best, data, args, positions)
    rows = [[quantity, before[quantity], after[quantity]] for quantity in before]
    table = markdown_table(["", "before", "after"], rows)
    with atomic_write(work / "adaptation.md") as stream:
        stream.write(table)
    export_once(args, best, data, dest, work / "exported.json")
    print(f"{table}written: {dest}")


def origin_of_import(args):
    """What the imported checkpoint depends on: hashes of files, and options."""
    origin = {}
    for name in WEIGHT_FILES:
        path = Path(args.model, name)
        if path.exists():
            origin[name] = sha256(path)
    origin["--add-tokens"] = None if args.add_tokens is None else sha256(args.add_tokens)
    origin["--extend-positions"] = args.extend_positions or 0
    return origin


def prepare(execute, args, data):
    """Prepares the text with the model's vocabulary."""
    command = [RECIPES.parent / "data-prep" / "prepare.sh", "--vocabulary", args.model]
    if args.add_tokens:
        command += ["--add-tokens", args.add_tokens]
    command += ["--train", *args.train, "--dest", data]
    if args.valid:
        command += ["--valid", args.valid]
    else:
        command += ["--valid-documents", args.valid_documents]
    try:
        execute(*command)
    except SystemExit as ended:
        is_complete = (data / "train.json").exists()  # it is written last
        if ended.code != EXIT_STOPPED and not is_complete:
            shutil.rmtree(data, ignore_errors=True)  # the corrected command begins anew
        raise


def train_adapted(execute, args, fairseq_args, data, imported, save_dir):
    """Continues the training of the imported checkpoint, or resumes it."""
    updates = args.updates
    cfg = hub.from_pretrained(imported, data).model.cfg
    options = training_options(cfg, str(imported))
    options += ["--updates", updates, "--warmup-updates", -(-updates * 6 // 100)]
    options += ["--save-interval-updates", -(-updates // 4)]
    if args.gpus is not None:
        options += ["--gpus", args.gpus]
    recipe = [RECIPES / "pretrain.py", RECIPES / "adapt.sh"]
    folders = ["--data", data, "--save-dir", save_dir]
    execute(sys.executable, *recipe, *folders, *options, *fairseq_args)


def export_once(args, checkpoint, data, dest, record):
    """Exports a checkpoint, unless `record` says that it is exported already."""
    origin = {"checkpoint": sha256(checkpoint)}
    earlier = None
    if record.exists():
        earlier = read_json(record, dict, "the record of an export")
    if earlier == origin and (dest / "config.json").exists():
        return
    if os.path.lexists(dest):
        aside = set_aside(str(dest), ".earlier")
        print(f"renamed the earlier export, {dest}, to {aside}")
    # Recorded before the export, whose folder gets its name only when it is complete.
    save_json(origin, record)
    texts = ", ".join(os.path.basename(path) for path in args.train)
    name = os.path.basename(os.path.abspath(args.model))
    description = f"Continued from {name} on {texts}"
    comparison = export(checkpoint, data, dest, description=description).comparison
    print(comparison)


if __name__ == "__main__":
    run_main(main)
