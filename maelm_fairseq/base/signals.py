"""The signals that ask a program to stop, and how it then ends; shared by trainings and by what starts them."""

import signal

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT)
STOPPED = 75  # exit status of a run that stopped on request: EX_TEMPFAIL of sysexits.h, "try again later"
