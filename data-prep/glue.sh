#!/usr/bin/env bash
# GLUE, or tasks of your own -> folders for fairseq-train. `glue.sh --help` lists the options; docs/data.md explains them.
exec bash "$(dirname "${BASH_SOURCE[0]}")/run.sh" glue.py "$@"
