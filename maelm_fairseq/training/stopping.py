"""Stopping on request, by the signals of `base.signals`: all processes notice at the same update.

A signal is only noted when it arrives. The note travels with the logging outputs that fairseq sums over the processes
in every update, so that all of them see it at once, whichever process was sent the signal.
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
from multiprocessing import resource_tracker

import torch

from ..base.signals import SIGNALS, STOPPED

logger = logging.getLogger(__name__)

KEY = "stop_requested"  # among the logging outputs


class StopRequested(Exception):
    """Ends a validation, when a process was asked to stop."""


class Process:
    """What this process knows of requests to stop."""

    pid = None  # of the process that handles signals; not of the loader workers forked from it
    announces = False  # whether to confirm a request on standard error
    passes_on = False  # whether it only starts processes, and passes requests on to them
    received = False  # a signal arrived here
    agreed = False  # all processes know that one did


def handle_signals(announce, pass_on=False):
    """Installs the signal handlers; for fairseq's training commands, never for a program that imports us.

    To announce a request is to confirm it on standard error; a process that does not train but waits for processes of
    `multiprocessing` that do passes it on to them.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if Process.pid is None:
        os.register_at_fork(after_in_child=_protect_worker)
        atexit.register(_ignore)
    if pass_on:  # starts the helper that processes share such that it outlives signals to the whole group
        handlers = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
        resource_tracker.ensure_running()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    Process.pid, Process.announces, Process.passes_on = os.getpid(), announce, pass_on
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _note)


def _ignore():
    """Keeps the exit status of a program that has done its work: the interpreter's end takes a moment."""
    if os.getpid() == Process.pid:
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)


def _note(number, frame):
    """The signal handler."""
    if os.getpid() != Process.pid:
        return
    if number == signal.SIGINT:
        signal.signal(number, signal.SIG_DFL)  # a second Ctrl-C ends the process at once
    if Process.announces and not Process.received:
        message = "{}: training stops with a checkpoint after this update{}\n"
        again = "; Ctrl-C again stops at once" if number == signal.SIGINT else ""
        with contextlib.suppress(OSError):  # who read it may have been killed
            os.write(2, message.format(signal.Signals(number).name, again).encode())
    Process.received = True
    if Process.passes_on:
        for process in multiprocessing.active_children():
            process.terminate()


def _protect_worker():
    """Lets a loader worker live until the process that it works for ends it, when a whole group is sent SIGTERM.

    PyTorch's workers die from a SIGTERM of any process but that one, and take the run with them. The other signals
    reach `_note`, which leaves workers alone.
    """
    if os.getppid() == Process.pid:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_end_with, args=(Process.pid,), daemon=True).start()


def _end_with(parent):
    """Ends this process when `parent` sends it SIGTERM."""
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
        pass
    os._exit(0)


def listen(task):
    """Has the steps of a task of any class tell, and its metrics hear, that a process was asked to stop.

    A validation then ends with `StopRequested`.
    """
    if vars(task).get("reduce_metrics") is not None:
        return

    def telling(step):
        @functools.wraps(step)
        def tell(*args, **kwargs):
            loss, sample_size, logging_output = step(*args, **kwargs)
            return loss, sample_size, {**logging_output, KEY: int(Process.received)}

        return tell

    def reduce_metrics(logging_outputs, criterion, original=task.reduce_metrics):
        if any(log.get(KEY, 0) for log in logging_outputs):
            Process.agreed = True
            if not criterion.training:
                raise StopRequested
        original([{key: value for key, value in log.items() if key != KEY} for log in logging_outputs], criterion)

    task.train_step, task.valid_step = telling(task.train_step), telling(task.valid_step)
    task.reduce_metrics = reduce_metrics


def stop(update, saved, without=()):
    """Ends this process when all have come here, with the status `STOPPED` if the same command resumes, else 1.

    The checkpoint of an update is in the folder `saved`, if there is one; options in `without` begin the run anew.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()  # whoever ends first must not have the process that saves killed
    again = "the same command" + (f" without {' and '.join(without)}" if without else "")
    what = f"{again} resumes from {os.path.abspath(saved)}" if saved else "no checkpoint was saved, as the options say"
    logger.info(f"stopped on request at update {update}; {what}")
    sys.exit(STOPPED if saved and not without else 1)  # the first means that the same command resumes
