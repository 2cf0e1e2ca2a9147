#!/usr/bin/env bash
# Tests pretraining with torchrun on two machines that fail: two network namespaces, joined by a virtual cable.
#
#   tests/cluster/two_machines.sh
#
# Pretrains on both, on the CPU, twice with the same options: without interruption, and interrupted four times. All
# processes of the second machine are killed; the cable is cut; all processes of the first machine are killed; one
# machine is sent SIGTERM. Each time, whatever still runs must end within a minute, with a message that names the lost
# machine (or, on SIGTERM, with a checkpoint and status 75); the same commands then resume. The weights at the end must
# be those of the uninterrupted run.
#
# Needs root. Not part of the test suite; README.md records a run.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

limit_s=60
machines=(machine1 machine2)

connect() {
  local n
  printf '127.0.0.1 localhost\n10.77.0.1 machine1\n10.77.0.2 machine2\n' >"$dest/hosts"
  mount --bind "$dest/hosts" /etc/hosts
  mount -t tmpfs tmpfs /run # where ip keeps its list of namespaces
  for n in 1 2; do
    ip netns add "machine$n"
    ip -n "machine$n" link set lo up
  done
  ip link add cable netns machine1 type veth peer name cable netns machine2
  for n in 1 2; do
    ip -n "machine$n" address add "10.77.0.$n/24" dev cable
    ip -n "machine$n" link set cable up
  done
}

# on MACHINE COMMAND...: runs a command there, with process numbers of its own.
on() {
  exec ip netns exec "$1" unshare --uts --pid --fork --kill-child --mount-proc \
    bash -c 'hostname "$0" && exec "$@"' "$@"
}

declare -A processes statuses

# train FOLDER: starts the recipe on both machines.
train() {
  local machine
  pretrain_options "$1"
  mkdir -p "$1"
  for machine in "${machines[@]}"; do
    MASTER_ADDR=machine1 on "$machine" recipes/pretrain_small.sh --nodes 2 --data "$dest/data" "${options[@]}" \
      --save-interval-updates 50 >"$1/$machine.out" 2>&1 &
    processes[$machine]=$!
  done
}

# ends MACHINE: waits for the end of the recipe there, and keeps its exit status.
ends() {
  statuses[$1]=0
  wait "${processes[$1]}" 2>/dev/null || statuses[$1]=$?
}

# finish FOLDER: waits for the success of the recipe on both machines.
finish() {
  local machine
  for machine in "${machines[@]}"; do
    ends "$machine"
    ((statuses[$machine] == 0)) || fail "$machine: exit status ${statuses[$machine]}; its output ends with:
$(tail -n 20 "$1/$machine.out")"
  done
}

# must_end FOLDER MACHINE STATUS MESSAGE: soon, with this status and a message that contains this text.
must_end() {
  local start=$SECONDS output=$1/$2.out
  while kill -0 "${processes[$2]}" 2>/dev/null; do
    ((SECONDS - start <= limit_s)) || fail "$2 still runs after $limit_s s; its output ends with:
$(tail -n 20 "$output")"
    sleep 0.2
  done
  ends "$2"
  ((statuses[$2] == $3)) || fail "$2: exit status ${statuses[$2]}, not $3"
  occurs "$output" "$4" || fail "$2 did not say '$4', but:
$(tail -n 20 "$output")"
  say "  $2 ended after $((SECONDS - start)) s: $(grep -E "$4" "$output" | tail -n 1)"
}

# train_for FOLDER UPDATES: starts or resumes the run, and waits for so many updates more.
train_for() {
  local before
  before=$(last_update "$1")
  train "$1"
  wait_for "updates of $1" has_update "$1" $((before + $2))
}

main() {
  local whole=$dest/whole parts=$dest/parts
  connect
  write_text
  data-prep/prepare.sh --train "$dest/train.txt" --valid "$dest/valid.txt" --vocab-size 100 --dest "$dest/data" \
    --workers 1 >"$dest/prepare.log" 2>&1
  train "$whole"
  finish "$whole"
  say "two machines: $updates updates, uninterrupted"

  train_for "$parts" 70
  say "killing all processes of machine2 after update $(last_update "$parts")"
  kill -KILL "${processes[machine2]}"
  must_end "$parts" machine1 1 'lost machine machine2'
  ends machine2

  train_for "$parts" 70
  say "cutting the cable after update $(last_update "$parts")"
  ip -n machine2 link set cable down
  must_end "$parts" machine1 1 'lost machine machine2'
  must_end "$parts" machine2 1 'lost machine machine1'
  ip -n machine2 link set cable up

  train_for "$parts" 70
  say "killing all processes of machine1 after update $(last_update "$parts")"
  kill -KILL "${processes[machine1]}"
  must_end "$parts" machine2 1 'lost machine machine1'
  ends machine1

  train_for "$parts" 70
  say "sending SIGTERM to the recipe on machine2 after update $(last_update "$parts")"
  kill -TERM "$(cat "/proc/${processes[machine2]}/task/${processes[machine2]}/children")"
  must_end "$parts" machine1 75 'stopped on request'
  must_end "$parts" machine2 75 'stopped on request'

  train "$parts"
  finish "$parts"
  check_same_weights "$parts" "$whole"
  say "resumed each time; after $updates updates the same weights as without interruption"
}

start "$@"
