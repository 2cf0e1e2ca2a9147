"""Turns the output of fairseq-train --log-format json into a short progress report."""

import json
import re

RECORD = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \| (\w+) \| (\S+) \| (.*)$")
CHECKPOINT = re.compile(r"^(Saved checkpoint \S+|Loaded checkpoint .*\))")
ERROR = re.compile(r"^(\w[\w.]*(Error|Exception|Interrupt)\b|([\w-]+: )?error: )")
USELESS = ("Please install tensorboardX", "TensorBoard", "could not be loaded", "your device does NOT support")


def logged(lines, key):
    """The statistics in the lines of a log: list of dicts, ordered by update. Of a repeated update, the last counts.

    Args:
        lines: the output of fairseq-train --log-format json
        key: name of the update's number: num_updates for training, valid_num_updates for validation
    """
    found = {}
    for line in lines:
        start = line.find("{")
        if start >= 0 and f'"{key}": ' in line:
            stats = json.loads(line[start:])
            found[int(stats[key])] = stats
    return [found[update] for update in sorted(found)]


def time(seconds):
    """3725 -> '1:02:05'."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def quality(stats, prefix=""):
    """Loss and, if it is logged, accuracy, in fairseq's units."""
    accuracy = stats.get(prefix + "accuracy")
    return f"loss {stats[prefix + 'loss']} bits" + (f", accuracy {accuracy}%" if accuracy else "")


class Progress:
    """Turns lines of fairseq's log into lines of the report, or None for lines that it leaves out."""

    def __init__(self):
        self.max_update = None
        self.in_trace = False

    def line(self, text):
        record = RECORD.match(text)
        if record:
            self.in_trace = False
            return self.record(*record.groups())
        if text.startswith("Traceback"):
            self.in_trace = True
        elif ERROR.match(text) or (self.in_trace and text and not text[0].isspace()):
            return text  # the message of an error; the stack trace stays in the log
        return None

    def record(self, level, logger, message):
        if level in ("WARNING", "ERROR", "CRITICAL"):
            return None if any(phrase in message for phrase in USELESS) else message
        if logger == "train_inner" and message.startswith("{"):
            return self.update(json.loads(message))
        if logger == "valid" and message.startswith("{"):
            stats = json.loads(message)
            return f"validation after {stats['valid_num_updates']} updates: {quality(stats, 'valid_')}"
        if logger.startswith("maelm_fairseq") or message.startswith("done training"):
            return message
        limit = re.search(r"^Stopping training due to .* > stop_time_hours: ([\d.]+)", message)
        if limit:
            return f"stopping before the last update: the training has taken the {limit[1]} hours of --stop-time-hours"
        configured = re.search(r"^\{'.*'max_update': (\d+)", message)
        if configured:
            self.max_update = int(configured.group(1))
        checkpoint = CHECKPOINT.match(message)
        return checkpoint.group() if checkpoint else None

    def update(self, stats):
        update, of, left = int(stats["num_updates"]), "", ""
        if self.max_update:
            of = f" of {self.max_update:,}"
            left = f", {time((self.max_update - update) / max(float(stats['ups']), 1e-3))} left"
        return f"update {update:,}{of}: {quality(stats)}, {float(stats['wps']):,.0f} tokens/s{left}"
