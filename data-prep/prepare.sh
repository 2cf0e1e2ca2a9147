#!/usr/bin/env bash
# Raw text -> a folder for fairseq-train. `prepare.sh --help` lists the options; docs/data.md explains them.
# Its Python is PYTHON if set, otherwise that of an active environment with fairseq, or else that of `make install`.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
installed=$here/../.venv/bin
if ! command -v fairseq-train >/dev/null && [ -x "$installed/fairseq-train" ]; then PATH=$installed:$PATH; fi
exec "${PYTHON:-python3}" "$here/prepare.py" "$@"
