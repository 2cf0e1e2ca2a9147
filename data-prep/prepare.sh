#!/usr/bin/env bash
# Raw text -> a folder for fairseq-train. `prepare.sh --help` lists the options; docs/data.md explains them.
# Its Python is one that has the packages: PYTHON if set, otherwise python3 or that of `make install`.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
packages=(fairseq numpy sentencepiece)
candidates=(python3 "$here/../.venv/bin/python")
if [ -n "${PYTHON:-}" ]; then candidates=("$PYTHON"); fi
for python in "${candidates[@]}"; do
  if "$python" -c 'import sys; from importlib.util import find_spec; sys.exit(None in map(find_spec, sys.argv[1:]))' \
    "${packages[@]}" 2>/dev/null; then
    exec "$python" "$here/prepare.py" "$@"
  fi
done
echo "error: ${candidates[0]} is missing, or lacks one of ${packages[*]}: run \`make install\`, or set PYTHON to an" \
  "interpreter that has them all" >&2
exit 1
