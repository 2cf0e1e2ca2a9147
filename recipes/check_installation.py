"""Says in one line, with the mend, why fairseq cannot work here, and exits 1; or exits 0."""

import logging
import os
import sys
import warnings

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
logging.disable(logging.INFO)  # fairseq greets with hints that help nobody
warnings.simplefilter("ignore")

import maelm_fairseq  # noqa: E402, F401
