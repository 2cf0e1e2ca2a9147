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
# used: the test has its own slurm.conf, munge key and network. Not part of the test suite; README.md records a run.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

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
