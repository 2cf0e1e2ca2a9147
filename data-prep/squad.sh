#!/usr/bin/env bash
# SQuAD's JSON -> a folder for fairseq-train. `squad.sh --help` lists the options; docs/data.md explains them.
exec bash "$(dirname "${BASH_SOURCE[0]}")/run.sh" squad.py "$@"
