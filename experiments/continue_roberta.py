"""Continues a RoBERTa that masked language modelling trained: as it was, and with MAE-LM; on the CPU, small.

    experiments/continue_roberta.sh --data DIR --dest DIR [--seed N]

Trains a RoBERTa of 4 layers, width 256, with fairseq's own model and task, imports it, and continues it for a quarter
of its updates: as an MLM, with MAE-LM and a new decoder, and with shared decoder layers, which are all of its own. Then
measures the effective ranks of the imported model and of these runs on the way. --dest receives the checkpoints, logs
and `ranks/`; RESULTS.md shows what came out. If stopped, the same command resumes.
"""

import argparse
import csv
import glob
import os
import subprocess
import sys

import torch
from fairseq import checkpoint_utils

from child_processes import program, terminate_children_on_sigterm
from fairseq_options import ADAM, PLUGIN
from maelm_fairseq import hub
from maelm_fairseq.engine.errors import Parser, UsageError, run
from maelm_fairseq.engine.versions import allow_fairseq_checkpoints, load_checkpoint
from maelm_fairseq.huggingface.import_roberta import import_roberta

SIZES = {"encoder-layers": 4, "encoder-embed-dim": 256, "encoder-ffn-embed-dim": 1024, "encoder-attention-heads": 4}
TINY_SIZES = {"encoder-layers": 2, "encoder-embed-dim": 16, "encoder-ffn-embed-dim": 32, "encoder-attention-heads": 2}
TOKENS = 64  # of a sequence
PARTS = 6  # checkpoints of each continued run
RANK_TOKENS = 80_000
MLM, MAE_LM, SHARED = "mlm", "mae_lm", "shared"
MLM_MASKS = {"encoder-mask-fraction": 1, "leave-unmasked-prob": 0.1, "random-token-prob": 0.1}
BIAS = dict(relative_position_num_buckets=32, relative_position_buckets="t5")  # of T5, so that MPNet's classes fit


def parse_args():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="DIR", help="prepared text, such as the demo's")
    parser.add_argument("--dest", required=True, metavar="DIR", help="folder for everything")
    parser.add_argument("--updates", type=int, default=3000, metavar="N", help="of RoBERTa (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of all runs (default: %(default)s)")
    parser.add_argument("--tiny", action="store_true", help="a model of 2 layers, width 16, to try the program")
    return parser.parse_args()


def options(settings):
    """{name: value} -> command-line options; True stands for an option without a value."""
    words = [["--" + name.replace("_", "-"), value] for name, value in settings.items()]
    return [word for pair in words for word in pair if word is not True]


class Experiment:
    """The runs, in a folder of their own."""

    def __init__(self, args):
        self.args = args
        self.sizes = TINY_SIZES if args.tiny else SIZES
        self.decoders = {
            MLM: dict(decoder_layers=0),
            MAE_LM: dict(decoder_layers=2, decoder_relative_bias=True),
            SHARED: dict(decoder_layers=self.sizes["encoder-layers"], share_decoder_layers=True),
        }
        self.continued = max(PARTS, args.updates // 4 // PARTS * PARTS)

    def path(self, *parts):
        return os.path.join(self.args.dest, *parts)

    def train(self, name, updates, lr, warmup, every, settings):
        """Trains to the end, from the last checkpoint if there is one; skips what is done."""
        last = self.path(name, "checkpoint_last.pt")
        if os.path.exists(last) and load_checkpoint(last)["optimizer_history"][-1]["num_updates"] >= updates:
            return
        command = [
            *["fairseq-train", self.args.data, "--save-dir", self.path(name), "--user-dir", PLUGIN],
            *[*options(self.sizes), *settings],
            *["--dropout", 0, "--attention-dropout", 0, "--tokens-per-sample", TOKENS, "--max-positions", TOKENS],
            *["--batch-size", 32, "--num-workers", 0, "--clip-norm", 2, "--lr-scheduler", "polynomial_decay"],
            *["--lr", lr, "--warmup-updates", warmup, "--total-num-update", updates, "--max-update", updates],
            *["--save-interval-updates", every, "--no-epoch-checkpoints", "--seed", self.args.seed],
            *["--distributed-world-size", 1, "--log-format", "simple", "--log-interval", 100],
            *([] if torch.cuda.is_available() else ["--cpu"]),
        ]
        self.execute(name, command)

    def execute(self, name, command):
        """Runs a program and appends its output to a log."""
        path = self.path(name + ".log")
        print(f"{name}: the log is in {path}", flush=True)
        with open(path, "a", encoding="utf-8") as log:
            with program(list(map(str, command)), stdout=log, stderr=subprocess.STDOUT) as process:
                status = process.wait()
        if status:
            raise UsageError(f"{name} stopped with exit status {status}; the log is in {path}")

    def train_roberta(self):
        """fairseq's own model, task and criterion; the plugin lets a new PyTorch read its checkpoints to resume."""
        updates = self.args.updates
        settings = ["--task", "masked_lm", "--criterion", "masked_lm", "--arch", "roberta"]
        settings += ["--sample-break-mode", "none", "--optimizer", "adam", *ADAM[2:], "--keep-interval-updates", 1]
        self.train("roberta", updates, 1e-3, max(1, updates // 10), max(1, updates // 6), settings)

    def bring_over(self, name):
        """Imports RoBERTa, and prints by how much its features differ from fairseq's own model."""
        source, dest = self.path("roberta", "checkpoint_last.pt"), self.path(name + ".pt")
        if not os.path.exists(dest):
            # The encoder's bias is zero, which changes nothing; the decoder's is new, as all of it.
            new = dict(relative_position_local_init=True) if name == MAE_LM else {}
            import_roberta(source, self.args.data, dest, seed=self.args.seed, **new, **self.decoders[name], **BIAS)
        print(f"{name}: features differ from fairseq's by up to {self.difference(source, dest):.2g}", flush=True)

    @torch.no_grad()
    def difference(self, source, checkpoint):
        """The largest difference of the features of held-out text between fairseq's model and the imported one."""
        allow_fairseq_checkpoints()
        (theirs,), _, task = checkpoint_utils.load_model_ensemble_and_task([source], {"data": self.args.data})
        task.load_dataset("valid")
        ours, blocks = hub.from_pretrained(checkpoint, self.args.data), task.datasets["valid"]
        found = 0.0
        for i in range(0, len(blocks), max(1, len(blocks) // 50)):
            tokens = blocks[i]["net_input.src_tokens"][None]
            expected = theirs.eval()(tokens, features_only=True)[0]
            found = max(found, float((ours.extract_features(tokens) - expected).abs().max()))
        return found

    def go_on(self, name):
        """Continues the imported model."""
        settings = {
            **{"task": "mae_lm", "criterion": "mae_lm", "arch": "mae_lm_base"},
            **{"finetune-from-model": self.path(name + ".pt"), "sample-break-mode": "complete_doc"},
            **(MLM_MASKS if name == MLM else {}),
            **self.decoders[name],
            **BIAS,
        }
        updates = self.continued
        self.train(name, updates, 5e-4, max(1, updates // 10), updates // PARTS, [*options(settings), *ADAM])

    def checkpoints(self):
        """The imported models and the checkpoints of the continued runs: {"name, updates": path}."""
        found = {}
        for name in self.decoders:
            found[f"{name}, 0"] = self.path(name + ".pt")
            for update in (number * self.continued // PARTS for number in range(1, PARTS)):
                # fairseq writes none where an epoch ends.
                pattern = os.path.join(glob.escape(self.path(name)), f"checkpoint_*_{update}.pt")
                found.update({f"{name}, {update}": path for path in glob.glob(pattern)})
            found[f"{name}, {self.continued}"] = self.path(name, "checkpoint_last.pt")
        return found

    def measure(self):
        """Effective ranks of all checkpoints, in one table and figure."""
        if os.path.exists(self.path("ranks", "ranks.png")):
            return
        found = self.checkpoints()
        command = [sys.executable, "-m", "maelm_fairseq.effective_rank", "--data", self.args.data]
        command += ["--checkpoint", *found.values(), "--names", *found, "--dest", self.path("ranks")]
        self.execute("ranks", [*command, "--tokens", RANK_TOKENS])

    def report(self):
        """The loss and the figures of the last layer for each checkpoint, as a Markdown table."""
        layer, ranks, checkpoints = str(self.sizes["encoder-layers"]), {}, self.checkpoints()
        for row in self.table("ranks.csv"):
            if row["layer"] == layer:
                ranks.setdefault(row["checkpoint"], {})[row["family"]] = int(row["rank"])
        titles = ["model, updates", "loss, bits", "rank without [MASK]", "with", "gap", "rank of [MASK]"]
        lines = [f"| {' | '.join([*titles, 'its own dimensions'])} |", "|---" * 7 + "|"]
        for row in self.table("mask_dimensions.csv"):
            if row["layer"] == layer:
                name, rank = row["checkpoint"], ranks[row["checkpoint"]]
                without, with_masks = rank["without_mask"], rank["with_mask"]
                cells = [name, validation_loss(checkpoints[name]), without, with_masks]
                cells += [f"{with_masks - without:+d}", rank["mask_tokens"]]
                lines.append("| " + " | ".join(map(str, [*cells, row["mask_outside_real"]])) + " |")
        return "\n".join(lines)

    def table(self, name):
        """The rows of a table that the analysis wrote: list of dicts."""
        with open(self.path("ranks", name), encoding="utf-8") as stream:
            return list(csv.DictReader(stream))


def validation_loss(checkpoint):
    """The validation loss that a checkpoint has stored; - for none."""
    return load_checkpoint(checkpoint)["extra_state"].get("val_loss", "-")


def main():
    args = parse_args()
    terminate_children_on_sigterm()
    experiment = Experiment(args)
    os.makedirs(args.dest, exist_ok=True)
    experiment.train_roberta()
    for name in experiment.decoders:
        experiment.bring_over(name)
    for name in experiment.decoders:
        experiment.go_on(name)
    experiment.measure()
    print(experiment.report())


if __name__ == "__main__":
    run(main)
