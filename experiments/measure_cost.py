"""Measures the time and memory of an update of each arm of a comparison, running fairseq-train for them in turn.

    experiments/measure_cost.sh --data DIR

Run it on an idle machine. Each run is a process on one core, as in the comparison; its first half is not timed.
Writes to cost.json in the plan's folder of records, a list with an entry for each machine: medians over rounds of the
seconds, of their ratio to the first arm's in the same round, and of the peak memory of the process.
"""

import argparse
import datetime
import os
import statistics
import subprocess
import tempfile

import torch

from fairseq_options import PLUGIN
from maelm_fairseq.base import errors
from maelm_fairseq.precision import is_fast_in_bfloat16
from plans import PLANS, SCORES
from preregistration import LEARNING_RATE
from record_store import COST, RECORDS, Records
from runs import logged_statistics


def update(data, options, updates):
    """Seconds of one update with the options of fairseq-train, and the peak memory of its process in MiB."""
    command = ["fairseq-train", data, "--user-dir", PLUGIN, *options, "--no-save", "--disable-validation", "--cpu"]
    command += ["--log-interval", str(updates // 2), "--max-update", str(updates)]
    with tempfile.NamedTemporaryFile() as log:
        variables = dict(os.environ, OMP_NUM_THREADS="1")
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=variables)
        usage = os.wait4(process.pid, 0)[2]
        row = logged_statistics(log.name, "num_updates").get(updates)
        if not row:
            log.seek(0)
            raise errors.UsageError(f"fairseq-train failed: {log.read().decode(errors='replace')[-1000:]}")
    return float(row["wpb"]) / float(row["wps"]), usage.ru_maxrss / 2**10


def machine():
    """The processor, its cores, torch, and the precision of matrix products under --bf16-autocast."""
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        name = next((line.partition(": ")[2].strip() for line in lines if line.startswith("model name")), "")
    precision = "bfloat16" if is_fast_in_bfloat16("cpu") else "float32"
    return f"{name}, {os.cpu_count()} cores, torch {torch.__version__}, {precision}"


def main():
    parser = errors.Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="DIR", help="binarized text")
    parser.add_argument("--plan", choices=PLANS, default=SCORES.name, help="(default: %(default)s)")
    parser.add_argument("--records", default=RECORDS, metavar="DIR", help="(default: experiments/records)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--updates", type=int, default=100, metavar="N", help="of each run (default: %(default)s)")
    args = parser.parse_args()
    plan, records = PLANS[args.plan], Records(PLANS[args.plan], args.records)
    runs, rounds, models = [run for run in plan.runs() if run.seed == 1 and run.updates], [], {}
    for number in range(1, args.rounds + 1):
        rounds.append([update(args.data, plan.options(run, LEARNING_RATE), args.updates) for run in runs])
        print(f"round {number} of {args.rounds}: {rounds[-1]}", flush=True)
    for run, measured in zip(runs, zip(*rounds)):
        seconds, memory = map(statistics.median, zip(*measured))
        ratios = [one[0] / each[0][0] for one, each in zip(measured, rounds)]
        summary = dict(ratio=statistics.median(ratios), lowest=min(ratios), highest=max(ratios))
        models[run.model.name] = {name: round(value, 3) for name, value in summary.items()}
        models[run.model.name].update(seconds=round(seconds, 4), memory_mib=round(memory))
    measured = dict(date=str(datetime.date.today()), machine=machine(), rounds=args.rounds, models=models)
    others = [each for each in records.read(COST) or [] if each["machine"] != measured["machine"]]
    records.save(COST, [*others, measured])


if __name__ == "__main__":
    errors.run(main)
