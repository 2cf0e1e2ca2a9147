# shellcheck shell=bash
# Shared by the cluster tests: each runs in namespaces of its own (processes, mounts, network, host name), which end
# with it, whatever ends it, together with every process in them. Nothing outside them is changed but one folder.

set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
deadline_s=900 # for each thing that is waited for

say() { printf '%s %s\n' "$(date +%T)" "$*"; }

fail() {
  echo "$(basename "$0"): error: $*" >&2
  exit 1
}

# start [--keep]: runs this script's `main` in new namespaces, in the folder $dest.
start() {
  if [ -n "${CLUSTER_TEST_DEST:-}" ]; then
    dest=$CLUSTER_TEST_DEST
    ip link set lo up
    cd "$repository"
    main
    exit
  fi
  local keep=0 status=0
  case ${1:-} in
    '') ;;
    --keep) keep=1 ;;
    *) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit ;;
  esac
  ((EUID == 0)) || fail "this needs root, to create namespaces"
  command -v fairseq-train >/dev/null || fail "fairseq is not installed: make install; . .venv/bin/activate"
  dest=$(mktemp -d)
  chmod 755 "$dest"
  trap '((keep)) && echo "kept: $dest" || rm -rf "$dest"' EXIT
  trap 'kill -KILL "$inside"; exit 143' TERM INT HUP
  CLUSTER_TEST_DEST=$dest setpriv --pdeathsig KILL \
    unshare --mount --net --pid --uts --ipc --fork --kill-child --mount-proc "$BASH" "$0" &
  inside=$!
  wait "$inside" || status=$?
  exit "$status"
}

# wait_for WHAT COMMAND...: until the command succeeds.
wait_for() {
  local what=$1 until=$((SECONDS + deadline_s))
  until "${@:2}"; do
    ((SECONDS < until)) || fail "waited $deadline_s s in vain for $what"
    sleep 0.2
  done
}

# Whether the pattern $2 occurs in the file $1, which may not exist yet.
occurs() { grep -qE -- "$2" "$1" 2>/dev/null; }

# Prints the number of the last update that the log of the run in folder $1 shows, or 0.
last_update() {
  local numbers
  numbers=$(grep -soE '"num_updates": "[0-9]+"' "$1/train.log" | tr -cd '0-9\n' || true)
  echo "${numbers##*$'\n'}" | sed 's/^$/0/'
}

has_update() { (($(last_update "$1") >= $2)); }

# Writes a few lines of text, the files that the data are prepared from.
write_text() {
  PYTHONPATH=$repository/tests python -c '
import sys
from pathlib import Path
from conftest import documents, text_of

for split, count, seed in [("train", 8000, 1), ("valid", 40, 2)]:
    Path(sys.argv[1], split + ".txt").write_text(text_of(documents(count, seed)))
' "$dest"
}

# check_updates FOLDER: every update was logged once: none was lost or repeated.
check_updates() {
  python - "$1/train.log" "$updates" <<'EOF'
import re, sys

seen = [int(n) for n in re.findall(r'train_inner \| .*?"num_updates": "(\d+)"', open(sys.argv[1]).read())]
wanted = list(range(1, int(sys.argv[2]) + 1))
if seen != wanted:
    sys.exit(f"error: {sys.argv[1]}: {len(seen)} updates from {seen[:1]} to {seen[-1:]}; not 1 to {len(wanted)} in turn")
EOF
}

# check_same_weights FOLDER FOLDER: both runs have made $updates updates, and their last checkpoints are equal.
check_same_weights() {
  TESTS_FORK=0 PYTHONPATH=$repository/tests python - "$1" "$2" "$updates" <<'EOF'
import sys
from pathlib import Path
from training import assert_same_weights, updates

one, other = map(Path, sys.argv[1:3])
assert updates(one) == updates(other) == int(sys.argv[3]), (updates(one), updates(other))
assert_same_weights(one, other, 0)
EOF
}

updates=400

# pretrain_options FOLDER: the options of a run that takes about a minute: all but those that depend on the machine.
pretrain_options() {
  options=(--gpus 0 --batch-size 16 --save-dir "$1" --encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 64
    --encoder-ffn-embed-dim 128 --tokens-per-sample 32 --max-positions 32 --batch-size-valid 16
    --max-update "$updates" --total-num-update "$updates" --warmup-updates 10 --log-interval 1
    --save-interval-updates 100 --stop-time-hours 0)
}
