"""MAE-LM for fairseq: masked language modelling with the masks left out of the encoder.

`--user-dir` imports this package. Everything that registers itself is imported here by name: fairseq itself would
import only files in `tasks/` and `models/`, never criterions.
"""

from .engine import versions  # isort: skip  first: it recognises a fairseq that does not work
from . import criterion, model, task  # noqa: F401
from .engine import errors, optimizer, replaced  # noqa: F401
from .finetuning import sentence_criterion, squad  # noqa: F401

__version__ = "0.2.0"

if versions.is_command():
    errors.show_in_one_line()
    versions.allow_fairseq_checkpoints()
    replaced.extend()
