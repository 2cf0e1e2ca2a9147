# shellcheck shell=bash disable=SC2154  # recipes assign effective_batch, batch_size and settings
# Shared by the recipes. For pretraining: parses and checks the options, and starts fairseq-train.
# A pretraining recipe consists of a header that describes it, these lines, and its settings:
#
#   . "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
#   effective_batch=2048   # sequences per update, on any number of GPUs
#   batch_size=32          # sequences per GPU at a time; --batch-size overrides it
#   settings=(--arch mae_lm_base ...)
#   pretrain "$@"

set -euo pipefail

recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
plugin=$(dirname "$recipes")/maelm_fairseq

options_help='Options:
  --data DIR[:DIR...]   binarized data from data-prep/prepare.sh; several folders are shards of one corpus
  --save-dir DIR        checkpoints, TensorBoard files and train.log; run the same command again to resume
  --gpus N              GPUs per machine (default: all); 0 trains on the CPU, for experiments, with a process a machine
  --nodes N             machines (default: 1); run the same command on each, with MASTER_ADDR set to one of them, whose
                        port MASTER_PORT (default: 29500) the others can reach
  --batch-size N        sequences per GPU at a time; the effective batch stays the same
  --dry-run             print the fairseq-train command and stop
  All other options go to fairseq-train and override the settings of the recipe.
SIGTERM, SIGUSR1 and Ctrl-C stop training with a checkpoint after the current update, with exit status 75.'

fail() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

# Uses the environment that `make install` created, unless one is active.
use_environment() {
  if ! command -v fairseq-train >/dev/null && [ -x "$plugin/../.venv/bin/fairseq-train" ]; then
    PATH=$(dirname "$plugin")/.venv/bin:$PATH
  fi
  command -v fairseq-train >/dev/null || fail "no environment with fairseq: run \`make install\`, or activate yours"
  # Recipes import this repository's plugin, installed or not, and each other.
  PYTHONPATH=$(dirname "$plugin"):$recipes${PYTHONPATH:+:$PYTHONPATH}
  export PYTHONPATH
}

# must_be_number OPTION VALUE LEAST
must_be_number() {
  if [[ ! $2 =~ ^(0|[1-9][0-9]*)$ ]] || (($2 < $3)); then fail "$1 must be a number, at least $3, not '$2'"; fi
}

count_gpus() { python -c 'import torch; print(torch.cuda.device_count())' || fail "no torch found; run \`make install\`"; }

# Sets $launcher, and adds to $device: what connects $nodes machines with $gpus GPUs each.
connect_machines() {
  local method=env:// hosts
  export MASTER_PORT="${MASTER_PORT:-29500}"
  if [ -n "${SLURM_STEP_ID:-}" ]; then # srun has started one task per machine
    hosts=$(scontrol show hostnames "$SLURM_STEP_NODELIST")
    MASTER_ADDR=${hosts%%$'\n'*}
    if ((gpus == 0)); then
      method=tcp://$MASTER_ADDR:$MASTER_PORT
      launcher=(bash -c 'exec "$0" "$@" --distributed-rank "$SLURM_PROCID"')
    else # fairseq reads the machines from SLURM and starts a process for each GPU
      device+=(--distributed-port "$MASTER_PORT")
    fi
  elif [ -n "${MASTER_ADDR:-}" ]; then
    launcher=(torchrun --nnodes "$nodes" --nproc_per_node "$((gpus == 0 ? 1 : gpus))" --no-python
      --rdzv_backend c10d --rdzv_endpoint "$MASTER_ADDR:$MASTER_PORT" "$recipes/torchrun_worker.sh")
  else
    fail "--nodes $nodes needs MASTER_ADDR, the name of one of the machines"
  fi
  if ((gpus == 0)); then
    device+=(--distributed-backend gloo --ddp-backend legacy_ddp
      --distributed-no-spawn --distributed-init-method "$method")
  fi
}

pretrain() {
  local data='' save_dir='' gpus='' nodes=1 dry_run=0 extra=() name
  while (($#)); do
    case $1 in
      --data=* | --save-dir=* | --gpus=* | --nodes=* | --batch-size=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
      --data | --save-dir | --gpus | --nodes | --batch-size)
        if (($# < 2)); then fail "$1 needs a value; see --help"; fi
        name=${1#--}
        printf -v "${name//-/_}" %s "$2" # the variable of this name
        shift 2 ;;
      --dry-run) dry_run=1; shift ;;
      -h | --help)
        sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
        printf '\n%s\n' "$options_help"
        exit ;;
      --) extra+=("${@:2}"); break ;;
      *) extra+=("$1"); shift ;;
    esac
  done

  for name in data save_dir; do
    if [ -z "${!name}" ]; then fail "--${name//_/-} DIR is missing${extra:+; found: ${extra[*]}}; see --help"; fi
  done
  # A relative path that begins with a dash would be taken for an option.
  if [[ $data == -* ]]; then data=./$data; fi
  if [[ $save_dir == -* ]]; then save_dir=./$save_dir; fi
  if [[ $data == *:* && -f $data/dict.txt ]]; then
    fail "--data $data: fairseq-train separates folders by colons; give a path without one"
  fi
  use_environment
  if [ -z "$gpus" ]; then gpus=$(count_gpus); fi
  must_be_number --gpus "$gpus" 0
  must_be_number --nodes "$nodes" 1
  must_be_number --batch-size "$batch_size" 1

  local processes=$((gpus == 0 ? nodes : gpus * nodes)) every launcher=()
  local device=(--fp16 --fp16-init-scale 128)
  if [[ " ${settings[*]} ${extra[*]-} " == *" --bf16-autocast "* ]]; then device=(); fi
  if ((effective_batch % (processes * batch_size) != 0)); then
    fail "$processes process(es) (--gpus times --nodes) with --batch-size $batch_size: their product must divide the" \
      "effective batch of $effective_batch sequences"
  fi
  every=$((effective_batch / (processes * batch_size)))
  if ((gpus == 0)); then
    device=(--cpu)
    export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}" # spinning threads are slow on a busy machine
    echo "$(basename "$0"): training on the CPU: good enough for experiments, not for full-size pretraining" >&2
  fi
  if ((nodes > 1)); then connect_machines; fi

  local command=(${launcher[@]+"${launcher[@]}"} fairseq-train "$data"
    --user-dir "$plugin" --save-dir "$save_dir" --tensorboard-logdir "$save_dir/tensorboard"
    --task mae_lm --criterion mae_lm --optimizer torch_adamw --lr-scheduler polynomial_decay
    --batch-size "$batch_size" --update-freq "$every" --distributed-world-size "$processes" ${device[@]+"${device[@]}"}
    --log-format json --log-interval 100 --num-workers 2
    --save-interval-updates 5000 --keep-interval-updates 5 --no-epoch-checkpoints
    "${settings[@]}" ${extra[@]+"${extra[@]}"})

  if ((dry_run)); then
    printf '%q ' "${command[@]}"
    echo
    return
  fi

  local found shards shard finished="$save_dir/finished"
  if ((gpus > 0)); then # without one of them, fairseq would train on the CPU
    found=$(count_gpus)
    if ((gpus > found)); then fail "--gpus $gpus: PyTorch sees $found here; --gpus 0 trains on the CPU"; fi
  fi
  IFS=: read -r -d '' -a shards < <(printf '%s\0' "$data") # a name may contain a line break
  for shard in "${shards[@]}"; do
    if [ ! -f "$shard/dict.txt" ]; then
      fail "$shard has no dict.txt; --data takes a folder that data-prep/prepare.sh wrote"
    fi
  done
  if [ -f "$finished" ] && [ "$(cat "$finished")" = "${command[*]}" ]; then
    echo "$(basename "$0"): $save_dir has finished; remove $finished to train it further"
    return
  fi
  mkdir -p "$save_dir"
  echo "$(basename "$0"): $processes process(es) x $batch_size sequences x $every = $effective_batch sequences per update;" \
    "the full log is in $save_dir/train.log"
  # In place of this shell, which would not pass signals on.
  exec python "$recipes/run_training.py" "$save_dir" "${command[@]}"
}
