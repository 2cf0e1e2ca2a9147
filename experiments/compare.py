"""Pretrains MLMs, MAE-LM and encoders with shared decoder layers, and compares their scores and effective ranks.

Plans: `width256`, which tests what comparison.py says; `width128`, explorations of single models; `small`, the paper in
miniature, meant to take an hour on two cores, where the first two take days; `tiny`, to try the program itself.

Film reviews and labelled texts are downloaded unless --data and --tasks are given. Short pilots choose the learning
rate of models that have some. The losses, CPU time and arithmetic of each run, its effective ranks, and its scores by
recipes/evaluate.sh go into the folder --records as they come: what is there is not done again, and the report is made
from there alone. SIGTERM ends it with checkpoints and status 75, and the same command goes on; it does so after any
other end, too. --dry-run shows what is done and what is left.
"""

import argparse
import os
from functools import partial

import torch

from child_processes import terminate_children_on_sigterm
from devices import cores
from jobs import DONE, Job, Jobs
from maelm_fairseq.engine import errors

try:
    from kept_records import Records, load, read_ranks
    from plans import PLANS, SCORES
    from results import Results
    from run_folder import RunFolder
except ImportError as error:
    raise errors.InstallationError(f"{error}: pip install scikit-learn scipy (the extra `evaluate`)") from None

STOPPED = 75  # as fairseq-train with this plugin
RECORDS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "records")


class Plan(Jobs):
    """The jobs, but those of which the records are kept.

    Args:
        folder: :class:`~run_folder.RunFolder`
        downloads_text, downloads_tasks: whether there are jobs for these
    """

    def __init__(self, folder, downloads_text, downloads_tasks):
        self.runs_in, self.comparison, self.kept = folder, folder.comparison, folder.kept
        self.data = ["data"] if downloads_text else []  # names of jobs that others need
        self.tasks = ["labelled texts"] if downloads_tasks else []
        self.runs = {run.name: run for run in self.comparison.runs()}
        self.tuned = self.comparison.fine_tuned_runs()
        super().__init__([], folder.path("records"))
        self.jobs = self.all_jobs()

    # Keeping records

    def keep(self, run):
        """Takes into the record of a run whatever the folder has of it that is finished and up to date."""
        folder, done = self.runs_in, {}
        if self.is_decided(run):
            done = {job.kind for job in self.parts(run) if self.state(job, {}).status == DONE}
        if "pretrain" in done:
            numbers = dict(options=folder.options(run), validations=load(folder.record(run)))
            if "ranks" in done:
                numbers.update(read_ranks(folder.ranks(run)))
            paths = folder.outcomes(run) * ("evaluate" in done) + folder.outcomes(run, True) * ("fine-tune" in done)
            self.kept.keep(run, numbers, paths)

    def perform(self, job):
        did = super().perform(job)
        if job.subject and job.subject[0] in self.runs:
            self.keep(self.runs[job.subject[0]])
        return did

    def run(self, states, at_a_time):
        """Does all jobs that are not done; what the folder has of runs whose records are incomplete is kept first."""
        for name in {job.subject[0] for job in self.jobs if job.subject} & self.runs.keys():
            self.keep(self.runs[name])
        super().run(states, at_a_time)

    def is_kept_training(self, run):
        """Whether the record of a run is of the training that the folder has."""
        path = self.runs_in.record(run)
        return os.path.exists(path) and load(path) == self.kept.read(run).get("validations")

    def is_decided(self, run):
        """Whether the learning rate of a run is known."""
        return not run.pilots or os.path.exists(self.kept.chosen(run.pilots))

    def has(self, run, part):
        """Whether the records have a part of a run; those of pilots that are still to come have nothing."""
        return self.is_decided(run) and self.kept.has(run, part, self.runs_in.options(run))

    # Jobs

    def all_jobs(self):
        """All jobs, what matters most first."""
        jobs, last = list(self.preparation()), []
        for model in self.comparison.pilots:
            if not os.path.exists(self.kept.chosen(model)):
                jobs += [self.training("pilot", run) for run in self.comparison.pilot_runs(model)]
                jobs.append(self.choice(model))
        for run in self.runs.values():
            kinds = {"ranks": "ranks", "evaluate": "scores", "fine-tune": "fine-tuning"}
            training, *parts = self.parts(run)
            left = [job for job in parts if not self.has(run, kinds[job.kind])]
            if left and not self.is_kept_training(run):  # a new one replaces all that is kept
                left = parts
            jobs += [training] * bool(left) + [job for job in left if job.kind != "fine-tune"]
            last += [job for job in left if job.kind == "fine-tune"]
        return jobs + last

    def parts(self, run):
        """The jobs of a run, its training first."""
        parts = [self.training("pretrain", run), self.ranks(run), self.evaluation(run)]
        return parts + [self.evaluation(run, tuned=True)] * (run in self.tuned)

    def preparation(self):
        """The jobs before pretraining."""
        folder = self.runs_in
        if self.data:
            raw = folder.raw_text()
            yield Job("text", (), folder.fetch_text, output=raw["train.txt"], leaves=[folder.path("text")])
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
        if self.tasks:
            yield Job(
                "labelled texts",
                (),
                folder.fetch_labelled,
                output=os.path.join(folder.labelled, self.comparison.tasks[-1], "train.tsv"),
                leaves=[folder.labelled],
                options=lambda: list(self.comparison.tasks),
            )

    def training(self, kind, run):
        return Job(
            kind,
            (run.name,),
            partial(self.runs_in.train, run),
            output=self.runs_in.record(run),
            leaves=[os.path.dirname(self.runs_in.model(run))],
            inputs=self.runs_in.data_inputs,
            options=partial(self.runs_in.options, run),
            needs=[*self.data, *([] if self.is_decided(run) else [f"choice {run.pilots.name}"])],
            logs=[self.runs_in.training_log(run)],
            precious=True,
        )

    def choice(self, model):
        """The job that compares the pilots of a model."""
        pilots, chosen = self.comparison.pilot_runs(model), self.kept.chosen(model)
        return Job(
            "choice",
            (model.name,),
            partial(self.runs_in.choose, model),
            output=chosen,
            leaves=[chosen],
            inputs=lambda: {run.name: self.runs_in.record(run) for run in pilots},
            needs=["pilot " + run.name for run in pilots],
        )

    def ranks(self, run):
        folder = self.runs_in.ranks(run)
        return Job(
            "ranks",
            (run.name,),
            partial(self.runs_in.measure_ranks, run),
            output=os.path.join(folder, "ranks.csv"),
            leaves=[folder, folder + ".partial"],
            inputs=lambda: {"model.pt": self.runs_in.model(run), **self.runs_in.data_inputs()},
            options=self.runs_in.rank_options,
            needs=["pretrain " + run.name],
        )

    def evaluation(self, run, tuned=False):
        """The job that evaluates a run's frozen features; or that fine-tunes its model, after that."""
        folder, records = self.runs_in, self.runs_in.outcomes(run, tuned)
        leaves = [folder.path("evaluation", part, run.name) for part in ("records", "features")]
        return Job(
            "fine-tune" if tuned else "evaluate",
            (run.name,),
            partial(folder.evaluate, run, tuned),
            output=records[-1],
            leaves=[*records, folder.path("evaluation", "fine-tuned-mean", run.name)] if tuned else leaves,
            inputs=partial(folder.evaluation_inputs, run),
            options=partial(folder.evaluation_options, tuned),
            needs=["pretrain " + run.name, *self.tasks],
            after=["evaluate " + run.name] * tuned,
        )


def parse(arguments=None):
    parser = errors.Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--plan", choices=PLANS, default=SCORES.name, help=f"what to run (default: {SCORES.name})")
    add("--dest", metavar="DIR", help="where models, logs and everything else go; not needed for --report")
    add("--records", default=RECORDS, metavar="DIR", help="where the records go (default: experiments/records)")
    jobs = torch.cuda.device_count() or cores()
    add("--jobs", type=int, default=jobs, metavar="N", help=f"number that run at the same time (default here: {jobs})")
    add("--data", metavar="DIR", help="binarized text from data-prep/prepare.sh, instead of the film reviews")
    add(
        "--tasks",
        metavar="DIR",
        help="labelled texts as for --labelled of recipes/evaluate.sh, instead of those downloaded",
    )
    add("--results", metavar="FILE", help="page of results that the summary goes into; without, it is printed")
    add("--report", action="store_true", help="report what the records have so far, and stop")
    add("--dry-run", action="store_true", help="show what is done and what is left, and stop")
    args = parser.parse_args(arguments)
    if not (args.dest or args.report):
        parser.error("--dest DIR is missing: where models and logs go")
    return args


def compare(arguments=None):
    """Does what the options ask for; see :func:`parse`."""
    args = parse(arguments)
    comparison = PLANS[args.plan]
    if not args.report:
        folder = RunFolder(comparison, args.dest, args.data, args.tasks, args.jobs, Records(comparison, args.records))
        jobs = Plan(folder, not args.data, not args.tasks)
        states = jobs.states()
        jobs.show(states)
        jobs.refuse_to_lose(states)
        if args.dry_run:
            return
        jobs.run(states, args.jobs)
    command = f"experiments/compare.sh --plan {args.plan} --dest DIR" + " --data DATA" * bool(args.data)
    Results(comparison, args.records, command).write(args.results)


def main():
    terminate_children_on_sigterm(STOPPED)
    compare()


if __name__ == "__main__":
    errors.run(main)
