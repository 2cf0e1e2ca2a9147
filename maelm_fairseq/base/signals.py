"""The signals that ask a program to stop, and how it then ends; shared by trainings and by what starts them."""

import ctypes
import signal

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT)
STOPPED = 75  # exit status of a run that stopped on request: EX_TEMPFAIL of sysexits.h, "try again later"
LIBC, PR_SET_PDEATHSIG = ctypes.CDLL(None), 1  # of linux/prctl.h


def end_with_parent():
    """Has this process sent SIGTERM when the one that started it is killed."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
