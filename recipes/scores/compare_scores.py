#!/usr/bin/env python3
"""Pretrains an MLM, MAE-LM, and an MLM with MAE-LM's decoder, for the comparison of their scores.

comparison.py says what is run and what is tested. Film reviews are downloaded unless --data is given. Short pilots
choose the learning rate; then each run keeps some of its checkpoints, and a record of its losses, CPU time and
arithmetic; then effective ranks are measured.

All of it takes days on two cores. SIGTERM ends it with checkpoints and status 75, and the same command goes on; it
does so after any other end, too. --dry-run shows what is done and what is left.
"""

import argparse
import os
from functools import partial

import torch

from child_processes import terminate_children_on_sigterm
from comparison import SCORES, TINY
from comparison_folder import ComparisonFolder
from jobs import Job, Jobs
from maelm_fairseq import errors
from maelm_fairseq.errors import UsageError

STOPPED = 75  # as fairseq-train with this plugin


class Plan:
    """Makes the jobs.

    Args:
        folder: :class:`~comparison_folder.ComparisonFolder`
        downloads_text: whether there are jobs for the text
    """

    def __init__(self, folder, downloads_text):
        self.folder, self.comparison, self.path = folder, folder.comparison, folder.path
        self.data = ["data"] if downloads_text else []  # names of jobs that others need

    def jobs(self):
        """All jobs, what matters most first."""
        jobs = list(self.preparation())
        pilots = self.comparison.pilots()
        jobs += [self.training("pilot", run) for run in pilots]
        jobs.append(self.choice(pilots))
        pretrained, first = self.comparison.pretrained(), len(self.comparison.gate())
        for run in [*pretrained[:first], *self.comparison.untrained(), *pretrained[first:]]:
            jobs += [self.training("pretrain", run), self.ranks(run)]
        return jobs

    def preparation(self):
        """The jobs before pretraining."""
        folder = self.folder
        if self.data:
            raw = {name: self.path("text", name) for name in ["train.txt", "valid.txt"]}
            yield Job("text", (), folder.fetch_text, output=raw["train.txt"], leaves=[self.path("text")])
            yield Job(
                "data",
                (),
                folder.prepare_text,
                output=os.path.join(folder.data, "train.json"),
                leaves=[folder.data],
                inputs=lambda: raw,
                options=folder.text_options,
                needs=["text"],
            )

    def training(self, kind, run):
        return Job(
            kind,
            (run.name,),
            partial(self.folder.pretrain, run),
            output=self.folder.record(run),
            leaves=[self.path("pretraining", run.name)],
            inputs=self.folder.data_inputs,
            options=partial(self.folder.options, run),
            needs=self.data if run.optimization else [*self.data, "choice"],
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
            inputs=lambda: {run.name: self.folder.record(run) for run in pilots},
            needs=["pilot " + run.name for run in pilots],
        )

    def ranks(self, run):
        """The job that measures the ranks of all models of a run."""
        folder = self.path("ranks", run.name)
        models = self.folder.checkpoints(run)
        return Job(
            "ranks",
            (run.name,),
            partial(self.folder.measure_ranks, run),
            output=os.path.join(folder, "ranks.csv"),
            leaves=[folder, folder + ".partial"],
            inputs=lambda: {**{os.path.basename(path): path for path in models.values()}, **self.folder.data_inputs()},
            options=self.folder.rank_options,
            needs=["pretrain " + run.name],
        )


def parse(arguments=None):
    parser = errors.Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--dest", required=True, metavar="DIR", help="where everything goes")
    cores = 1 if torch.cuda.is_available() else len(os.sched_getaffinity(0))
    add(
        "--jobs", type=int, default=cores, metavar="N", help=f"number that run at the same time (default here: {cores})"
    )
    add("--data", metavar="DIR", help="binarized text from data-prep/prepare.sh, instead of the film reviews")
    add("--tiny", action="store_true", help="everything as small as possible, to try the program itself")
    add("--dry-run", action="store_true", help="show what is done and what is left, and stop")
    args = parser.parse_args(arguments)
    if args.jobs < 1:
        raise UsageError(f"--jobs {args.jobs} must be over 0")
    return args


def compare(arguments=None):
    """Does what the options ask for; see :func:`parse`.

    Args:
        arguments: list of strings; None for the command line's
    """
    args = parse(arguments)
    folder = ComparisonFolder(TINY if args.tiny else SCORES, args.dest, args.data, args.jobs)
    jobs = Jobs(Plan(folder, not args.data).jobs(), folder.path("records"))
    states = jobs.states()
    jobs.show(states)
    jobs.refuse_to_lose(states)
    if not args.dry_run:
        jobs.run(states, args.jobs)


def main():
    terminate_children_on_sigterm(STOPPED)
    compare()


if __name__ == "__main__":
    errors.run(main)
