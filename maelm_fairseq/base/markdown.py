"""Tables in Markdown."""

import math


def markdown_table(header, rows):
    """A table in Markdown.

    Args:
        header: the names of the columns
        rows: lists of cells: texts; numbers, which get two decimals unless they are whole; None and
            NaN are empty
    """
    lines = [header, ["---"] * len(header), *rows]
    texts = [" | ".join(map(format_cell, line)) for line in lines]
    return "".join(f"| {text} |\n" for text in texts)


def format_cell(cell):
    """A cell as a text.

    It is rounded twice, so that a tie is rounded the same way, whatever the order of its sum was.
    """
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, float):
        return f"{round(cell, 9):.2f}"
    return str(cell).replace("|", "\\|")
