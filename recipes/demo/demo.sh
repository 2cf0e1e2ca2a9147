#!/usr/bin/env bash
# Pretrains a small encoder on film reviews, on the CPU, and shows what it has learned; run by `make demo`.
#
#   recipes/demo/demo.sh [--dest DIR] [fairseq-train's options]
#
# Downloads and prepares the text, pretrains, inspects the result, and exports the encoder to Hugging Face. Everything
# goes to DIR (default: demo-run/). To resume, run it again: it skips the steps that are done and trains from the last
# checkpoint. Three minutes or more on two quiet cores, nearly all of them training. Expect a loss of 6.2 bits per
# predicted token; a model that knows only token frequencies has 9.7.

. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../lib.sh"
use_environment

root=$(dirname "$recipes")
dest=$root/demo-run
if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit
fi
if [ "${1:-}" = --dest ]; then
  dest=${2:?--dest needs a folder}
  shift 2
fi
text=$dest/text data=$dest/data save=$dest/checkpoints

step() { printf '\n== %s  (%d:%02d)\n' "$1" $((SECONDS / 60)) $((SECONDS % 60)); }

echo "This takes three minutes or more on two quiet cores, nearly all of them training; everything goes to $dest."
echo "You can stop it at any time; the same command resumes."
python "$recipes/check_installation.py"

step "1 of 5: film reviews"
python "$root/data-prep/movie_reviews.py" --dest "$text"

step "2 of 5: vocabulary of 8,000 pieces, and binarized data"
"$root/data-prep/prepare.sh" --train "$text/train.txt" --valid "$text/valid.txt" --dest "$data" \
  --vocab-size 8000 --lowercase

step "3 of 5: pretraining"
options=(--batch-size 32 --update-freq 1 --max-positions 64 --encoder-mask-fade-updates 0 --max-update 1500
  --total-num-update 1500)
"$recipes/pretrain_small.sh" --gpus 0 --data "$data" --save-dir "$save" "${options[@]}" "$@"

step "4 of 5: what it has learned"
python "$recipes/demo/use_encoder.py" --checkpoint "$save/checkpoint_last.pt" --data "$data"

step "5 of 5: the encoder for Hugging Face"
encoder=$dest/encoder
if [ -d "$encoder" ] && [ "$save/checkpoint_last.pt" -nt "$encoder/config.json" ]; then # of an earlier checkpoint
  mv -T --backup=numbered "$encoder" "$encoder.earlier"
fi
if [ ! -d "$encoder" ]; then
  python -m maelm_fairseq.huggingface.export --checkpoint "$save/checkpoint_last.pt" --data "$data" \
    --dest "$encoder" >/dev/null
fi
echo "written: $encoder; to load it, with transformers alone:"
echo "  from transformers import AutoModel, AutoTokenizer"
echo "  tokenizer, model = AutoTokenizer.from_pretrained(\"$encoder\"), AutoModel.from_pretrained(\"$encoder\")"

# Prints a command as it can be pasted into a shell here.
command_line() {
  printf ' '
  printf ' %q' "${@#"$PWD/"}"
}
printf '\nTo try next, in %s:\n' "$PWD"
python=$(command -v python)
echo "1. Fill a mask of your own."
command_line "$python" "$recipes/demo/use_encoder.py" --checkpoint "$save" --data "$data"
echo ' "the music was <mask> ."'
echo "2. Measure how many dimensions the representations use at each layer; the figure is ${dest#"$PWD/"}/ranks/ranks.png."
command_line "$python" -m maelm_fairseq.effective_rank --checkpoint "$save/checkpoint_last.pt" --data "$data" \
  --dest "$dest/ranks"
echo
if (($# == 0)); then
  echo "3. Pretrain an MLM of the same size, for comparison: its encoder reads the masks, and it has no decoder."
  command_line bash "$recipes/demo/demo.sh" --dest "$dest/mlm" --encoder-mask-fraction 1 --decoder-layers 0
  echo
fi
