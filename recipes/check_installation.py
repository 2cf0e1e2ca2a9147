"""Says in one sentence, with the mend, why this Python's fairseq cannot work, and exits 1; or exits 0."""

import logging
import sys

MEND = "run `make install`, or `pip install -c constraints.txt .` in a new virtual environment"


def problem():
    """Returns a sentence, or None where fairseq and torch can be imported."""
    try:
        import torch  # noqa: F401
        import fairseq  # noqa: F401
    except ModuleNotFoundError as error:
        return "{} has no module '{}': {}.".format(sys.executable, error.name, MEND)
    except Exception as error:
        if "mutable default" in str(error):
            return (
                "The official fairseq release is installed, which Python 3.11 and later cannot import: "
                "remove it (`pip uninstall fairseq`) and install ve-fairseq, the same code for newer "
                "Pythons (`pip install -c constraints.txt .`)."
            )
        lines = str(error).splitlines() or [""]
        return "fairseq is installed but cannot be imported ({}: {}): {}.".format(
            type(error).__name__, lines[0], MEND
        )


if __name__ == "__main__":
    logging.disable(logging.INFO)  # fairseq greets with a hint that helps nobody
    sentence = problem()
    if sentence:
        print(sentence, file=sys.stderr)
        sys.exit(1)
