#!/usr/bin/env bash
# Checks and measures MAE-LM on one GPU, in less than eight minutes and without a network; prints Markdown.
#
#   benchmarks/gpu.sh [--wheels DIR] [OPTION...] >results.md
#
# --wheels DIR   use the packages in DIR/*.whl, for this Python and machine, beside those that are installed
# All other options go to gpu.py, whose --help lists them.
#
# Where fairseq is missing and nothing can be downloaded, carry its wheels along, made on a similar machine with a network
# (for Python 3.12; names that are installed there anyway can be left out):
#   python3.12 -m pip wheel --no-deps --wheel-dir DIR ve-fairseq==0.12.3 hydra-core==1.3.8 omegaconf==2.3.1 \
#     antlr4-python3-runtime==4.9.3 bitarray cffi pycparser regex sacrebleu portalocker tabulate colorama lxml

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

fail() {
  echo "error: $*" >&2
  exit 1
}

wheels='' arguments=()
while (($#)); do
  case $1 in
    --wheels=*) wheels=${1#*=}; shift ;;
    --wheels)
      if (($# < 2)); then fail "--wheels needs a folder"; fi
      wheels=$2; shift 2 ;;
    *) arguments+=("$1"); shift ;;
  esac
done

python=${PYTHON:-python3}
if [ -z "${PYTHON:-}" ] && [ -x "$root/.venv/bin/python" ]; then python=$root/.venv/bin/python; fi
python=$(command -v "$python") || fail "no $python found; PYTHON=... names another"

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
mkdir "$temporary/bin"

path=$root
if [ -n "$wheels" ]; then
  compgen -G "$wheels/*.whl" >/dev/null || fail "--wheels $wheels: no *.whl in it"
  "$python" -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --disable-pip-version-check \
    --target "$temporary/site" "$wheels"/*.whl >&2
  path=$root:$temporary/site
fi
export PYTHONPATH=$path${PYTHONPATH:+:$PYTHONPATH}

# Recipes find this Python, and fairseq in it, by their names.
printf '#!/bin/sh\nexec %q "$@"\n' "$python" >"$temporary/bin/python"
printf '#!/bin/sh\nexec %q -m fairseq_cli.train "$@"\n' "$python" >"$temporary/bin/fairseq-train"
chmod +x "$temporary/bin/"*
export PATH=$temporary/bin:$PATH

"$python" "$root/benchmarks/gpu.py" ${arguments[@]+"${arguments[@]}"}
