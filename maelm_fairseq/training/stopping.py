"""Stopping on request, by the signals of `base.signals`: all processes notice at the same update.

A signal is only noted when it arrives. The note travels with the logging outputs that fairseq sums
over the processes in every update, so that all of them see it at once, whichever process was sent
the signal.
"""

import atexit
import contextlib
import functools
import logging
import multiprocessing
import os
import signal
import sys
import threading
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import Optional

import torch

from .. import distributed
from ..base.signals import EXIT_STOPPED, SIGNALS, handle_unless_ignored

logger = logging.getLogger(__name__)

STOP_LOG_KEY = "stop_requested"  # among the logging outputs


class StopRequested(Exception):
    """Ends a validation after a process was asked to stop."""


@dataclass
class StopState:
    """What this process knows of requests to stop."""

    pid: Optional[int] = None  # of the process that handles signals; not of its loader workers
    announces: bool = False  # whether to confirm a request on standard error
    passes_on: bool = False  # whether it only starts processes, and passes requests on to them
    received: bool = False  # a signal arrived here
    agreed: bool = False  # all processes know that one did


stop_state = StopState()


def handle_signals(announce, pass_on=False):
    """Installs the signal handlers.

    For fairseq's training commands, never for a program that imports us.

    Args:
        announce: whether to confirm a request on standard error
        pass_on: whether this process does not train, but waits for processes of `multiprocessing`
            that do, and passes a request on to them
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if stop_state.pid is None:
        os.register_at_fork(after_in_child=protect_worker)
        atexit.register(ignore_signals)
    if pass_on:
        # The helper that all processes share inherits that signals are ignored, so that it outlives
        # those that are sent to the whole group.
        handlers = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
        resource_tracker.ensure_running()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    stop_state.pid = os.getpid()
    stop_state.announces = announce
    stop_state.passes_on = pass_on
    handle_unless_ignored(note_request)


def ignore_signals():
    """Ignores signals, so that a program that has done its work keeps its exit status.

    The interpreter takes a moment to end.
    """
    if os.getpid() == stop_state.pid:
        for number in {*SIGNALS} - {signal.SIGINT}:  # Ctrl-C still ends it
            signal.signal(number, signal.SIG_IGN)


def note_request(number, frame):
    """The signal handler."""
    if os.getpid() != stop_state.pid:
        return
    if number == signal.SIGINT:
        signal.signal(number, signal.SIG_DFL)  # a second Ctrl-C ends the process at once
    if stop_state.announces and not stop_state.received:
        message = "{}: training stops with a checkpoint after this update{}\n"
        again = "; Ctrl-C again stops at once" if number == signal.SIGINT else ""
        with contextlib.suppress(OSError):  # whoever reads it may have been killed
            os.write(2, message.format(signal.Signals(number).name, again).encode())
    stop_state.received = True
    if stop_state.passes_on:
        for process in multiprocessing.active_children():
            process.terminate()


def protect_worker():
    """Makes a loader worker ignore a SIGTERM that is not from the process that it works for.

    A whole group of processes may be sent the signal. PyTorch's workers would end, and the run
    would fail without them. The other signals reach `note_request`, which does nothing in workers.
    """
    if os.getppid() == stop_state.pid:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=end_when_parent_asks, args=(stop_state.pid,), daemon=True).start()


def end_when_parent_asks(parent):
    """Ends this process when `parent` sends it SIGTERM."""
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
        pass
    os._exit(0)


def share_stop_requests(task):
    """Makes a task tell all processes that one of them was asked to stop.

    Its steps add this to their logging outputs, from which `reduce_metrics` learns it. A validation
    then ends with `StopRequested`.
    """
    if vars(task).get("reduce_metrics") is not None:
        return

    def with_stop_entry(step):
        @functools.wraps(step)
        def wrapped_step(*args, **kwargs):
            loss, sample_size, logging_output = step(*args, **kwargs)
            return loss, sample_size, {**logging_output, STOP_LOG_KEY: int(stop_state.received)}

        return wrapped_step

    def reduce_metrics(logging_outputs, criterion, original=task.reduce_metrics):
        if any(log.get(STOP_LOG_KEY, 0) for log in logging_outputs):
            stop_state.agreed = True
            if not criterion.training:
                raise StopRequested
        logging_outputs = [without_request(log) for log in logging_outputs]
        original(logging_outputs, criterion)

    task.train_step = with_stop_entry(task.train_step)
    task.valid_step = with_stop_entry(task.valid_step)
    task.reduce_metrics = reduce_metrics


def without_request(log):
    """A logging output without what `share_stop_requests` has added to it."""
    return {key: value for key, value in log.items() if key != STOP_LOG_KEY}


def stop(update, checkpoint_folder, restarting_options=()):
    """Ends this process when all processes have called this function.

    Its exit status is `EXIT_STOPPED` if the same command resumes the run, else 1.

    Args:
        update: the last one
        checkpoint_folder: the folder with its checkpoint, None if there is none
        restarting_options: options of the command that would begin the run anew
    """
    if distributed.is_running():
        # When the first process ends, the others may be killed, also the one that saves.
        torch.distributed.barrier()
    command = "the same command"
    if restarting_options:
        command += f" without {' and '.join(restarting_options)}"
    if checkpoint_folder:
        outcome = f"{command} resumes from {os.path.abspath(checkpoint_folder)}"
    else:
        outcome = "no checkpoint was saved (--no-save or --no-last-checkpoints)"
    logger.info(f"stopped on request at update {update}; {outcome}")
    sys.exit(EXIT_STOPPED if checkpoint_folder and not restarting_options else 1)
