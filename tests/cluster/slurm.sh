#!/usr/bin/env bash
# Tests recipes/slurm/ with a SLURM of its own: two nodes, which are two slurmd on this machine.
#
#   tests/cluster/slurm.sh [--keep]     which keeps the temporary folder for everything that is written
#
# Prepares data with prepare_data.sbatch, as an array, and compares them with those of prepare.sh alone. Then pretrains
# with pretrain.sbatch on both nodes, on the CPU, several times with the same options: without interruption, and
# interrupted by `scancel --signal=USR1`, `scontrol requeue` and a job of higher priority. The interrupted job must
# return to the queue, go on at the very next update, and end with the same weights. A cancelled job must not return.
#
# Needs root, and Debian's packages slurmctld, slurmd, slurm-client and munge. Their services need not run, and are not
# used: the test has its own slurm.conf, munge key and network. It runs in namespaces of its own, which end with it,
# whatever ends it, together with every process in them. Not part of the test suite; README.md records a run.

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

configure() {
  local address
  printf '127.0.0.1 localhost\n10.77.0.1 node1\n10.77.0.2 node2\n10.77.0.3 control\n' >"$dest/hosts"
  mount --bind "$dest/hosts" /etc/hosts
  hostname control
  ip link add link0 type veth peer name link1 # SLURM resolves no names where there is only a loopback interface
  for address in 10.77.0.1 10.77.0.2 10.77.0.3; do ip address add "$address/24" dev link0; done
  ip link set link0 up
  ip link set link1 up
  mkdir -p "$dest/slurm/state"
  export SLURM_CONF=$dest/slurm/slurm.conf GLOO_SOCKET_IFNAME=link0
  cat >"$SLURM_CONF" <<EOF
ClusterName=test
SlurmctldHost=control
AuthType=auth/munge
AuthInfo=socket=$dest/slurm/munge.socket,cred_expire=20
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$dest/slurm/state
SlurmdSpoolDir=$dest/slurm/spool-%n
SlurmctldPidFile=$dest/slurm/slurmctld.pid
SlurmdPidFile=$dest/slurm/slurmd-%n.pid
SlurmctldLogFile=$dest/slurm/slurmctld.log
SlurmdLogFile=$dest/slurm/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=5,batch_sched_delay=1
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=60
ReturnToService=2
NodeName=node1 NodeAddr=10.77.0.1 NodeHostname=control Port=17001 CPUs=64
NodeName=node2 NodeAddr=10.77.0.2 NodeHostname=control Port=17002 CPUs=64
PartitionName=normal Nodes=ALL Default=YES PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes=ALL PriorityTier=2 PreemptMode=OFF
EOF
}

start_slurm() {
  local node
  (umask 077 && head -c 1024 /dev/urandom >"$dest/slurm/munge.key")
  munged --key-file "$dest/slurm/munge.key" --socket "$dest/slurm/munge.socket" --pid-file "$dest/slurm/munged.pid" \
    --log-file "$dest/slurm/munged.log" --seed-file "$dest/slurm/munged.seed" --force 2>"$dest/slurm/munged.err"
  slurmctld
  for node in node1 node2; do
    mkdir "$dest/slurm/spool-$node"
    slurmd -N "$node"
  done
  wait_for "two idle nodes" two_nodes_are_idle
  say "$(sinfo --version): $(sinfo --noheader --partition normal --format '%D nodes, %T')"
}

two_nodes_are_idle() { [ "$(sinfo --noheader --partition normal --format '%D %T' 2>/dev/null)" = "2 idle" ]; }

# field JOB NAME: what SLURM says of a job, such as JobState.
field() { scontrol show job "$1" --oneliner | grep -oE "\b$2=[^ ]+" | head -n 1 | cut -d= -f2; }

# Whether a job has ended; fails if it did not succeed.
has_completed() {
  case $(field "$1" JobState) in
    COMPLETED) ;;
    PENDING | CONFIGURING | RUNNING | COMPLETING | PREEMPTED | REQUEUED) return 1 ;;
    *) fail "job $1: $(field "$1" JobState), exit code $(field "$1" ExitCode); its log ends with:
$(tail -n 20 "$(field "$1" StdOut)")" ;;
  esac
}

prepare_data() {
  local options=(--train "$dest/train.txt" --valid "$dest/valid.txt" --vocab-size 100 --shards 2) first job task file
  write_text
  first=$(submit recipes/slurm/prepare_data.sbatch --only-vocabulary "${options[@]}" --dest "$dest/data")
  job=$(submit --dependency=afterok:"$first" --array=0-1 recipes/slurm/prepare_data.sbatch \
    "${options[@]}" --dest "$dest/data")
  for task in "$first" "${job}_0" "${job}_1"; do wait_for "job $task" has_completed "$task"; done
  data-prep/prepare.sh "${options[@]}" --dest "$dest/alone" --workers 1 >"$dest/alone.log" 2>&1
  for file in shard{0,1}/{dict.txt,train.bin,train.idx} shard0/valid.{bin,idx}; do
    cmp "$dest/data/$file" "$dest/alone/$file"
  done
  say "prepare_data.sbatch: the array's shards are what prepare.sh alone writes"
}

# submit ARGUMENTS...: prints the number of a new job. A task gets one of the real processors.
submit() { sbatch --parsable --cpus-per-task 1 --chdir "$repository" --output "$dest/%x-%j.log" "$@"; }

# submit_training FOLDER ARGUMENTS...: prints the number of a new job on both nodes.
submit_training() {
  pretrain_options "$1"
  submit --nodes 2 "${@:2}" recipes/slurm/pretrain.sbatch \
    recipes/pretrain_small.sh --data "$dest/data/shard0" "${options[@]}"
}

has_state() { [ "$(field "$1" JobState)" = "$2" ]; }

has_restarts() { (($(field "$1" Restarts) >= $2)) && has_state "$1" RUNNING; }

# interrupt JOB FOLDER TIMES COMMAND...: runs the command after some updates; the job must return to the queue.
interrupt() {
  local job=$1 folder=$2 times=$3
  wait_for "updates of job $job" has_update "$folder" $(($(last_update "$folder") + 20))
  "${@:4}" >>"$dest/interruptions.log"
  wait_for "job $job to return to the queue and start again" has_restarts "$job" "$times"
  say "${*:4:2}: job $job stopped after update $(stopped_at "$folder"), and started again"
}

stopped_at() { grep -oE 'stopped on request at update [0-9]+' "$1/train.log" | tail -n 1 | grep -oE '[0-9]+$'; }

main() {
  local job program whole=$dest/whole parts=$dest/parts
  for program in slurmctld slurmd sbatch munged; do
    command -v "$program" >/dev/null || fail "$program is missing: apt-get install slurmctld slurmd slurm-client munge"
  done
  configure
  start_slurm
  prepare_data

  job=$(submit_training "$whole")
  wait_for "job $job" has_completed "$job"
  say "pretrain.sbatch on two nodes: $updates updates, uninterrupted"

  job=$(submit_training "$parts")
  interrupt "$job" "$parts" 1 scancel --signal=USR1 "$job"
  interrupt "$job" "$parts" 2 scontrol requeue "$job"
  interrupt "$job" "$parts" 3 sbatch --partition urgent --nodes 2 --exclusive --output /dev/null --wrap true
  wait_for "job $job" has_completed "$job"
  check_run "$parts" "$whole" 3

  job=$(submit_training "$dest/cancelled")
  wait_for "updates of job $job" has_update "$dest/cancelled" 1
  scancel "$job"
  wait_for "the end of job $job" has_state "$job" CANCELLED
  say "a cancelled job does not return"
}

# check_run FOLDER WHOLE STOPS: the interrupted run made the same updates as the whole one.
check_run() {
  [ "$(grep -c 'stopped on request at update' "$1/train.log")" = "$3" ] || fail "$1: not stopped $3 times"
  check_updates "$1"
  check_same_weights "$1" "$2"
  say "$(basename "$1"): stopped $3 times; updates 1 to $updates once each; the same weights as without interruption"
}

start "$@"
