#!/usr/bin/env python3
"""Checks prepared data: nothing was lost, sampled lines give the same tokens when they are
encoded again, and the counts are plausible.

Exits with status 1 if a check fails.
"""

import find_plugin  # noqa: F401  finds the plugin and its packages

# isort: split
from maelm_fairseq.base.command_line import Parser
from maelm_fairseq.base.running import run_main
from maelm_fairseq.preparation.checks import check_prepared_data
from maelm_fairseq.preparation.manifest import read_manifest


def main():
    parser = Parser(description=__doc__)
    parser.add_argument("dest", metavar="DEST", help="folder that prepare.sh wrote")
    dest = parser.parse_args().dest
    manifest = read_manifest(dest)
    check_prepared_data(dest, manifest, range(manifest.options.shards))


if __name__ == "__main__":
    run_main(main)
