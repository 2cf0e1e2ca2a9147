"""The names that fairseq gives to checkpoints, and which of them a run resumes from."""

import os
import re

from .errors import UsageError

LAST_CHECKPOINT = "checkpoint_last.pt"  # also the default of --restore-file
RUN_RECORD = "scores.json"  # beside the checkpoints of a run of the fine-tuning recipes


def last_checkpoint_path(save_dir, suffix=""):
    """The path of the last checkpoint; `suffix` is the value of `--checkpoint-suffix`."""
    return os.path.join(save_dir, f"checkpoint_last{suffix}.pt")


def best_checkpoint_path(save_dir, suffix=""):
    """The path of the best checkpoint."""
    return os.path.join(save_dir, f"checkpoint_best{suffix}.pt")


def interval_checkpoint_paths(save_dir, suffix=""):
    """The checkpoints of `--save-interval-updates` in a folder, newest first.

    Their names say the number of updates.

    Returns: {path: number of updates}
    """
    pattern = re.compile(rf"checkpoint_[0-9]+_([0-9]+){re.escape(suffix)}\.pt")
    names = os.listdir(save_dir) if os.path.isdir(save_dir) else []
    matches = [match for match in map(pattern.fullmatch, names) if match]
    updates = {os.path.join(save_dir, match[0]): int(match[1]) for match in matches}
    return dict(sorted(updates.items(), key=lambda item: item[1], reverse=True))


def resumable_checkpoint_paths(save_dir, suffix=""):
    """The paths that a run resumes from, in the order in which it tries them.

    The last checkpoint comes first, then the interval checkpoints.
    """
    paths = [last_checkpoint_path(save_dir, suffix), *interval_checkpoint_paths(save_dir, suffix)]
    return [path for path in paths if os.path.lexists(path)]


def other_checkpoint_paths(save_dir, suffix=""):
    """The paths of those that no run resumes from by itself, such as the best one."""
    return sorted(all_checkpoint_paths(save_dir) - {*resumable_checkpoint_paths(save_dir, suffix)})


def all_checkpoint_paths(save_dir):
    """The paths of all checkpoints in a folder, a set."""
    names = os.listdir(save_dir) if os.path.isdir(save_dir) else []
    checkpoints = [name for name in names if re.fullmatch(r"checkpoint.*\.pt", name)]
    return {os.path.join(save_dir, name) for name in checkpoints}


def first_accepted(paths, read):
    """The first of the checkpoints that a run can resume from.

    Args:
        paths: in the order in which they are tried
        read: a function of a path; it refuses a checkpoint by a UsageError
    Returns: its path, what `read` returned, and {path: error} of those before it
    Raises UsageError: there is none
    """
    refused = {}
    for path in paths:
        try:
            return path, read(path), refused
        except UsageError as error:
            refused[path] = error
    reasons = list(dict.fromkeys(map(str, refused.values())))
    if len(reasons) > 1:
        reasons[0] = f"none of {len(paths)} checkpoints can be resumed from: {reasons[0]}"
    raise UsageError("; ".join(reasons))
