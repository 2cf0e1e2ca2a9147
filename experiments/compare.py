"""Pretrains MLMs, MAE-LM and encoders with shared decoder layers, and compares their scores and effective ranks.

Plans: `width256`, the preregistered comparison (preregistration.py), takes days on two cores; `small`, the paper in
miniature, about an hour; `tiny` tries the program itself.

Film reviews and labelled texts are downloaded unless --data and --tasks are given. Short pilot runs select the learning
rate. The losses and compute of each run, its effective ranks, and its scores by recipes/evaluate.sh are recorded in the
folder --records: what is there is not done again, and the report is made from there alone. SIGTERM ends the program
with checkpoints and status 75; the same command resumes, also after any other end.
"""

import argparse
import os
import re

import torch

from jobs import Jobs
from maelm_fairseq.base import errors
from maelm_fairseq.base.files import atomic_write

try:
    import figures
    from plans import PLANS, SCORES
    from record_store import RECORDS, Records
    from results import Results
    from runs import Runs
except ImportError as error:
    raise errors.InstallationError(f"{error}: pip install scikit-learn scipy (the extra `finetune`)") from None


def compare(arguments=None):
    """Runs and reports a comparison."""
    parser = errors.Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--plan", choices=PLANS, default=SCORES.name, help=f"what to run (default: {SCORES.name})")
    add("--dest", metavar="DIR", help="folder for models, logs and everything else; not needed for --report")
    add("--records", default=RECORDS, metavar="DIR", help="folder for the records (default: experiments/records)")
    jobs = torch.cuda.device_count() or len(os.sched_getaffinity(0))
    add("--jobs", type=int, default=jobs, metavar="N", help=f"runs at the same time (default here: {jobs})")
    add("--data", metavar="DIR", help="binarized text from data-prep/prepare.sh, instead of the film reviews")
    add("--tasks", metavar="DIR", help="labelled texts as for recipes/evaluate.sh, instead of downloaded ones")
    add("--figure", metavar="FILE", help="PNG to draw")
    add("--report", action="store_true", help="report what the records have so far, and run nothing")
    add("--page", metavar="FILE", help="put the report between the two comments of a page, instead of printing it")
    args = parser.parse_args(arguments)
    if not (args.dest or args.report):
        parser.error("--dest DIR is missing: where models and logs go")
    comparison = PLANS[args.plan]
    records = Records(comparison, args.records)
    if not args.report:
        Runs(comparison, args.dest, records, args.data, args.tasks).all(Jobs(args.jobs).listen())
    command = f"experiments/compare.sh --plan {args.plan} --dest DIR" + " --data DATA" * bool(args.data)
    results, figure = Results(comparison, records, command), args.figure
    if figure:
        figures.draw(figure, results)
    if not args.page:
        print(results.summary(figure))
        return
    summary = results.summary(figure and os.path.relpath(figure, os.path.dirname(args.page)))
    with open(args.page, encoding="utf-8") as stream:
        before, begin, after = re.split(r"(<!-- Made by .*? -->\n)", stream.read())
    with atomic_write(args.page) as stream:
        stream.write(before + begin + summary + after[after.index("\n<!-- End") :])


def main():
    compare()


if __name__ == "__main__":
    errors.run(main)
