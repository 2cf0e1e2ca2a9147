"""Fields of dataclasses that are options of fairseq, and what fairseq takes from its environment."""

from dataclasses import field

# Variables by which fairseq takes a process for one of several, whatever its options say.
CLUSTER = ["WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"]


def setting(default, help):
    """A field with a default, and with the text that --help shows of its option."""
    return field(default=default, metadata={"help": help})
