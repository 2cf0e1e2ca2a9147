"""Tables in Markdown."""

import math


def table(header, rows):
    """A table in Markdown.

    Args:
        header: the names of the columns
        rows: lists of cells: texts; numbers, which get two decimals unless they are whole; None and NaN are empty
    """
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(map(shown, line)) + " |\n" for line in lines)


def shown(cell):
    """A cell as a text. Ties are rounded alike whatever the order of the sums that gave them."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, float):
        return f"{round(cell, 9):.2f}"
    return str(cell).replace("|", "\\|")
