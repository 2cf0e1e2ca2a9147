# Runs a program of this folder with a Python that has the packages: PYTHON if set, otherwise python3 or make install's.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
packages=(fairseq numpy sentencepiece)
candidates=(python3 "$here/../.venv/bin/python")
if [ -n "${PYTHON:-}" ]; then candidates=("$PYTHON"); fi
for python in "${candidates[@]}"; do
  if "$python" -c 'import sys; from importlib.util import find_spec; sys.exit(None in map(find_spec, sys.argv[1:]))' \
    "${packages[@]}" 2>/dev/null; then
    exec "$python" "$here/$1" "${@:2}"
  fi
done
echo "error: ${candidates[0]} lacks one of ${packages[*]}: run \`make install\`, or set PYTHON to an interpreter that has" \
  "them all" >&2
exit 1
