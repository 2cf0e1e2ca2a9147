"""`python -m maelm_fairseq.effective_rank`: the name that users know of :mod:`maelm_fairseq.analysis`."""

from .analysis.rank_command import main
from .analysis.token_moments import TokenMoments, analyse, draw_blocks, effective_rank, measure  # noqa: F401
from .base.errors import run

if __name__ == "__main__":
    run(main)
