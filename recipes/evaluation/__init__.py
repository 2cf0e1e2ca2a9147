"""The evaluation of pretrained encoders that `recipes/evaluate.sh` runs."""

from maelm_fairseq.base.errors import InstallationError

try:
    import pandas  # noqa: F401
    import scipy  # noqa: F401
    import sklearn  # noqa: F401
except ImportError as error:
    raise InstallationError(f"{error}: pip install -c constraints.txt '.[finetune]'") from None
