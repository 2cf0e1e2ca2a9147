#!/usr/bin/env bash
# Tests pretraining on two machines that fail: two network namespaces, joined by a virtual cable.
#
#   tests/cluster/two_machines.sh [--keep]     which keeps the temporary folder for everything that is written
#
# Pretrains on both, on the CPU. All processes of one machine are killed, then those of the other; one machine is sent
# SIGTERM; at last the cable is cut. Each time, whatever still runs must end, and the same commands then resume.
#
# Needs root. Not part of the test suite; README.md records a run. It takes a quarter of an hour to notice the cable.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

deadline_s=1200
updates=4000 # more than are made
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

declare -A processes

# train: starts or resumes the recipe on both machines, and waits for some updates.
train() {
  local machine before
  before=$(last_update "$dest/run")
  pretrain_options "$dest/run"
  for machine in "${machines[@]}"; do
    MASTER_ADDR=machine1 on "$machine" recipes/pretrain_small.sh --nodes 2 --data "$dest/data" "${options[@]}" \
      --save-interval-updates 50 >"$dest/$machine.out" 2>&1 &
    processes[$machine]=$!
  done
  wait_for "updates of both machines" has_update "$dest/run" $((before + 70))
}

# happens WHAT COMMAND...: runs what troubles the machines.
happens() {
  say "$1 after update $(last_update "$dest/run")"
  happened=$SECONDS
  "${@:2}"
}

has_ended() { ! kill -0 "${processes[$1]}" 2>/dev/null; }

# must_end STATUS MACHINE...: each machine's recipe ends, with this status.
must_end() {
  local machine status
  for machine in "${@:2}"; do
    wait_for "the end of $machine" has_ended "$machine"
    status=0
    wait "${processes[$machine]}" || status=$?
    ((status == $1)) || fail "$machine: exit status $status, not $1; its output ends with:
$(tail -n 20 "$dest/$machine.out")"
    say "  $machine ended within $((SECONDS - happened + 1)) s, with status $status"
  done
}

kill_all_on() { kill -KILL "${processes[$1]}" && wait "${processes[$1]}" 2>/dev/null || true; }

# The recipe is the first process of its namespace.
stop_recipe_on() { kill -TERM "$(cat "/proc/${processes[$1]}/task/${processes[$1]}/children")"; }

main() {
  connect
  write_text
  data-prep/prepare.sh --train "$dest/train.txt" --valid "$dest/valid.txt" --vocab-size 100 --dest "$dest/data" \
    --workers 1 >"$dest/prepare.log" 2>&1
  train
  happens "killing all processes of machine2" kill_all_on machine2
  must_end 1 machine1
  train
  happens "killing all processes of machine1" kill_all_on machine1
  must_end 1 machine2
  train
  happens "sending SIGTERM to the recipe on machine2" stop_recipe_on machine2
  must_end 75 machine1 machine2
  train
  happens "cutting the cable" ip -n machine2 link set cable down
  must_end 1 machine1 machine2
}

start "$@"
