"""Blocks of a page of results: what stands between <!-- NAME --> and <!-- end -->."""

import re


def with_blocks(text, block):
    """The text of a page with new blocks.

    Args:
        text: text of the page
        block: returns the new text of the block of a name
    """

    def replace(match):
        return f"<!-- {match[1]} -->\n{block(match[1]).strip()}\n<!-- end -->"

    return re.sub(r"<!-- (\w+) -->\n.*?<!-- end -->", replace, text, flags=re.S)
