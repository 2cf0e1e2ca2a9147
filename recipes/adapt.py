"""Continues the pretraining of a Hugging Face encoder on your own text, and exports it again.

In steps: the text is prepared with the model's own vocabulary, the model imported and measured on held-out text; its
masked-language-model training continues; it is measured again, and exported to DEST, which AutoModel,
pipeline("fill-mask") and SentenceTransformer load. The same command resumes, and trains further with a higher
--max-update. Everything but the export is in DEST.work, with the checkpoints and the table of measurements,
adaptation.md.

All other options go to fairseq-train, such as --tokens-per-sample 128, --lr 5e-5 or --batch-size 4 (sequences per GPU
at a time; an update has 32).
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Dict

import torch

from maelm_fairseq import hub
from maelm_fairseq.base import markdown
from maelm_fairseq.base.errors import Parser, UsageError, run, within
from maelm_fairseq.base.files import atomic_write, check_new
from maelm_fairseq.base.json_files import read_json, save_json
from maelm_fairseq.base.locks import one_at_a_time
from maelm_fairseq.base.provenance import check_same, sha256
from maelm_fairseq.base.signals import STOPPED
from maelm_fairseq.base.utf8 import read_lines
from maelm_fairseq.base.vocabulary_files import read_subwords
from maelm_fairseq.config import check_positions
from maelm_fairseq.evaluation.held_out_text import bits_per_token, found_halves
from maelm_fairseq.evaluation.minimal_pairs import decide
from maelm_fairseq.evaluation.pair_files import read_pairs
from maelm_fairseq.huggingface.export import export
from maelm_fairseq.huggingface.import_roberta import import_roberta, report, training_options
from maelm_fairseq.huggingface.roberta_source import read_source
from maelm_fairseq.plugin import hooks  # noqa: F401  registers the task
from maelm_fairseq.runs.further_options import parsed, refuse_own
from maelm_fairseq.runs.jobs import Jobs
from maelm_fairseq.training.run_options import check_texts
from maelm_fairseq.training.save_folder import set_aside
from pretrain import folder

RECIPES = Path(__file__).resolve().parent
WEIGHTS = ["config.json", "model.safetensors", "pytorch_model.bin"]
OWN = ["task", "criterion", "arch", "max_positions", "save_dir", "finetune_from_model", "restore_file", "no_save"]


def parse():
    parser = Parser("adapt.sh", description=__doc__)
    path = os.path.abspath
    add = parser.add_argument
    add("--model", type=path, required=True, metavar="DIR", help="folder of transformers with the layout of RoBERTa")
    add("--train", type=path, nargs="+", required=True, metavar="FILE", help="text to train on, plain or gzip")
    held_out = parser.add_mutually_exclusive_group(required=True)
    held_out.add_argument("--valid", type=path, metavar="FILE", help="held-out text, to validate and measure on")
    documents = "hold out N documents of --train instead, evenly spaced"
    held_out.add_argument("--valid-documents", type=within(1), metavar="N", help=documents)
    dest = "new folder for the model, beside DEST.work"
    add("--dest", type=lambda text: folder(path(text)), required=True, metavar="DIR", help=dest)
    add("--gpus", type=within(0), metavar="N", help="GPUs (default: all); 0 trains on the CPU")
    updates = "updates of 32 sequences (default: %(default)s)"
    add("--max-update", type=within(1), default=2000, metavar="N", help=updates)
    add("--add-tokens", type=path, metavar="FILE", help="words, one a line, that become tokens of their own")
    add("--extend-positions", type=within(1), metavar="N", help="positions, more than the model has")
    pairs = "minimal pairs to measure on: FILE.tsv with the columns good and bad, FILE.jsonl of "
    pairs += "BLiMP, or a folder of such files"
    add("--pairs", type=path, metavar="PATH", help=pairs)
    return parser.parse_known_args()


def measure(record, checkpoint, data, args, positions):
    """The measurements of a checkpoint, {what: value}; kept in a JSON file with what they were made from."""
    from maelm_fairseq.huggingface.tokenizer import sample_lines  # of the extra `huggingface`

    pairs = args.pairs
    valid = sha256(args.valid or data / "valid.bin")
    origin = {"checkpoint": sha256(checkpoint), "valid": valid, "pairs": pairs and pairs.digest}
    if record.exists():
        was = read_json(record, Dict[str, dict], "measurements of adapt.sh", file_names=True)
        if was.get("origin") == origin and "found" in was:
            return was["found"]
    print(f"measuring {checkpoint}", flush=True)
    model = hub.from_pretrained(checkpoint, data)
    model.to("cuda" if args.gpus != 0 and torch.cuda.is_available() else "cpu")
    if args.valid:
        lines = [line.strip() for _, line in read_lines(args.valid) if line.strip()]
    else:
        lines = sample_lines(data, ["valid"])
    random.Random(1).shuffle(lines)
    (bits, tokens), (share, halves) = bits_per_token(model, lines, positions), found_halves(model, lines)
    found = {f"bits per token ({tokens:,} of held-out text)": bits, f"halves found, % of {halves:,} lines": share}
    if pairs:
        found[f"minimal pairs, % of {len(pairs.good):,}"] = 100 * float(decide(model, pairs).mean())
    save_json({"origin": origin, "found": found}, record)
    return found


def show(line):
    """Prints a line of a program, whose errors are this one's."""
    print(line, file=sys.stderr if line.startswith("error: ") else sys.stdout, flush=True)


def main():
    args, extra = parse()
    dest, work = Path(args.dest), Path(args.dest + ".work")
    if not work.exists():
        check_new(dest)
    args.pairs = args.pairs and read_pairs(args.pairs)
    positions = check(args, extra)
    jobs, log = Jobs().listen(), work / "adapt.log"

    def execute(program, *command):
        status = jobs.run([program, *command], log, show=show)
        if status:
            sys.exit(status)

    work.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(work):
        adapt(execute, args, extra, positions, dest, work)


def check(args, extra):
    """Refuses what would fail later; returns the positions of the model."""
    from maelm_fairseq.huggingface.tokenizer import write_tokenizer  # of the extra `huggingface`

    check_texts(argparse.Namespace(dest=args.dest))
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(folder, read_subwords(args.model), 1)
    positions = len(read_source(args.model).weights["encoder.embed_positions.weight"]) - 1
    if args.extend_positions is not None and args.extend_positions < positions:
        expected = f"the model has {positions}, expected as many or more"
        raise UsageError(f"--extend-positions {args.extend_positions}: {expected}")
    known = ["DATA", "--task", "mae_lm", "--criterion", "mae_lm", "--arch", "mae_lm_base", "--optimizer", "torch_adamw"]
    known += ["--tokens-per-sample", "2", "--max-positions", str(args.extend_positions or positions)]
    ours, theirs = parsed(known), parsed([*known, *extra])
    refuse_own(OWN, ours, theirs)
    tokens = theirs.tokens_per_sample
    fix = f"lower it, or add --extend-positions {tokens}"
    check_positions(tokens, args.extend_positions or positions, f"--tokens-per-sample {tokens}", fix)
    return positions


def adapt(execute, args, extra, positions, dest, work):
    data, save, imported, record = (work / name for name in ["data", "checkpoints", "imported.pt", "imported.json"])
    origin = {name: sha256(Path(args.model, name)) for name in WEIGHTS if Path(args.model, name).exists()}
    origin["--add-tokens"] = args.add_tokens and sha256(args.add_tokens)
    origin["--extend-positions"] = args.extend_positions or 0
    if record.exists():
        fix = f"choose another --dest, or remove {dest} and {work}"
        check_same(work, read_json(record, dict, "the record of an import"), origin, fix)
    words = ["--add-tokens", args.add_tokens] * bool(args.add_tokens)
    texts = ["--train", *args.train, "--dest", data]
    texts += ["--valid", args.valid] if args.valid else ["--valid-documents", args.valid_documents]
    try:
        execute(RECIPES.parent / "data-prep" / "prepare.sh", "--vocabulary", args.model, *words, *texts)
    except SystemExit as ended:
        if ended.code != STOPPED and not (data / "train.json").exists():  # which is written last
            shutil.rmtree(data, ignore_errors=True)  # the corrected command begins anew
        raise

    if not (record.exists() and imported.exists()):
        imported.unlink(missing_ok=True)
        made = import_roberta(args.model, data, imported, decoder_layers=0, extend_positions=args.extend_positions)
        print(report(*made, imported))
        save_json(origin, record)
    before = measure(work / "before.json", imported, data, args, positions)

    updates = args.max_update
    training = training_options(hub.from_pretrained(imported, data).model.cfg, str(imported))
    training += ["--max-update", updates, "--total-num-update", updates, "--warmup-updates", -(-updates * 6 // 100)]
    training += ["--save-interval-updates", -(-updates // 4), *([] if args.gpus is None else ["--gpus", args.gpus])]
    recipe = [RECIPES / "pretrain.py", RECIPES / "adapt.sh"]
    execute(sys.executable, *recipe, "--data", data, "--save-dir", save, *training, *extra)
    best = save / "checkpoint_best.pt"
    after = measure(work / "after.json", best, data, args, positions)
    rows = [[what, before[what], after[what]] for what in before]
    table = markdown.table(["", "before", "after"], rows)
    with atomic_write(work / "adaptation.md") as stream:
        stream.write(table)

    origin, record = {"checkpoint": sha256(best)}, work / "exported.json"
    was = read_json(record, dict, "the record of an export") if record.exists() else None
    if was != origin or not (dest / "config.json").exists():
        if os.path.lexists(dest):
            print(f"renamed the earlier export, {dest}, to {set_aside(str(dest), '.earlier')}")
        save_json(origin, record)  # before the export, whose folder has its name once it is complete
        texts = ", ".join(os.path.basename(path) for path in args.train)
        name = os.path.basename(os.path.abspath(args.model))
        print(export(best, data, dest, description=f"Continued from {name} on {texts}")[2])
    print(f"{table}written: {dest}")


if __name__ == "__main__":
    run(main)
