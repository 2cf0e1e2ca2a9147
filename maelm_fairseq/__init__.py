"""MAE-LM for fairseq: masked language modelling with the masks left out of the encoder.

`--user-dir` imports this package; fairseq itself would import only files in `tasks/` and `models/`, never criterions, so
whatever registers itself is imported here by name.
"""

from . import (  # noqa: F401  E402
    compat,  # noqa: F401  first: it recognises a fairseq that does not work
    criterion,
    errors,
    model,
    optimizer,
    squad,
    task,
)

__version__ = "0.2.0"

if compat.is_command():
    errors.show_in_one_line()
    compat.allow_fairseq_checkpoints()
