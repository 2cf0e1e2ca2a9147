"""Whether finished work is still valid: its record, written first, says what it is made from."""

from .errors import UsageError


def by_option(options):
    """A list of options as {option: its values}, such as {"--lr": ["0.001"]}; of a repeated option, the last counts."""
    found = {}
    for word in options:
        if word.startswith("--"):
            values = found[word] = []
        else:
            values.append(word)
    return found


def check(path, was, now, fix):
    """Refuses work that was made from something else.

    Args:
        path: of the work
        was, now: {title: a digest, or options}
        fix: what the user can do
    Raises:
        UsageError: they differ
    """
    different = [title for title in {**now, **was} if was.get(title) != now.get(title)]
    if different:
        raise UsageError(f"{path}: was made with different {' and '.join(different)}; {fix}")
