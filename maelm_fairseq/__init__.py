"""MAE-LM for fairseq: masked language modelling with the masks left out of the encoder.

`--user-dir` imports this package, and fairseq itself imports only files in `tasks/` and `models/`,
never criterions: so those that register themselves are imported here by name.
"""

from . import engine  # noqa: F401  first: it tells apart a fairseq that cannot work
from . import task, model, criterion, optimizer, squad  # noqa: F401  E402

__version__ = "0.1.0"
