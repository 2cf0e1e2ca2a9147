"""The evaluation of pretrained encoders that `recipes/evaluate.sh` runs."""

import sys

from maelm_fairseq.base.errors import install

try:
    import pandas  # noqa: F401
    import scipy  # noqa: F401
    import sklearn  # noqa: F401
except ImportError as error:
    sys.exit(f"error: {error}: {install('finetune')}")
