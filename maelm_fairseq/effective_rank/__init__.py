"""The effective rank of token representations: `measurement` has the mathematics, `report` the tables and the figure.

`python -m maelm_fairseq.effective_rank` measures checkpoints and writes both.
"""

from .measurement import (  # noqa: F401
    FAMILIES,
    TAU,
    TokenMoments,
    analyse,
    draw_blocks,
    effective_rank,
    last_layer_ranks,
    measure,
)
from .report import draw, import_pyplot, write_csv  # noqa: F401
