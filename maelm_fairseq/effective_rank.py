"""`python -m maelm_fairseq.effective_rank`: the name that users know of :mod:`maelm_fairseq.analysis`."""

from .analysis.effective_rank import TokenMoments, analyse, draw_blocks, effective_rank, measure  # noqa: F401
from .analysis.rank_command import main
from .base.errors import run

if __name__ == "__main__":
    run(main)
