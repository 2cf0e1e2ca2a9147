# shellcheck shell=bash
# Sourced by the recipes: finds the environment of their programs, in Python.

set -euo pipefail

recipes=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

# Uses the environment that `make install` created, unless one is active.
use_environment() {
  local root=${recipes%/*}
  if ! command -v fairseq-train >/dev/null && [ -x "$root/.venv/bin/fairseq-train" ]; then PATH=$root/.venv/bin:$PATH; fi
  if ! command -v fairseq-train >/dev/null; then
    echo "error: no environment with fairseq: run \`make install\`, or activate yours" >&2
    exit 1
  fi
  # Recipes import this repository's plugin, installed or not.
  export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
  export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-1000} # threads that spin for long while they wait are slow on a busy machine
}

# become PROGRAM ARGUMENT...: becomes a program in Python.
become() {
  use_environment
  echo "loading ..." >&2 || exec 2>/dev/null # whoever started this has closed it
  exec python "$@"
}

# pretrain OPTION...: becomes the training of the recipe that calls it, pretrain_NAME.sh.
pretrain() {
  become "$recipes/pretrain.py" "$(readlink -f "$0")" "$@"
}
