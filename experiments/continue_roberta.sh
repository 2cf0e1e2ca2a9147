#!/usr/bin/env bash
# Continues a RoBERTa in three ways; `continue_roberta.sh --help` lists the options.
. "$(dirname "${BASH_SOURCE[0]}")/../recipes/lib.sh"
use_environment
exec python "$(dirname "${BASH_SOURCE[0]}")/continue_roberta.py" "$@"
