"""Turns the log of fairseq-train --log-format json into a short progress report."""

import contextlib
import datetime
import json
import logging
import os
import re

FORMAT = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"  # fairseq's
RECORD = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \| (\w+) \| (\S+) \| (.*)$")
SHOWN = re.compile(r"^(Saved checkpoint .*(?= \(epoch)|Loaded checkpoint .*?(?= \(epoch \d+ @ 0 |$)|done training.*)")
ERROR = re.compile(r"^(\w[\w.]*(Error|Exception|Interrupt)\b|([\w-]+: )?error: )")
SCORES = {"accuracy": "%", "f1": "%", "exact": "%", "matthews": "", "pearson": ""}  # and their units
USELESS = ("Please install tensorboardX", "TensorBoard", "could not be loaded", "your device does NOT support")


class Progress(logging.Handler):
    """Prints the report of what is logged; `line` turns a line of the log into one of the report, or None."""

    max_update = unigram_bits = None
    unit = " bits"  # of the loss

    def emit(self, record):
        line = None if record.exc_info else self.line(self.format(record))
        if line:
            with contextlib.suppress(OSError):  # training continues when nobody reads this any more
                print(line, flush=True)

    def line(self, text):
        record = RECORD.match(text)
        if not record:
            return text if ERROR.match(text) else None
        level, logger, message = record.groups()
        if logger == "py.warnings" or any(phrase in message for phrase in USELESS):
            return None
        if message.startswith("{") and logger in ("train_inner", "valid"):
            stats = json.loads(message)
            if logger == "train_inner":
                return self.update(stats)
            verdict = self.verdict(float(stats["valid_loss"]))
            return f"validation after {stats['valid_num_updates']} updates: {self.quality(stats, 'valid_')}{verdict}"
        frequencies = re.search(r"^unigram_bits ([\d.]+)", message)
        if frequencies:
            self.unigram_bits = float(frequencies[1])
        if level in ("WARNING", "ERROR", "CRITICAL") or logger.startswith("maelm_fairseq"):
            return message
        limit = re.search(r"^Stopping training due to .* > stop_time_hours: ([\d.]+)", message)
        if limit:
            return f"stopping before the last update: the training has taken the {limit[1]} hours of --stop-time-hours"
        configured = re.search(r"^\{'.*'max_update': (\d+)", message)
        if configured:
            self.max_update = int(configured[1])
        shown = SHOWN.match(message)
        return shown and shown[0]

    def update(self, stats):
        update, of, left = int(stats["num_updates"]), "", ""
        if self.max_update:
            of = f" of {self.max_update:,}"
            seconds = (self.max_update - update) / max(float(stats["ups"]), 1e-3)
            left = f", {datetime.timedelta(seconds=int(seconds))} left"
        speed = f"{float(stats['wps']):,.0f} tokens/s"
        return f"update {update:,}{of}: {self.quality(stats)}, learning rate {stats['lr']}, {speed}{left}"

    def verdict(self, loss):
        """What a loss of validation means beside that of token frequencies."""
        if self.unigram_bits is None:
            return ""
        comparison = "token frequencies alone have" if loss < self.unigram_bits else "no better than token frequencies,"
        return f" ({comparison} {self.unigram_bits})"

    def quality(self, stats, prefix=""):
        """Loss, accuracy and other scores, as far as they are logged."""
        shown = [f", {name} {stats[prefix + name]}{unit}" for name, unit in SCORES.items() if stats.get(prefix + name)]
        return f"loss {stats[prefix + 'loss']}{self.unit}" + "".join(shown)


def log_to(path):
    """Appends what this process logs to a file, as fairseq would print it, and prints the report of it."""
    logging.captureWarnings(True)
    handlers = [logging.FileHandler(path, encoding="utf-8", errors="backslashreplace"), Progress()]
    level = os.environ.get("LOGLEVEL", "INFO").upper()  # as in fairseq
    logging.basicConfig(handlers=handlers, format=FORMAT, datefmt="%Y-%m-%d %H:%M:%S", level=level, force=True)
