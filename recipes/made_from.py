"""Whether finished work is still valid: its record, written last, says what it was made from."""

from maelm_fairseq.engine.errors import UsageError


def differences(was, now):
    """The titles of what differs between two records of what something was made from: list of strings."""
    return [title for title in {**now, **was} if was.get(title) != now.get(title)]


def check(path, was, now, fix):
    """Refuses work that was made from something else.

    Args:
        path: of the work
        was, now: {title: a digest, or options}
        fix: what the user can do
    Raises:
        UsageError: they differ
    """
    different = differences(was, now)
    if different:
        raise UsageError(f"{path}: was made with different {' and '.join(different)}; {fix}")
