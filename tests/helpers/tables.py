"""Tables in Markdown, as tests read them."""

import re


def rows_of(text, title):
    """The cells of a section's first table: {first cell: the others}."""
    sections = re.split(r"^## ", text, flags=re.M)
    (section,) = [section for section in sections if section.startswith(title)]
    rows = {}
    for line in section.splitlines()[1:]:
        if line.startswith("|"):
            first, *others = [cell.strip() for cell in line.strip("|").split("|")]
            rows[first] = others
    return rows


def cells(table, name):
    """The cells of the row of a Markdown table that begins with this name."""
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]
