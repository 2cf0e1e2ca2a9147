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
import sys

import torch

from child_processes import terminate_children_on_sigterm
from fairseq_options import ADAM, PLUGIN, option
from maelm_fairseq.engine.checkpoint_files import count_updates
from maelm_fairseq.engine.errors import Parser, run
from maelm_fairseq.engine.reading import load_checkpoint
from maelm_fairseq.huggingface.import_roberta import import_roberta
from programs import execute

SIZES = dict(encoder_layers=4, encoder_embed_dim=256, encoder_ffn_embed_dim=1024, encoder_attention_heads=4)
TINY_SIZES = dict(encoder_layers=2, encoder_embed_dim=16, encoder_ffn_embed_dim=32, encoder_attention_heads=2)
TOKENS = 64  # of a sequence
PARTS = 6  # checkpoints of each continued run
RANK_TOKENS = 80_000
MLM, MAE_LM, SHARED = "mlm", "mae_lm", "shared"
MLM_MASKS = dict(encoder_mask_fraction=1, leave_unmasked_prob=0.1, random_token_prob=0.1)
BIAS = dict(relative_position_num_buckets=32, relative_position_buckets="t5")  # of T5, so that MPNet's classes fit


def parse_args():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="DIR", help="prepared text, such as the demo's")
    parser.add_argument("--dest", required=True, metavar="DIR", help="folder for everything")
    parser.add_argument("--updates", type=int, default=3000, metavar="N", help="of RoBERTa (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of all runs (default: %(default)s)")
    parser.add_argument("--tiny", action="store_true", help="a model of 2 layers, width 16, to try the program")
    return parser.parse_args()


def options(values):
    """{attribute: value} -> command-line options; True stands for an option without a value."""
    words = [[option(name), value] for name, value in values.items()]
    return [word for pair in words for word in pair if word is not True]


class Experiment:
    """The runs, in a folder of their own."""

    def __init__(self, args):
        self.args = args
        self.sizes = TINY_SIZES if args.tiny else SIZES
        self.decoders = {
            MLM: dict(decoder_layers=0),
            MAE_LM: dict(decoder_layers=2, decoder_relative_bias=True),
            SHARED: dict(decoder_layers=self.sizes["encoder_layers"], share_decoder_layers=True),
        }
        self.continued = max(PARTS, args.updates // 4 // PARTS * PARTS)

    def path(self, *parts):
        return os.path.join(self.args.dest, *parts)

    def train(self, name, updates, lr, every, more):
        """Trains to the end, from the last checkpoint if there is one; skips what is done."""
        last = self.path(name, "checkpoint_last.pt")
        if os.path.exists(last) and count_updates(load_checkpoint(last)) >= updates:
            return
        command = [
            *["fairseq-train", self.args.data, "--save-dir", self.path(name), "--user-dir", PLUGIN],
            *[*options(self.sizes), *more],
            *["--dropout", 0, "--attention-dropout", 0, "--tokens-per-sample", TOKENS, "--max-positions", TOKENS],
            *["--batch-size", 32, "--num-workers", 0, "--clip-norm", 2, "--lr-scheduler", "polynomial_decay"],
            *["--lr", lr, "--warmup-updates", max(1, updates // 10)],
            *["--total-num-update", updates, "--max-update", updates],
            *["--save-interval-updates", every, "--no-epoch-checkpoints", "--seed", self.args.seed],
            *["--distributed-world-size", 1, "--log-format", "simple", "--log-interval", 100],
            *["--cpu"] * (not torch.cuda.is_available()),
        ]
        execute(command, self.path(name + ".log"))

    def train_roberta(self):
        """fairseq's own model, task and criterion; the plugin lets a new PyTorch read its checkpoints to resume."""
        updates = self.args.updates
        more = ["--task", "masked_lm", "--criterion", "masked_lm", "--arch", "roberta", "--sample-break-mode", "none"]
        more += ["--optimizer", "adam", *ADAM[2:], "--keep-interval-updates", 1]
        self.train("roberta", updates, 1e-3, max(1, updates // 6), more)

    def bring_over(self, name):
        """Imports RoBERTa."""
        # The encoder's bias is zero, which changes nothing; the decoder's is new, as all of it.
        new = dict(relative_position_local_init=True) if name == MAE_LM else {}
        source, dest = self.path("roberta", "checkpoint_last.pt"), self.path(name + ".pt")
        if not os.path.exists(dest):
            import_roberta(source, self.args.data, dest, seed=self.args.seed, **new, **self.decoders[name], **BIAS)

    def go_on(self, name):
        """Continues the imported model."""
        more = dict(task="mae_lm", criterion="mae_lm", arch="mae_lm_base", sample_break_mode="complete_doc")
        more.update(finetune_from_model=self.path(name + ".pt"), **self.decoders[name], **BIAS)
        more.update(MLM_MASKS if name == MLM else {})
        self.train(name, self.continued, 5e-4, self.continued // PARTS, [*options(more), *ADAM])

    def checkpoints(self):
        """The imported models and the checkpoints of the continued runs: {"name, updates": path}."""
        found = {}
        for name in self.decoders:
            paths = glob.glob(os.path.join(glob.escape(self.path(name)), "checkpoint_*_*.pt"))
            by_update = {int(path.rpartition("_")[2][: -len(".pt")]): path for path in paths}
            by_update.update({0: self.path(name + ".pt"), self.continued: self.path(name, "checkpoint_last.pt")})
            found.update({f"{name}, {update}": by_update[update] for update in sorted(by_update)})
        return found

    def measure(self):
        """Effective ranks of all checkpoints, in one table and figure."""
        if os.path.exists(self.path("ranks", "ranks.png")):
            return
        found = self.checkpoints()
        command = [sys.executable, "-m", "maelm_fairseq.effective_rank", "--data", self.args.data]
        command += ["--checkpoint", *found.values(), "--names", *found, "--dest", self.path("ranks")]
        execute([*command, "--tokens", RANK_TOKENS], self.path("ranks.log"))

    def report(self):
        """The loss and the figures of the last layer for each checkpoint, as a Markdown table."""
        ranks, checkpoints = {}, self.checkpoints()
        for row in self.last_layer("ranks.csv"):
            ranks.setdefault(row["checkpoint"], {})[row["family"]] = int(row["rank"])
        titles = ["model, updates", "loss, bits", "rank without [MASK]", "with", "gap", "rank of [MASK]"]
        lines = [f"| {' | '.join([*titles, 'its own dimensions'])} |", "|---" * 7 + "|"]
        for row in self.last_layer("mask_dimensions.csv"):
            name, rank = row["checkpoint"], ranks[row["checkpoint"]]
            loss = load_checkpoint(checkpoints[name])["extra_state"].get("val_loss", "-")  # imported models have none
            without, with_masks = rank["without_mask"], rank["with_mask"]
            cells = [name, loss, without, with_masks, f"{with_masks - without:+d}", rank["mask_tokens"]]
            lines.append("| " + " | ".join(map(str, [*cells, row["mask_outside_real"]])) + " |")
        return "\n".join(lines)

    def last_layer(self, name):
        """The rows of a table of the analysis that are of the last layer: list of dicts."""
        with open(self.path("ranks", name), encoding="utf-8") as stream:
            return [row for row in csv.DictReader(stream) if row["layer"] == str(self.sizes["encoder_layers"])]


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
