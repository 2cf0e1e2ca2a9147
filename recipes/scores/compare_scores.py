#!/usr/bin/env python3
"""Pretrains an MLM, MAE-LM and encoders with shared decoder layers, for the comparison of their scores.

comparison.py says what is run and what is tested. Film reviews and labelled texts are downloaded unless --data and
--tasks are given. Short pilots choose the learning rate of each model. The losses, CPU time and arithmetic of each run,
its effective ranks, and its scores by recipes/evaluate.sh go into the folder --records as they come: what is there is
not done again, and the report is made from there alone.

All of it takes days on two cores. SIGTERM ends it with checkpoints and status 75, and the same command goes on; it
does so after any other end, too. --dry-run shows what is done and what is left.
"""

import argparse
import os
from functools import partial

import torch

from child_processes import terminate_children_on_sigterm
from comparison import PLANS, SCORES, TINY
from comparison_folder import ComparisonFolder
from comparison_report import ComparisonReport
from devices import cores
from fairseq_options import RECIPES
from jobs import Job, Jobs
from maelm_fairseq import errors

STOPPED = 75  # as fairseq-train with this plugin
RECORDS = os.path.join(RECIPES, "scores", "records")


class Plan:
    """Makes the jobs, but those of which the records are kept.

    Args:
        folder: :class:`~comparison_folder.ComparisonFolder`
        downloads_text, downloads_tasks: whether there are jobs for these
    """

    def __init__(self, folder, downloads_text, downloads_tasks):
        self.folder, self.comparison, self.path = folder, folder.comparison, folder.path
        self.data = ["data"] if downloads_text else []  # names of jobs that others need
        self.tasks = ["labelled texts"] if downloads_tasks else []

    def jobs(self):
        """All jobs, what matters most first."""
        jobs = list(self.preparation())
        for model in self.comparison.pilots:
            if not os.path.exists(self.folder.chosen(model)):
                jobs += [self.training("pilot", run) for run in self.comparison.pilot_runs(model)]
                jobs.append(self.choice(model))
        tuned, made = self.comparison.fine_tuned_runs(), {job.name for job in jobs}
        for run in self.comparison.runs():
            parts = {"ranks": self.ranks, "scores": self.evaluation}
            left = [make(run) for part, make in parts.items() if not self.kept(run, part, made)]
            again = run in tuned and not self.kept(run, "fine-tuning", made)
            jobs += [self.training("pretrain", run, made)] * bool(left or again) + left
        return jobs + [self.finetuning(run) for run in tuned if not self.kept(run, "fine-tuning", made)]

    def kept(self, run, part, made):
        """Whether the records have a part of a run; those of pilots that are still to come have nothing."""
        waits = run.pilots and f"choice {run.pilots.name}" in made
        return not waits and self.folder.kept.has(run, part, self.folder.options(run))

    def preparation(self):
        """The jobs before pretraining."""
        folder = self.folder
        if self.data:
            yield from folder.text_jobs()
        if self.tasks:
            yield folder.labelled_job(self.comparison.tasks)

    def training(self, kind, run, made=()):
        choice = [f"choice {run.pilots.name}"] if run.pilots else []
        return Job(
            kind,
            (run.name,),
            partial(self.folder.pretrain if kind == "pretrain" else self.folder.pilot, run),
            output=self.folder.record(run.name),
            leaves=[self.path("pretraining", run.name)],
            inputs=self.folder.data_inputs,
            options=partial(self.folder.options, run),
            needs=[*self.data, *(name for name in choice if name in made)],
            logs=[self.folder.training_log(run.name)],
            precious=True,
        )

    def choice(self, model):
        """The job that compares the pilots of a model."""
        pilots, chosen = self.comparison.pilot_runs(model), self.folder.chosen(model)
        return Job(
            "choice",
            (model.name,),
            partial(self.folder.choose, model),
            output=chosen,
            leaves=[chosen],
            inputs=lambda: {run.name: self.folder.record(run.name) for run in pilots},
            needs=["pilot " + run.name for run in pilots],
        )

    def ranks(self, run):
        """The job that measures the ranks of the model of a run."""
        folder = self.path("ranks", run.name)
        return Job(
            "ranks",
            (run.name,),
            partial(self.folder.ranks, run),
            output=os.path.join(folder, "ranks.csv"),
            leaves=[folder, folder + ".partial"],
            inputs=lambda: {"model.pt": self.folder.model(run), **self.folder.data_inputs()},
            options=self.folder.rank_options,
            needs=["pretrain " + run.name],
        )

    def evaluation(self, run):
        """The job that evaluates the model of a run."""
        *_, last = self.folder.evaluation_records(run).values()
        return Job(
            "evaluate",
            (run.name,),
            partial(self.folder.evaluate_run, run),
            output=last,
            leaves=[self.path("evaluation", part, run.name) for part in ("records", "features")],
            inputs=partial(self.folder.evaluation_inputs, self.folder.model(run)),
            options=self.folder.evaluation_options,
            needs=["pretrain " + run.name, *self.tasks],
        )

    def finetuning(self, run):
        """The job that fine-tunes the model of a run, after its evaluation."""
        records = list(self.folder.finetuning_records(run).values())
        return Job(
            "fine-tune",
            (run.name,),
            partial(self.folder.finetune, run),
            output=records[-1],
            leaves=[*records, self.path("evaluation", "fine-tuned-mean", run.name)],
            inputs=partial(self.folder.evaluation_inputs, self.folder.model(run)),
            options=self.folder.finetuning_options,
            needs=["pretrain " + run.name, *self.tasks],
            after=["evaluate " + run.name],
        )


def parse(arguments=None):
    parser = errors.Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--dest", metavar="DIR", help="where models, logs and everything else go; not needed for --report")
    add("--records", default=RECORDS, metavar="DIR", help="where the records go (default: recipes/scores/records)")
    jobs = torch.cuda.device_count() or cores()
    add("--jobs", type=int, default=jobs, metavar="N", help=f"number that run at the same time (default here: {jobs})")
    add("--data", metavar="DIR", help="binarized text from data-prep/prepare.sh, instead of the film reviews")
    add(
        "--tasks",
        metavar="DIR",
        help="labelled texts as for --labelled of recipes/evaluate.sh, instead of those downloaded",
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--plan", choices=PLANS, default=SCORES.name, help=f"what to run (default: {SCORES.name})")
    size.add_argument("--tiny", action="store_true", help="everything as small as possible, to try the program itself")
    add("--results", metavar="FILE", help="page of results that the summary goes into; without, it is printed")
    add("--report", action="store_true", help="report what the records have so far, and stop")
    add("--dry-run", action="store_true", help="show what is done and what is left, and stop")
    args = parser.parse_args(arguments)
    if not (args.dest or args.report):
        parser.error("--dest DIR is missing: where models and logs go")
    return args


def command_of(args):
    """The command, for the summary."""
    plan = f" --plan {args.plan}" * (args.plan != SCORES.name)
    return "recipes/scores.sh" + plan + " --dest DIR" + " --data DATA" * bool(args.data) + " --tiny" * args.tiny


def compare(arguments=None):
    """Does what the options ask for; see :func:`parse`.

    Args:
        arguments: list of strings; None for the command line's
    """
    args = parse(arguments)
    comparison = TINY if args.tiny else PLANS[args.plan]
    if not args.report:
        folder = ComparisonFolder(comparison, args.dest, args.data, args.tasks, args.jobs, args.records)
        jobs = Jobs(Plan(folder, not args.data, not args.tasks).jobs(), folder.path("records"))
        states = jobs.states()
        jobs.show(states)
        jobs.refuse_to_lose(states)
        if args.dry_run:
            return
        jobs.run(states, args.jobs)
    ComparisonReport(comparison, args.records, command_of(args)).write(args.results)


def main():
    terminate_children_on_sigterm(STOPPED)
    compare()


if __name__ == "__main__":
    errors.run(main)
