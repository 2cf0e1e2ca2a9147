#!/usr/bin/env bash
# Raw text -> a folder for fairseq-train. `prepare.sh --help` lists the options; docs/data.md explains them.
exec bash "$(dirname "${BASH_SOURCE[0]}")/run.sh" prepare.py "$@"
