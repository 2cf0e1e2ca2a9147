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
  { wait "${processes[$1]}" || statuses[$1]=$?; } 2>/dev/null # bash reports what is killed
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

# happens WHAT COMMAND...: runs what troubles the machines.
happens() {
  say "$1 after update $(last_update "$parts")"
  "${@:2}"
  happened=$SECONDS
}

# must_end MACHINE STATUS MESSAGE: soon, with this status and a message that contains this text.
must_end() {
  local output=$parts/$1.out
  while kill -0 "${processes[$1]}" 2>/dev/null; do
    ((SECONDS - happened <= limit_s)) || fail "$1 still runs after $limit_s s; its output ends with:
$(tail -n 20 "$output")"
    sleep 0.2
  done
  ends "$1"
  ((statuses[$1] == $2)) || fail "$1: exit status ${statuses[$1]}, not $2"
  occurs "$output" "$3" || fail "$1 did not say '$3', but:
$(tail -n 20 "$output")"
  say "  $1 ended within $((SECONDS - happened + 1)) s: $(grep -E "$3" "$output" | tail -n 1)"
}

# train_on: resumes the run, and waits for some updates more.
train_on() {
  local before
  before=$(last_update "$parts")
  train "$parts"
  wait_for "updates of $parts" has_update "$parts" $((before + 70))
}

kill_all_on() {
  kill -KILL "${processes[$1]}"
  ends "$1"
}

# The recipe is the first process of its namespace.
stop_recipe_on() { kill -TERM "$(cat "/proc/${processes[$1]}/task/${processes[$1]}/children")"; }

main() {
  whole=$dest/whole parts=$dest/parts
  connect
  write_text
  data-prep/prepare.sh --train "$dest/train.txt" --valid "$dest/valid.txt" --vocab-size 100 --dest "$dest/data" \
    --workers 1 >"$dest/prepare.log" 2>&1
  train "$whole"
  finish "$whole"
  say "two machines: $updates updates, uninterrupted"

  train_on
  happens "killing all processes of machine2" kill_all_on machine2
  must_end machine1 1 'lost machine machine2'

  train_on
  happens "cutting the cable" ip -n machine2 link set cable down
  must_end machine1 1 'lost machine machine2'
  must_end machine2 1 'lost machine machine1'
  ip -n machine2 link set cable up

  train_on
  happens "killing all processes of machine1" kill_all_on machine1
  must_end machine2 1 'lost machine machine1'

  train_on
  happens "sending SIGTERM to the recipe on machine2" stop_recipe_on machine2
  must_end machine1 75 'stopped on request'
  must_end machine2 75 'stopped on request'

  train "$parts"
  finish "$parts"
  check_same_weights "$parts" "$whole"
  say "resumed each time; after $updates updates the same weights as without interruption"
}

start "$@"
