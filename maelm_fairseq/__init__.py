"""MAE-LM for fairseq: masked language modelling with the masks left out of the encoder.

`--user-dir` imports this package. Everything that registers itself is imported here by name: fairseq itself would
import only files in `tasks/` and `models/`, never criterions.
"""

from . import compat  # isort: skip  first: it recognises a fairseq that does not work
from . import criterion, errors, model, optimizer, sentence_criterion, squad, task, training_command  # noqa: F401

__version__ = "0.2.0"

if compat.is_command():
    errors.show_in_one_line()
    compat.allow_fairseq_checkpoints()
    training_command.extend()
