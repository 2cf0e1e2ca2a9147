"""Running the `main()` of a program: quietly, with errors in one line without a stack trace."""

import contextlib
import logging
import os
import signal
import sys
import warnings

from .errors import one_line
from .standard_streams import accept_any_text, print_error
from .utf8 import check_unicode

SHOW_TRACEBACK = "MAELM_TRACEBACK"  # set in the environment, it shows stack traces, too


def run_main(main):
    """Runs the `main()` of one of this project's programs: quietly, with errors in one line.

    Ctrl-C ends it as the signal would, and a closed pipe does, too, but only after half-written
    output has been removed. A program that is killed leaves such output under a hidden name; the
    next run removes it.
    """
    logging.disable(logging.INFO)
    # Whoever reads the output may be gone. Logging ignores that; the next print ends the program.
    logging.raiseExceptions = False
    warnings.simplefilter("ignore")
    accept_any_text()
    try:
        check_unicode([*sys.argv, os.getcwd()])
        main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        end_by(signal.SIGINT)
    except BrokenPipeError:
        end_by(signal.SIGPIPE)
    except Exception as error:
        line = one_line(error)
        if line is None or SHOW_TRACEBACK in os.environ:
            raise
        with contextlib.suppress(OSError):  # which may be the error
            sys.stdout.flush()
        print_error(line)
        # sys.exit would wait for a pool of processes, which may never end after one was killed.
        os._exit(1)


def end_by(number):
    """Ends this process as an unhandled signal would."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
