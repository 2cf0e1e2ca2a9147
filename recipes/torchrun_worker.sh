#!/usr/bin/env bash
# Runs a training command as a process of torchrun, for lib.sh.
#
#   torchrun ... --no-python recipes/torchrun_worker.sh fairseq-train ...
#
# torchrun takes a stop on request for a failure, ends the other machines' processes, and exits with 1 in any case. So
# this says the exit status on its output, where run_training.py finds it, and hides that of a stop from torchrun.
# When torchrun gives up, it ends this shell alone: the kernel then kills the training, which may wait for ever.

status=0
setpriv --pdeathsig KILL "$@" --distributed-rank "$RANK" || status=$? # fairseq infers the rank itself only on GPUs
echo "torchrun_worker.sh: exit status $status"
if ((status == 75)); then exit 0; fi
exit "$status"
