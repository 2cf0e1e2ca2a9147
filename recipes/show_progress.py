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
    return "{}:{:02d}:{:02d}".format(hours, minutes, seconds) if hours else "{}:{:02d}".format(minutes, seconds)


def quality(stats, prefix=""):
    """Loss and, if it is logged, accuracy, in fairseq's units."""
    accuracy = stats.get(prefix + "accuracy")
    return "loss {} bits".format(stats[prefix + "loss"]) + (", accuracy {}%".format(accuracy) if accuracy else "")


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
            # The message of an error; the stack trace stays in the log.
            return text
        return None

    def record(self, level, logger, message):
        if level in ("WARNING", "ERROR", "CRITICAL"):
            return None if any(phrase in message for phrase in USELESS) else message
        if logger in ("train_inner", "valid") and message.startswith("{"):
            return getattr(self, logger)(json.loads(message))
        if logger.startswith("maelm_fairseq") or message.startswith("done training"):
            return message
        configured = re.search(r"^\{'.*'max_update': (\d+)", message)
        if configured:
            self.max_update = int(configured.group(1))
        checkpoint = CHECKPOINT.match(message)
        return checkpoint.group() if checkpoint else None

    def train_inner(self, stats):
        update = int(stats["num_updates"])
        of = left = ""
        if self.max_update:
            of = " of {:,}".format(self.max_update)
            left = ", {} left".format(time((self.max_update - update) / max(float(stats["ups"]), 1e-3)))
        return "update {:,}{}: {}, {:,.0f} tokens/s{}".format(update, of, quality(stats), float(stats["wps"]), left)

    def valid(self, stats):
        return "validation after {} updates: {}".format(stats["valid_num_updates"], quality(stats, "valid_"))
