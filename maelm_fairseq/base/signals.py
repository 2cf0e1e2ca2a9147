"""The signals that ask a program to stop, and how it then ends.

Trainings and the programs that start them share this.
"""

import ctypes
import signal

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT)
# The exit status of a run that stopped on request: EX_TEMPFAIL of sysexits.h, "try again later".
EXIT_STOPPED = 75
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def handle_unless_ignored(handler):
    """Installs a handler for SIGNALS, except for those that this process was started to ignore."""
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def end_with_parent():
    """Asks the system to send this process SIGTERM when the process that started it ends."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
