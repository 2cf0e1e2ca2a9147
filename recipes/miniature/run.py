#!/usr/bin/env python3
"""The paper in miniature: MLM and MAE-LM of the same size, by the same code, on the same text in the same order.

It pretrains both for equal updates and several seeds, and variations of MAE-LM (masks in the encoder, decoder layers,
mask probability, no relative bias); measures effective ranks, before and after fine-tuning; evaluates frozen features
as recipes/evaluate.sh does; and writes tables, figures and a summary. Film reviews and labelled texts are downloaded
unless --data and --tasks are given.

If stopped, the same command resumes. A job is done again when its inputs, its options or the code's version changed;
pretraining never without asking. --dry-run shows what is done and what is left.
"""

import argparse
import glob
import math
import os
from dataclasses import replace
from functools import partial

import torch

from actions import Actions
from child_processes import terminate_children_on_sigterm
from devices import cores
from experiment import MINIATURE, TINY
from fairseq_options import RECIPES, option
from jobs import DONE, Job, Jobs
from maelm_fairseq import errors
from maelm_fairseq.errors import UsageError
from maelm_fairseq.files import read_json, save_json
from report import Report
from results import BASELINES, MADE_BY, Results


class Plan:
    """Makes the jobs.

    Args:
        actions: :class:`~actions.Actions`
        downloads_text, downloads_tasks, measures_speed: whether there are jobs for these
    """

    def __init__(self, actions, downloads_text, downloads_tasks, measures_speed):
        self.actions, self.experiment, self.path = actions, actions.experiment, actions.path
        self.data = ["data"] if downloads_text else []  # names of jobs that others need
        self.tasks = ["labelled texts"] if downloads_tasks else []
        self.speed = ["speed"] if measures_speed else []

    def jobs(self):
        """All jobs, what matters most first."""
        experiment = self.experiment
        compared, once, varied = experiment.compared(), experiment.compared_once(), experiment.varied()
        jobs = list(self.preparation())
        jobs += [self.pretraining(run) for run in compared]
        jobs += [self.ranks(run) for run in compared]
        jobs += [self.evaluation(run, baselines=run == compared[0]) for run in compared]
        jobs.append(self.encoding())
        for run in once:
            jobs += [self.finetuning(run), self.finetuned_ranks(run)]
        for run in varied:
            jobs += [self.pretraining(run), self.ranks(run), self.evaluation(run)]
        jobs += [self.part_evaluation(run, k) for run in once for k in range(1, experiment.parts)]
        return jobs

    def preparation(self):
        """The jobs before pretraining."""
        actions = self.actions
        if self.data:
            yield from actions.text_jobs()
        if self.tasks:
            yield actions.labelled_job(self.experiment.tasks)
        if self.speed:
            runs = self.experiment.compared_once()
            yield Job(
                "speed",
                (),
                actions.measure_speed,
                output=self.path("speed.json"),
                leaves=[self.path("speed.json")],
                inputs=actions.data_inputs,
                options=lambda: sum(map(actions.speed_options, runs), []),
                needs=self.data,
                after=self.tasks,
                logs=[actions.log(actions.speed_name(run)) for run in runs],
            )

    def pretraining(self, run):
        folder = self.path("pretraining", run.name)
        return Job(
            "pretrain",
            (run.name,),
            partial(self.actions.pretrain, run),
            output=os.path.join(folder, "record.json"),
            leaves=[folder],
            inputs=self.actions.data_inputs,
            options=lambda: run.options(self.actions.updates()),
            needs=self.data + self.speed,
            after=self.tasks,
            logs=[self.actions.log("pretrain-" + run.name)],
            precious=True,
        )

    def ranks(self, run):
        return self._ranks(run.name, partial(self.actions.model, run), needs="pretrain " + run.name)

    def finetuned_ranks(self, run):
        return self._ranks(run.finetuned_name, partial(self.actions.finetuned_model, run), "finetune " + run.name)

    def _ranks(self, name, checkpoint, needs):
        """The job that measures the ranks of a model; `checkpoint` gives its path when the job it needs is done."""
        folder = self.path("ranks", name)
        return Job(
            "ranks",
            (name,),
            lambda: self.actions.measure_ranks(name, {name: checkpoint()}, self.actions.rank_options()),
            output=os.path.join(folder, "ranks.csv"),
            leaves=[folder, folder + ".partial"],
            inputs=lambda: {"model.pt": checkpoint(), **self.actions.data_inputs()},
            options=self.actions.rank_options,
            needs=[needs],
        )

    def evaluation(self, run, baselines=False):
        """The job that evaluates a run's model; with `baselines` also what needs no pretraining."""
        return self._evaluation(run.name, partial(self.actions.model, run), run, baselines)

    def part_evaluation(self, run, number):
        return self._evaluation(run.part_name(number), partial(self.actions.part_model, run, number), run)

    def _evaluation(self, name, checkpoint, run, baselines=False):
        """The job that evaluates a model of a run; `checkpoint` gives its path when the run is done."""
        actions, names = self.actions, [name, *BASELINES] if baselines else [name]
        *_, last = actions.evaluation_records(names[-1]).values()
        return Job(
            "evaluate",
            (name,),
            lambda: actions.evaluate_model(name, checkpoint(), baselines),
            output=last,
            leaves=[self.path("evaluation", part, each) for part in ("records", "features") for each in names],
            inputs=lambda: actions.evaluation_inputs(checkpoint()),
            options=partial(actions.evaluation_options, baselines),
            needs=["pretrain " + run.name, *self.tasks],
        )

    def encoding(self):
        """The job that encodes the task to fine-tune on."""
        actions, task = self.actions, self.experiment.tasks[0]
        files = ["train.tsv", "dev.tsv"]
        return Job(
            "encode",
            (task,),
            actions.encode_task,
            output=actions.task_record(),
            leaves=[self.path("encoded")],
            inputs=lambda: {
                "dict.txt": os.path.join(actions.data, "dict.txt"),
                **{name: os.path.join(actions.labelled, task, name) for name in files},
            },
            options=actions.encoding_options,
            needs=[*self.data, *self.tasks],
        )

    def finetuning(self, run):
        """The job that fine-tunes a run's model on the first task."""
        return Job(
            "finetune",
            (run.name,),
            partial(self.actions.finetune, run),
            output=self.actions.finetuning_results(run),
            leaves=[self.path("finetuning", run.name)],
            inputs=lambda: {"model.pt": self.actions.model(run), "task.json": self.actions.task_record()},
            options=self.experiment.finetune_options,
            needs=["pretrain " + run.name, "encode " + self.experiment.tasks[0]],
        )


def tasks_in(folder):
    """The names of the labelled texts in a folder."""
    names = sorted(os.path.basename(os.path.dirname(file)) for file in glob.glob(f"{folder}/*/train.tsv"))
    if not names:
        raise UsageError(f"--tasks {folder}: no task in it, expected TASK/train.tsv as for recipes/evaluate.sh")
    return tuple(names)


def experiment_of(args):
    """The :class:`~experiment.Experiment` that the options ask for."""
    experiment = replace(TINY if args.tiny else MINIATURE, seeds=args.seeds)
    if args.updates and args.updates < experiment.parts:
        raise UsageError(f"--updates {args.updates} must be at least {experiment.parts}")
    return replace(experiment, tasks=tasks_in(args.tasks)) if args.tasks else experiment


def check_plan(args):
    """Refuses a folder that was begun with different options."""
    names = ["minutes_per_model", "updates", "seeds", "tiny", "data", "tasks"]
    plan, path = {name: getattr(args, name) for name in names}, os.path.join(args.dest, "plan.json")
    if os.path.exists(path):
        found = read_json(path, MADE_BY, dict)
        different = [name for name in plan if found.get(name) != plan[name]]
        if different:
            options = ", ".join(f"{option(name)} {found.get(name)}" for name in different)
            raise UsageError(f"{path}: begun with other options ({options}); repeat them, or choose another --dest")
    elif not args.dry_run:
        os.makedirs(args.dest, exist_ok=True)
        save_json(plan, path)


def command_of(args):
    """The command, for the summary."""
    length = f"--updates {args.updates}" if args.updates else f"--minutes-per-model {args.minutes_per_model:g}"
    return f"recipes/reproduce.sh --dest miniature {length} --seeds {args.seeds}" + " --tiny" * args.tiny


def write_report(args, experiment, actions, done, left):
    """Writes the results of the jobs that are done."""
    results = actions.path("results")
    report = Report(experiment, Results(experiment, actions, done), left)
    report.write(results, command_of(args), args.jobs)
    path = args.results or (None if args.tiny else os.path.join(RECIPES, "RESULTS.md"))
    if path:
        report.put_into(path, results, command_of(args), args.jobs)
        print(f"summary: in {path}")


def parse(arguments=None):
    parser = errors.Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--dest", required=True, metavar="DIR", help="where everything goes; the outcome is in its results/")
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--minutes-per-model", type=float, metavar="M", help="pretrain as long as M minutes take here")
    length.add_argument("--updates", type=int, metavar="N", help="pretrain for N updates instead")
    add("--seeds", type=int, default=2, metavar="N", help="of pretraining, for the comparison (default: 2)")
    jobs = torch.cuda.device_count() or cores()
    add("--jobs", type=int, default=jobs, metavar="N", help=f"number that run at the same time (default here: {jobs})")
    add("--data", metavar="DIR", help="binarized text from data-prep/prepare.sh, instead of the film reviews")
    add(
        "--tasks",
        metavar="DIR",
        help="labelled texts as for --labelled of recipes/evaluate.sh, instead of those downloaded",
    )
    add("--results", metavar="FILE", help="the summary's section goes there too (default: recipes/RESULTS.md)")
    add("--tiny", action="store_true", help="everything as small as possible, to try the program itself")
    add("--report", action="store_true", help="write the results of what is done so far, and stop")
    add("--dry-run", action="store_true", help="show what is done and what is left, and stop")
    args = parser.parse_args(arguments)
    for name in ["minutes_per_model", "updates", "seeds", "jobs"]:
        value = getattr(args, name)
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise UsageError(f"{option(name)} {value} must be over 0")
    return args


def reproduce(arguments=None):
    """Does what the options ask for; see :func:`parse`.

    Args:
        arguments: list of strings; None for the command line's
    """
    args = parse(arguments)
    experiment = experiment_of(args)
    check_plan(args)
    actions = Actions(experiment, args.dest, args.data, args.tasks, args.updates, args.minutes_per_model, args.jobs)
    plan = Plan(actions, not args.data, not args.tasks, not args.updates)
    jobs = Jobs(plan.jobs(), actions.path("records"))
    states = jobs.states()
    jobs.show(states)
    done = [job for job in jobs.jobs if states[job.name].status == DONE]
    if args.report:
        return write_report(args, experiment, actions, done, len(jobs.jobs) - len(done))
    jobs.refuse_to_lose(states)
    if not args.dry_run:
        jobs.run(states, args.jobs)
        write_report(args, experiment, actions, jobs.jobs, left=0)


def main():
    terminate_children_on_sigterm()
    reproduce()


if __name__ == "__main__":
    errors.run(main)
