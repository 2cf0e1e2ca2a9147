"""What fairseq-train wrote into a log file about a run of pretraining."""

import json
import os
import re

from show_progress import logged

TRAINED = re.compile(rb'"num_updates": "(\d+)"')


def training_log(path, key="num_updates"):
    """The statistics in a log file; see :func:`show_progress.logged`."""
    with open(path, encoding="utf-8", errors="replace") as lines:
        return logged(lines, key)


def validated_updates(path):
    """The number of updates before the last validation in a log file; 0 without one."""
    if not os.path.exists(path):
        return 0
    return max((int(row["valid_num_updates"]) for row in training_log(path, "valid_num_updates")), default=0)


def user_seconds(pid):
    """The seconds of CPU time that a process has spent in user mode, with those of its children that have ended."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
        fields = stream.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[13])) / os.sysconf("SC_CLK_TCK")


def add_cpu_seconds(process):
    """Yields a training's output, lines of bytes, with the CPU time since the previous line of statistics after each.

    Such a line is `{"cpu_update": 50, "cpu_seconds": 12.5}`.
    """
    before = 0.0
    for line in process.stdout:
        yield line
        trained = TRAINED.search(line)
        if trained:
            now = user_seconds(process.pid)
            yield (
                json.dumps(dict(cpu_update=int(trained.group(1)), cpu_seconds=round(now - before, 2))).encode() + b"\n"
            )
            before = now


def pretraining_record(log):
    """The validations of a run: list of dicts with update, loss (bits), seconds and CPU seconds so far.

    Both count an update once, though a run that was killed repeats those since its last checkpoint. `seconds` are of
    training alone; `cpu_seconds`, of user time, include start-up and validation.
    """
    training, cpu, validations = training_log(log), training_log(log, "cpu_update"), []
    for stats in training_log(log, "valid_num_updates"):
        update = int(stats["valid_num_updates"])
        # A line's train_wall covers the updates since the previous line, without validations.
        seconds = sum(float(row["train_wall"]) for row in training if int(row["num_updates"]) <= update)
        cpu_seconds = sum(row["cpu_seconds"] for row in cpu if row["cpu_update"] <= update)
        loss = float(stats["valid_loss"])
        validations.append(dict(update=update, loss=loss, seconds=seconds, cpu_seconds=round(cpu_seconds, 2)))
    return validations
