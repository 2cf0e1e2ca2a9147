#!/usr/bin/env python3
"""Remakes the tables and pictures of RESULTS.md from the records alone.

    python page.py

Between <!-- NAME --> and <!-- end --> of the page stands what the function NAME returns; page_*.py
have these functions, by section.
"""

from pathlib import Path

from arms import encoders
from maelm_fairseq.base.command_line import Parser
from maelm_fairseq.base.files import atomic_write
from maelm_fairseq.base.running import run_main
from page_blocks import with_blocks
from page_claims import summary
from page_continuing import continuing
from page_pilots import instrument, masked, rates, tuning_rates
from page_ranks import closing, lemma, old_ranks, ranks_by_layer, theorem
from page_scores import ablations, baseline, by_task, old_scores, scores, seconds_of_an_update
from page_tests import tests, without_trec
from page_trajectories import trajectories, tuning
from results import Results

HERE = Path(__file__).resolve().parent


def remake(page, records, pictures):
    """Writes the page with new blocks, and the pictures."""
    results = Results(records)
    text = with_blocks(page.read_text(encoding="utf-8"), lambda name: BLOCKS[name](results))
    pictures.mkdir(exist_ok=True)
    for name, figure in results.pictures.items():
        with atomic_write(pictures / f"{name}.png", "wb") as stream:
            figure.savefig(stream, dpi=110, metadata={"Software": None})
    with atomic_write(page) as stream:
        stream.write(text)


def missing(results):
    """How many encoders are recorded, and which are not."""
    pairs = results.records[["arm", "seed"]].dropna().itertuples(index=False)
    recorded = {f"{arm}-{seed}" for arm, seed in pairs}
    not_recorded = [name for name in encoders() if name not in recorded]
    count = len(encoders())
    text = f"{count - len(not_recorded)} of {count} encoders are recorded"
    if not_recorded:
        text += f"; missing: {', '.join(not_recorded)}."
    return text


# The functions whose names are those of the blocks, in the order of the page.
SECTIONS = [
    baseline,
    summary,
    without_trec,
    missing,
    ranks_by_layer,
    scores,
    by_task,
    tests,
    lemma,
    theorem,
    closing,
    tuning,
    trajectories,
    ablations,
    seconds_of_an_update,
    old_scores,
    old_ranks,
    rates,
    tuning_rates,
    masked,
    instrument,
    continuing,
]
BLOCKS = {section.__name__: section for section in SECTIONS}


def main():
    Parser("page.py", description=__doc__).parse_args()
    remake(HERE / "RESULTS.md", HERE / "records", HERE / "pictures")


if __name__ == "__main__":
    run_main(main)
