#!/usr/bin/env python3
"""The paper in miniature: MLM and MAE-LM of the same size, by the same code, on the same text in the same order.

It pretrains both for equal updates and several seeds, and MAE-LM's variations (masks kept in the encoder, decoder
layers, mask probability, no relative bias); measures effective ranks before and after fine-tuning; fine-tunes; and
writes tables, figures and a summary. Film reviews and labelled texts are fetched, unless --data and --tasks say
otherwise.

The same command goes on where it was stopped. --dry-run shows what is done and what is left.
"""

import concurrent.futures
import glob
import math
import os
import shutil
import subprocess
import sys
import time
from collections import namedtuple

import torch

import finetune
import report as reproduce_report
from child_processes import program, stop_all
from finetune import PLUGIN, RECIPES, UsageError
from maelm_fairseq.files import save_json
from report import MASK_PROB, MODELS

ROOT = os.path.dirname(RECIPES)
DATA_PREP = os.path.join(ROOT, "data-prep")
TASKS = {  # of those that data-prep/substitute_datasets.py fetches: its options of recipes/finetune_glue.sh
    "trec": ["--epochs", "3"],
    "rotten_tomatoes": ["--epochs", "2"],
    "tweets": ["--epochs", "2"],
}
OTHER_TASK = ["--epochs", "3"]
FINETUNING = ["--batch-size", "32", "--lr", "5e-4", "--warmup-ratio", "0.1"]

Size = namedtuple("Size", "model tokens batch fractions decoder_layers mask_probs rank_tokens")
SIZES = {
    "miniature": Size(
        ["--encoder-layers", 4, "--encoder-embed-dim", 256, "--encoder-ffn-embed-dim", 1024]
        + ["--encoder-attention-heads", 4],
        tokens=64,
        batch=32,
        fractions=[0.25, 0.5, 0.75, 1],
        decoder_layers=[1, 4],
        mask_probs=[0.15, 0.5],
        rank_tokens=100_000,
    ),
    "tiny": Size(
        ["--encoder-layers", 2, "--encoder-embed-dim", 32, "--encoder-ffn-embed-dim", 64]
        + ["--encoder-attention-heads", 2],
        tokens=32,
        batch=8,
        fractions=[0.5],
        decoder_layers=[1],
        mask_probs=[0.5],
        rank_tokens=2_000,
    ),
}
MEASURED_UPDATES = 60  # of a run that measures the speed
PARTS = 4  # checkpoints of a run, for scores against time


class Job(namedtuple("Job", "name done needs action")):
    """A piece of work: its name, the file that says it is done, names of jobs before it, a function that does it."""

    def is_done(self):
        return os.path.exists(self.done)


class Reproduction:
    """All jobs of one folder.

    Args:
        args: the options of :func:`parser`
    """

    def __init__(self, args):
        self.args, self.dest = args, os.path.abspath(args.dest)
        self.size = SIZES["tiny" if args.tiny else "miniature"]
        self.data = os.path.abspath(args.data) if args.data else self.path("data")
        self.tasks = os.path.abspath(args.tasks) if args.tasks else self.path("tasks")

    def path(self, *parts):
        return os.path.join(self.dest, *parts)

    def check_plan(self):
        """Refuses a folder of another reproduction."""
        plan = {
            name: getattr(self.args, name)
            for name in ["minutes_per_model", "updates", "seeds", "finetune_seeds", "tiny", "data", "tasks"]
        }
        path = self.path("plan.json")
        if os.path.exists(path):
            found = finetune.read_record(path, "recipes/reproduce.sh")
            different = [name for name in plan if found.get(name) != plan[name]]
            if different:
                options = ", ".join(f"{finetune.option(name)} {found.get(name)}" for name in different)
                raise UsageError(f"{path}: begun with other options ({options}); repeat them, or give another --dest")
        elif not self.args.dry_run:
            os.makedirs(self.dest, exist_ok=True)
            save_json(plan, path)

    # What is pretrained

    def runs(self):
        """{name: options of fairseq-train}, the comparison first."""
        size = self.size
        runs = {}
        for seed in range(1, self.args.seeds + 1):
            for model, options in MODELS.items():
                runs[f"{model}-{seed}"] = [*options, "--seed", seed, "--effective-rank-tokens", size.rank_tokens // 5]
        mae_lm = [*MODELS["mae_lm"], "--seed", 1]
        for fraction in size.fractions:
            runs[f"fraction-{fraction:g}"] = [*mae_lm, "--encoder-mask-fraction", fraction]
        for layers in size.decoder_layers:
            runs[f"decoder-{layers}"] = [*mae_lm, "--decoder-layers", layers]
        for prob in size.mask_probs:
            runs[f"mask-prob-{prob:g}"] = [*mae_lm, "--mask-prob", prob]
        runs["no-relative-bias"] = [*mae_lm, "--relative-position-num-buckets", 0]
        return runs

    def compared(self):
        """Names of the runs of the comparison."""
        return list(self.runs())[: len(MODELS) * self.args.seeds]

    def variations(self):
        """Names of the other runs."""
        return list(self.runs())[len(MODELS) * self.args.seeds :]

    def command(self, name, options, updates):
        """The fairseq-train command of a run."""
        size = self.size
        command = ["fairseq-train", self.data, "--user-dir", PLUGIN, "--save-dir", self.path("pretraining", name)]
        command += ["--task", "mae_lm", "--criterion", "mae_lm", "--arch", "mae_lm_tiny", *size.model]
        command += ["--dropout", 0, "--attention-dropout", 0]
        command += ["--max-positions", size.tokens, "--tokens-per-sample", size.tokens, "--mask-prob", MASK_PROB]
        command += ["--batch-size", size.batch, "--batch-size-valid", 64, "--num-workers", 0, "--bf16-autocast"]
        command += [*finetune.ADAM, "--clip-norm", 2.0, "--lr-scheduler", "polynomial_decay", "--lr", 1e-3]
        command += ["--warmup-updates", max(1, updates // 10), "--total-num-update", updates, "--max-update", updates]
        command += ["--distributed-world-size", 1, "--log-format", "json"]
        command += ["--log-interval", max(1, min(50, updates // PARTS))]
        command += ["--save-interval-updates", updates // PARTS, "--no-epoch-checkpoints", *options]
        if "--relative-position-num-buckets" not in options:
            command += ["--decoder-relative-bias", "--relative-position-local-init"]
        return list(map(str, command + ([] if torch.cuda.is_available() else ["--cpu"])))

    def updates(self):
        """How many updates every run has; known when the speed is."""
        if self.args.updates:
            return self.args.updates
        return finetune.read_record(self.path("speed.json"), "recipes/reproduce.sh")["updates"]

    def measure_speed(self):
        """Trains the comparison's two models for a little, side by side as later, to know what the minutes allow."""
        names = {f"speed-{model}": options for model, options in MODELS.items()}
        commands = [
            (name, self.command(name, [*options, "--no-save", "--disable-validation"], MEASURED_UPDATES))
            for name, options in names.items()
        ]
        with concurrent.futures.ThreadPoolExecutor(min(self.args.jobs, len(commands))) as pool:
            list(pool.map(lambda each: self.execute(*each), commands))
        rates = [reproduce_report.training_log(self.log(name))[-1]["ups"] for name in names]
        updates = max(PARTS, round(self.args.minutes_per_model * 60 * min(map(float, rates)) / PARTS) * PARTS)
        save_json(dict(updates_a_second=rates, updates=updates), self.path("speed.json"))

    def pretrain(self, name, options):
        """Trains a run; keeps its checkpoints without the optimizer's state, and its loss and times."""
        folder, updates = self.path("pretraining", name), self.updates()
        last, model = os.path.join(folder, "checkpoint_last.pt"), os.path.join(folder, "model.pt")
        if not os.path.exists(model):
            if finetune.updates_of(last) < updates:  # fairseq would train a finished run for one more
                self.execute("pretrain-" + name, self.command(name, options, updates))
            if finetune.updates_of(last) < updates:
                log = self.log("pretrain-" + name)
                raise UsageError(
                    f"{folder}: {finetune.updates_of(last)} of {updates} updates; the whole log is in {log}"
                )
            for file in glob.glob(os.path.join(folder, "checkpoint_*_*.pt")):
                update = file[: -len(".pt")].rpartition("_")[2]
                finetune.keep_weights(file, os.path.join(folder, f"model-{update}.pt"))
            finetune.keep_model(folder, model)
        record = reproduce_report.pretraining_record(self.log("pretrain-" + name))
        save_json(record, os.path.join(folder, "record.json"))

    # What is measured

    def measure_ranks(self, name, checkpoint):
        command = [sys.executable, "-m", "maelm_fairseq.effective_rank", "--checkpoint", checkpoint, "--names", name]
        command += ["--data", self.data, "--dest", self.path("ranks", name + ".partial")]
        command += ["--tokens", str(self.size.rank_tokens)]
        self.execute("ranks-" + name, command)
        shutil.rmtree(self.path("ranks", name), ignore_errors=True)
        os.rename(self.path("ranks", name + ".partial"), self.path("ranks", name))

    def finetune(self, name, checkpoint, task, seeds):
        """Fine-tunes on a task for several seeds; keeps the scores."""
        folder = self.path("finetuning", name)
        command = [sys.executable, os.path.join(RECIPES, "finetune_glue.py"), "--task", task, "--data", self.tasks]
        command += ["--checkpoint", checkpoint, "--save-dir", folder, "--seeds", str(seeds), *FINETUNING]
        command += ["--from-scratch"] * (name == "scratch")
        self.execute(f"finetune-{name}-{task}", command + TASKS.get(task, OTHER_TASK))
        scores = [finetune.read_record(file, "it") for file in sorted(glob.glob(f"{folder}/{task}/*/*/*/metrics.json"))]
        save_json(scores, os.path.join(folder, task + ".json"))
        for model in glob.glob(f"{folder}/{task}/*/*/seed*/model.pt"):
            if not model.endswith("seed1/model.pt"):
                os.remove(model)

    # The jobs

    def jobs(self):
        """All that is to be done, what matters most first; what needs task names only when they are there."""
        args, jobs = self.args, []
        if not args.data:
            jobs.append(Job("text", self.path("text", "train.txt"), [], self.fetch_text))
            jobs.append(Job("data", self.path("data", "train.json"), ["text"], self.prepare_text))
        if not args.tasks:
            jobs.append(Job("labelled texts", self.path("tasks", "done"), ["data"], self.fetch_tasks))
        ready = [job.name for job in jobs]
        if not args.updates:
            jobs.append(Job("speed", self.path("speed.json"), ready[:], self.measure_speed))
            ready.append("speed")

        def pretrain(name):
            options = self.runs()[name]
            done = self.path("pretraining", name, "record.json")
            return Job("pretrain " + name, done, ready, lambda: self.pretrain(name, options))

        def ranks(name, checkpoint, needs):
            done = self.path("ranks", name, "ranks.csv")
            return Job("ranks " + name, done, [needs], lambda: self.measure_ranks(name, checkpoint()))

        def finetuning(name, checkpoint, task, needs, seeds=args.finetune_seeds):
            done = self.path("finetuning", name, task + ".json")
            return Job(f"finetune {name} {task}", done, [needs], lambda: self.finetune(name, checkpoint(), task, seeds))

        def model(name):
            return lambda: self.path("pretraining", name, "model.pt")

        compared, variations, names = self.compared(), self.variations(), self.task_names()
        begun = [name for name in compared if name.endswith("-1")]
        jobs += [pretrain(name) for name in compared]
        jobs += [ranks(name, model(name), "pretrain " + name) for name in compared]
        jobs += [finetuning(name, model(name), names[0], "pretrain " + name) for name in compared]
        for name in begun:
            jobs.append(ranks(name + "-finetuned", self.finetuned(name), f"finetune {name} {names[0]}"))
        for name in variations:
            jobs += [pretrain(name), ranks(name, model(name), "pretrain " + name)]
        for name in begun:
            for part in self.parts(name):
                jobs.append(finetuning(part, self.part(name, part), names[0], "pretrain " + name, self.fewer_seeds()))
        jobs += [finetuning(n, model(n), names[0], "pretrain " + n, self.fewer_seeds()) for n in variations]
        scratch = [finetuning("scratch", model(compared[0]), task, "pretrain " + compared[0]) for task in names]
        jobs.append(scratch[0])
        for task, from_scratch in zip(names[1:], scratch[1:]):
            jobs += [finetuning(name, model(name), task, "pretrain " + name) for name in compared]
            jobs.append(from_scratch)
        return jobs

    def fewer_seeds(self):
        """Seeds of fine-tuning for what is not the comparison itself."""
        return max(1, self.args.finetune_seeds // 2)

    def task_names(self):
        if not self.args.tasks:
            return list(TASKS)
        names = sorted(os.path.basename(os.path.dirname(file)) for file in glob.glob(f"{self.tasks}/*/task.json"))
        if not names:
            raise UsageError(f"--tasks {self.tasks}: no task in it, expected what data-prep/glue.sh writes")
        return names

    def finetuned(self, name):
        """Where the fine-tuned model of a run's first task will be."""
        task = self.task_names()[0]
        return lambda: glob.glob(self.path("finetuning", name, task, "*", "*", "seed1", "model.pt"))[0]

    def parts(self, name):
        """{name: updates} of what a run was before its end; updates are None as long as the speed is not known."""
        known = self.args.updates or os.path.exists(self.path("speed.json"))
        return {f"{name}-part{k}": self.updates() // PARTS * k if known else None for k in range(1, PARTS)}

    def part(self, name, part):
        """Where the model of a part of a run will be."""
        return lambda: self.path("pretraining", name, f"model-{self.parts(name)[part]}.pt")

    def fetch_text(self):
        self.execute("text", [sys.executable, os.path.join(DATA_PREP, "movie_reviews.py"), "--dest", self.path("text")])

    def prepare_text(self):
        command = [os.path.join(DATA_PREP, "prepare.sh"), "--dest", self.data, "--vocab-size", "8000", "--lowercase"]
        for split in ["train", "valid"]:
            command += ["--" + split, self.path("text", split + ".txt")]
        self.execute("data", command)

    def fetch_tasks(self):
        """The labelled texts, with the vocabulary of the data."""
        raw, glue = self.path("labelled"), os.path.join(DATA_PREP, "glue.sh")
        command = [sys.executable, os.path.join(DATA_PREP, "substitute_datasets.py"), "--dest", raw, "--data", *TASKS]
        self.execute("labelled", command)
        shared = ["--vocabulary", self.data, "--dest", self.tasks, "--max-tokens", str(self.size.tokens)]
        classes = [task for task in TASKS if task != "tweets"]
        self.execute("tasks", [glue, "--input", raw, "--task", *classes, *shared])
        self.execute("tasks", [glue, "--input", raw, "--task", "tweets", "--regression", *shared])
        save_json(list(TASKS), self.path("tasks", "done"))

    # Running them

    def log(self, name):
        return self.path("logs", name + ".log")

    def execute(self, name, command):
        """Runs a program, its output appended to a log."""
        paths = [os.path.dirname(sys.executable), os.environ["PATH"]]
        threads = "1" if self.args.jobs > 1 else os.environ.get("OMP_NUM_THREADS", "")
        environment = dict(os.environ, PATH=os.pathsep.join(paths), PYTHONPATH=ROOT, PYTHON=sys.executable)
        environment["OMP_WAIT_POLICY"] = "passive"
        if threads:
            environment["OMP_NUM_THREADS"] = threads
        os.makedirs(self.path("logs"), exist_ok=True)
        with open(self.log(name), "a", encoding="utf-8") as log:
            with program(command, stdout=log, stderr=subprocess.STDOUT, env=environment) as process:
                status = process.wait()
        if status:
            with open(self.log(name), encoding="utf-8", errors="replace") as log:
                last = (log.read().strip().splitlines() or [""])[-1]
            raise UsageError(f"{name} stopped with exit status {status}: {last}; the whole log is in {self.log(name)}")

    def run(self):
        """Does what is left, several jobs at a time."""
        jobs = self.jobs()
        left = [job for job in jobs if not job.is_done()]
        show_state(jobs, left)
        if self.args.dry_run:
            return
        if self.args.report:
            return self.report(len(left))
        running, begun = {}, {}
        with concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            try:
                while left or running:
                    waiting_for = {job.name for job in [*left, *running.values()]}
                    free = [job for job in left if not waiting_for & set(job.needs)]
                    for job in free[: self.args.jobs - len(running)]:
                        left.remove(job)
                        running[pool.submit(job.action)], begun[job.name] = job, time.time()
                    finished, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                    for future in finished:
                        job = running.pop(future)
                        future.result()
                        seconds = round(time.time() - begun[job.name])
                        count = len(jobs) - len(left) - len(running)
                        print(f"[{count} of {len(jobs)}] {job.name}  ({seconds // 60}:{seconds % 60:02d})", flush=True)
            except BaseException:
                stop_all()
                raise
        self.report()

    def report(self, left=0):
        """Writes the results; `left`: how many jobs are not done."""
        report = reproduce_report.Report(self, left)
        report.write(self.path("results"))
        results = self.args.results or (None if self.args.tiny else os.path.join(RECIPES, "RESULTS.md"))
        if results:
            report.put_into(results)
            print(f"summary: in {results}")


def show_state(jobs, left):
    kinds = {}
    for job in jobs:
        done, names = kinds.setdefault(job.name.split()[0], ([], []))
        (names if job in left else done).append(job.name.partition(" ")[2] or job.name)
    print(f"{len(jobs) - len(left)} of {len(jobs)} jobs are done")
    for kind, (done, names) in kinds.items():
        shown = ", ".join(names) or "nothing"
        print(f"  {kind}: {len(done)} done; left: {shown}")


def parser():
    made = finetune.Parser(description=__doc__, formatter_class=finetune.argparse.RawDescriptionHelpFormatter)
    made.add_argument("--dest", required=True, metavar="DIR", help="where everything goes; results/ has the outcome")
    length = made.add_mutually_exclusive_group(required=True)
    length.add_argument("--minutes-per-model", type=float, metavar="M", help="of pretraining, as the speed here allows")
    length.add_argument("--updates", type=int, metavar="N", help="of pretraining, instead")
    made.add_argument(
        "--seeds", type=int, default=2, metavar="N", help="of pretraining, for the comparison (default: 2)"
    )
    made.add_argument("--finetune-seeds", type=int, default=2, metavar="N", help="of each fine-tuning (default: 2)")
    cores = 1 if torch.cuda.is_available() else len(os.sched_getaffinity(0))
    made.add_argument("--jobs", type=int, default=cores, metavar="N", help=f"at a time (default here: {cores})")
    made.add_argument("--data", metavar="DIR", help="other binarized text, of data-prep/prepare.sh")
    made.add_argument("--tasks", metavar="DIR", help="other labelled texts, of data-prep/glue.sh")
    made.add_argument(
        "--results", metavar="FILE", help="the summary's section goes there too (default: RESULTS.md here)"
    )
    made.add_argument("--tiny", action="store_true", help="everything as small as can be, to try the program itself")
    made.add_argument("--report", action="store_true", help="write the results of what is done so far, and stop")
    made.add_argument("--dry-run", action="store_true", help="show what is done and what is left, and stop")
    return made


def main():
    args = parser().parse_args()
    for name in ["minutes_per_model", "updates", "seeds", "finetune_seeds", "jobs"]:
        value = getattr(args, name)
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise UsageError(f"{finetune.option(name)} {value} must be over 0")
    if args.updates and args.updates < PARTS:
        raise UsageError(f"--updates {args.updates} must be at least {PARTS}")
    reproduction = Reproduction(args)
    reproduction.check_plan()
    reproduction.run()


if __name__ == "__main__":
    main()
