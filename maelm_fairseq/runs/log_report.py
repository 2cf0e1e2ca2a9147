"""Reads the log of fairseq-train --log-format json: validations, and a short progress report."""

import contextlib
import datetime
import json
import logging
import os
import re

from ..base.checkpoint_names import best_checkpoint_path
from ..metrics import METRICS

LOG_FORMAT = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"  # fairseq's
LOG_RECORD = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \| (\w+) \| (\S+) \| (.*)$")
SHOWN_MESSAGE = re.compile(
    r"^(Saved checkpoint .*(?= \(epoch)"
    r"|Loaded checkpoint .*?(?= \(epoch \d+ @ 0 |$)"
    r"|done training.*)"
)
ERROR_LINE = re.compile(r"^(\w[\w.]*(Error|Exception|Interrupt)\b|([\w-]+: )?error: )")
SCORE_UNITS = {name: metric.unit for name, metric in METRICS.items()}
SCORE_UNITS["exact"] = "%"  # of SQuAD
HIDDEN_PHRASES = (
    "Please install tensorboardX",
    "TensorBoard",
    "could not be loaded",
    "your device does NOT support",
)


class ReportHandler(logging.Handler):
    """Prints the report of what is logged; `best_path` as for `LogReport`."""

    def __init__(self, best_path):
        super().__init__()
        self.report = LogReport(best_path=best_path)

    def emit(self, record):
        line = None if record.exc_info else self.report.format_line(self.format(record))
        if line:
            # Training continues when nobody reads this any longer.
            with contextlib.suppress(OSError):
                print(line, flush=True)


class LogReport:
    """Turns the log of a run, line by line, into a report for its user.

    Args:
        loss_unit: what follows the loss
        best_path: path of the best checkpoint, if it is the result of the run
    """

    def __init__(self, loss_unit=" bits", best_path=None):
        self.loss_unit = loss_unit
        self.best_path = best_path
        self.best_loss = None
        self.max_update = None
        self.unigram_bits = None

    def format_line(self, text):
        """Turns a line of the log into one of the report; None for a line that is left out."""
        record = LOG_RECORD.match(text)
        if not record:
            return text if ERROR_LINE.match(text) else None
        level, logger, message = record.groups()
        if logger == "py.warnings" or any(phrase in message for phrase in HIDDEN_PHRASES):
            return None
        if message.startswith("{") and logger == "train_inner":
            return self.format_update(json.loads(message))
        if message.startswith("{") and logger == "valid":
            return self.format_validation(json.loads(message))
        return self.format_message(level, logger, message)

    def format_message(self, level, logger, message):
        """As `format_line`, of a message that has no numbers of training or validation."""
        frequencies = re.search(r"^unigram_bits ([\d.]+)", message)
        if frequencies:
            self.unigram_bits = float(frequencies[1])
        if level in ("WARNING", "ERROR", "CRITICAL") or logger.startswith("maelm_fairseq"):
            return message
        limit = re.search(r"^Stopping training due to .* > stop_time_hours: ([\d.]+)", message)
        if limit:
            return (
                "stopping before the last update: the training has taken the "
                f"{limit[1]} hours of --stop-time-hours"
            )
        configured = re.search(r"^\{'.*'max_update': (\d+)", message)
        if configured:
            self.max_update = int(configured[1])
        shown = SHOWN_MESSAGE.match(message)
        if shown and shown[0].startswith("done training") and self.best_loss and self.best_path:
            best = f"{self.best_loss}{self.loss_unit}, in {self.best_path}"
            return f"{shown[0]}; lowest validation loss: {best}"
        return shown and shown[0]

    def format_update(self, stats):
        update = int(stats["num_updates"])
        text = f"update {update:,}"
        if self.max_update:
            text += f" of {self.max_update:,}"
        text += f": {self.format_scores(stats)}, learning rate {stats['lr']}"
        text += f", {float(stats['wps']):,.0f} tokens/s"
        if self.max_update:
            seconds = (self.max_update - update) / max(float(stats["ups"]), 1e-3)
            text += f", {datetime.timedelta(seconds=int(seconds))} left"
        return text

    def format_validation(self, stats):
        self.best_loss = stats.get("valid_best_loss")
        comparison = self.compare_with_unigram(float(stats["valid_loss"]))
        scores = self.format_scores(stats, "valid_")
        return f"validation after {int(stats['valid_num_updates']):,} updates: {scores}{comparison}"

    def compare_with_unigram(self, loss):
        """What a validation loss means, compared with the loss of token frequencies."""
        if self.unigram_bits is None:
            return ""
        if loss < self.unigram_bits:
            comparison = "token frequencies alone give"
        else:
            comparison = "no better than token frequencies,"
        return f" ({comparison} {self.unigram_bits})"

    def format_scores(self, stats, prefix=""):
        """Loss, accuracy and other scores, as far as they are logged."""
        text = f"loss {stats[prefix + 'loss']}{self.loss_unit}"
        for name, unit in SCORE_UNITS.items():
            value = stats.get(prefix + name)
            if value:
                text += f", {name} {value}{unit}"
        return text


def read_validations(path):
    """What a log says of validations: {number of updates: {name: text}}, in that order.

    A run that was resumed has logged some of them twice; the later one counts.
    """
    by_update = {}
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if '"valid_num_updates"' in line:
                with contextlib.suppress(json.JSONDecodeError):  # a line that was cut
                    stats = json.loads(line[line.index("{") :])
                    by_update[int(stats["valid_num_updates"])] = stats
    return dict(sorted(by_update.items()))


def log_to(path):
    """Appends what this process logs to a file, as fairseq would print it, and prints a report."""
    logging.captureWarnings(True)
    handlers = [
        logging.FileHandler(path, encoding="utf-8", errors="backslashreplace"),
        ReportHandler(best_checkpoint_path(os.path.dirname(path))),
    ]
    level = os.environ.get("LOGLEVEL", "INFO").upper()  # as in fairseq
    logging.basicConfig(
        handlers=handlers, format=LOG_FORMAT, datefmt="%Y-%m-%d %H:%M:%S", level=level, force=True
    )
