#!/usr/bin/env python3
"""Pretrains an MLM, MAE-LM, and an MLM with MAE-LM's decoder, for the comparison of their scores.

comparison.py says what is run, at two widths, and what is tested. Film reviews and labelled texts are downloaded
unless --data and --tasks are given. Short pilots choose the learning rate; each run keeps some of its checkpoints, and
a record of its losses, CPU time and arithmetic; of the models, effective ranks and the scores of recipes/evaluate.sh
are measured.

All of it takes days on two cores. SIGTERM ends it with checkpoints and status 75, and the same command goes on; it
does so after any other end, too. --dry-run shows what is done and what is left.
"""

import argparse
import os
from functools import partial

import torch

from child_processes import terminate_children_on_sigterm
from comparison import SCORES, TINY, WIDTHS
from comparison_folder import KINDS, ComparisonFolder
from comparison_report import ComparisonReport
from devices import cores
from jobs import DONE, Job, Jobs
from maelm_fairseq import errors

STOPPED = 75  # as fairseq-train with this plugin


class Plan:
    """Makes the jobs.

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
        comparison = self.comparison
        pilots, gate, untrained = comparison.pilots(), comparison.gate(), comparison.untrained()
        jobs = list(self.preparation())
        jobs += [self.training("pilot", run) for run in pilots]
        if pilots:
            jobs.append(self.choice(pilots))
        jobs += self.measured([*gate, *untrained])
        jobs.append(self.gate([*gate, untrained[0]]))
        jobs += self.measured(comparison.compared(), after=["gate"])
        jobs += [self.finetuning(run) for run in comparison.finetuned()]
        jobs += self.on_the_way([*gate, *comparison.compared()])
        jobs += self.measured(comparison.further(), after=["gate"])
        jobs += self.on_the_way(comparison.further())
        jobs += [self.training("pilot", run, after=["gate"]) for run in comparison.explored_pilots()]
        jobs += self.measured(comparison.explored(), after=["gate"])
        return jobs

    def measured(self, runs, after=()):
        """The jobs that train runs, and measure their final models."""
        return [
            job
            for run in runs
            for job in (self.training("pretrain", run, after), self.ranks(run), self.evaluation(run))
        ]

    def on_the_way(self, runs):
        """The jobs that evaluate the models of runs before their end."""
        return [
            self.evaluation(run, updates)
            for run in runs
            for updates in self.folder.checkpoints(run)
            if updates < run.updates
        ]

    def preparation(self):
        """The jobs before pretraining."""
        folder = self.folder
        if self.data:
            yield from folder.text_jobs()
        if self.tasks:
            yield folder.labelled_job(self.comparison.tasks)

    def training(self, kind, run, after=()):
        return Job(
            kind,
            (run.name,),
            partial(self.folder.pretrain, run),
            output=self.folder.record(run.name),
            leaves=[self.path("pretraining", run.name)],
            inputs=self.folder.data_inputs,
            options=partial(self.folder.options, run),
            needs=self.data if run.optimization else [*self.data, "choice"],
            after=list(after),
            logs=[self.folder.training_log(run.name)],
            precious=True,
        )

    def choice(self, pilots):
        """The job that compares the pilots."""
        chosen = self.path("chosen.json")
        return Job(
            "choice",
            (),
            self.folder.choose,
            output=chosen,
            leaves=[chosen],
            inputs=lambda: {run.name: self.folder.record(run.name) for run in pilots},
            needs=["pilot " + run.name for run in pilots],
        )

    def ranks(self, run):
        """The job that measures the ranks of all models of a run."""
        folder = self.path("ranks", run.name)
        models = self.folder.checkpoints(run)
        return Job(
            "ranks",
            (run.name,),
            partial(self.folder.measure_ranks_of, run),
            output=os.path.join(folder, "ranks.csv"),
            leaves=[folder, folder + ".partial"],
            inputs=lambda: {**{os.path.basename(path): path for path in models.values()}, **self.folder.data_inputs()},
            options=self.folder.rank_options,
            needs=["pretrain " + run.name],
        )

    def evaluation(self, run, updates=None):
        """The job that evaluates the final model of a run, or that after some updates."""
        final = updates is None
        updates = self.comparison.final(run) if final else updates
        dest, model = self.folder.evaluation(run, updates), self.folder.checkpoints(run)[updates]
        *_, last = self.folder.evaluation_records(run, updates).values()
        return Job(
            "evaluate",
            (run.name,) if final else (run.name, str(updates)),
            partial(self.folder.evaluate_run, run, updates),
            output=last,
            leaves=[os.path.join(dest, part, run.name) for part in ("records", "features")],
            inputs=partial(self.folder.evaluation_inputs, model),
            options=partial(self.folder.evaluation_options, run, updates),
            needs=["pretrain " + run.name, *self.tasks],
        )

    def finetuning(self, run):
        """The job that fine-tunes the final model of a run."""
        updates, kinds = self.comparison.final(run), [KINDS[name] for name in self.comparison.fine_tuned]
        records = [path for kind in kinds for path in self.folder.evaluation_records(run, updates, kind).values()]
        dest = self.folder.evaluation(run, updates)
        return Job(
            "fine-tune",
            (run.name,),
            partial(self.folder.finetune, run),
            output=records[-1],
            leaves=[*records, *(os.path.join(dest, kind, run.name) for kind in kinds)],
            inputs=partial(self.folder.evaluation_inputs, self.folder.checkpoints(run)[updates]),
            options=self.folder.finetuning_options,
            needs=["evaluate " + run.name, *self.tasks],
        )

    def gate(self, runs):
        """The job that looks whether the other runs are worth their time."""
        path = self.path("gate.json")
        needs = ["evaluate " + run.name for run in runs]
        return Job("gate", (), self.folder.check_gate, output=path, leaves=[path], needs=needs)


def parse(arguments=None):
    parser = errors.Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--dest", required=True, metavar="DIR", help="where everything goes")
    jobs = torch.cuda.device_count() or cores()
    add("--jobs", type=int, default=jobs, metavar="N", help=f"number that run at the same time (default here: {jobs})")
    add("--data", metavar="DIR", help="binarized text from data-prep/prepare.sh, instead of the film reviews")
    add(
        "--tasks",
        metavar="DIR",
        help="labelled texts as for --labelled of recipes/evaluate.sh, instead of those downloaded",
    )
    size = parser.add_mutually_exclusive_group()
    default = SCORES.size.encoder_embed_dim
    size.add_argument(
        "--width", type=int, choices=WIDTHS, default=default, help=f"of the encoders (default: {default})"
    )
    size.add_argument("--tiny", action="store_true", help="everything as small as possible, to try the program itself")
    add("--results", metavar="FILE", help="page of results that the summary goes into, too")
    add("--report", action="store_true", help="write the results of what is done so far, and stop")
    add("--dry-run", action="store_true", help="show what is done and what is left, and stop")
    return parser.parse_args(arguments)


def command_of(args):
    """The command, for the summary."""
    width = f" --width {args.width}" * (WIDTHS[args.width] != SCORES)
    return "recipes/scores.sh" + width + " --dest DIR" + " --data DATA" * bool(args.data) + " --tiny" * args.tiny


def compare(arguments=None):
    """Does what the options ask for; see :func:`parse`.

    Args:
        arguments: list of strings; None for the command line's
    """
    args = parse(arguments)
    folder = ComparisonFolder(TINY if args.tiny else WIDTHS[args.width], args.dest, args.data, args.tasks, args.jobs)
    jobs = Jobs(Plan(folder, not args.data, not args.tasks).jobs(), folder.path("records"))
    states = jobs.states()
    jobs.show(states)
    if not args.report:
        jobs.refuse_to_lose(states)
        if args.dry_run:
            return
        jobs.run(states, args.jobs)
    evaluated = {
        job.subject
        for job in jobs.jobs
        if job.kind == "evaluate" and (not args.report or states[job.name].status == DONE)
    }
    ComparisonReport(folder, command_of(args), evaluated).write(folder.path("results"), args.results)


def main():
    terminate_children_on_sigterm(STOPPED)
    compare()


if __name__ == "__main__":
    errors.run(main)
