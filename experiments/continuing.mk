# Continuing a RoBERTa on text of another domain: as the MLM that it is, or with all its layers shared. See RESULTS.md.
#
#   make -C experiments -f continuing.mk -j 2 TEXT=/abs/domain.txt RUN=/somewhere
#
# TEXT has a blank line after each document. Everything resumes, as with the Makefile.

RUN ?= run
RECORDS ?= records
PYTHON ?= python
UPDATES ?= 1000
BASE_UPDATES ?= 10000
SEEDS ?= 1 2
ARMS = mlm shared shared-fade
RUNS = $(foreach arm,$(ARMS),$(SEEDS:%=$(arm)-%))
DEVICE = $(shell $(PYTHON) -c 'import torch; print("" if torch.cuda.is_available() else "--cpu")')
TRAIN = --batch-size 16 --num-workers 0 --tokens-per-sample 128 --mask-prob 0.3 --lr-scheduler polynomial_decay \
  --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 2 --distributed-world-size 1 \
  --log-format json --log-interval 100 --no-epoch-checkpoints --keep-interval-updates 1 $(DEVICE)

.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all

all: $(RECORDS)/continuing.csv

$(RUN)/reviews/train.txt:
	../data-prep/movie_reviews.py --dest $(@D)

$(RUN)/tokenizer.json: $(RUN)/reviews/train.txt
	$(PYTHON) continuing.py vocabulary $< $@

$(RUN)/base-data/train.json: $(RUN)/tokenizer.json
	../data-prep/prepare.sh --vocabulary $< --train $(RUN)/reviews/train.txt --valid $(RUN)/reviews/valid.txt --dest $(@D)

$(RUN)/data/train.json: $(RUN)/tokenizer.json
	../data-prep/prepare.sh --vocabulary $< --train $(TEXT) --valid-documents 60 --dest $(@D)

MODEL = --user-dir ../maelm_fairseq --task mae_lm --criterion mae_lm --arch mae_lm_base --encoder-layers 4 \
  --encoder-embed-dim 256 --encoder-ffn-embed-dim 1024 --encoder-attention-heads 4 --max-positions 128 \
  --relative-position-num-buckets 0 --dropout 0 --attention-dropout 0 --leave-unmasked-prob 0.1 \
  --random-token-prob 0.1 --optimizer torch_adamw
MLM = --decoder-layers 0 --encoder-mask-fraction 1
SHARED = --share-decoder-layers --decoder-layers 4

# RoBERTa's architecture, masking and tokens.
$(RUN)/base/model.pt: | $(RUN)/base-data/train.json
	mkdir -p $(@D)
	fairseq-train $(RUN)/base-data $(MODEL) $(MLM) --lr 1e-3 --warmup-updates 500 --total-num-update $(BASE_UPDATES) \
	  --max-update $(BASE_UPDATES) --save-interval-updates 2000 --seed 1 $(TRAIN) --save-dir $(@D) \
	  --log-file $(@D)/train.log >/dev/null
	mv $(@D)/checkpoint_last.pt $@

$(RUN)/mlm-%/model.pt: OPTIONS = $(MLM)
$(RUN)/shared-%/model.pt: OPTIONS = $(SHARED)
$(RUN)/shared-fade-%/model.pt: OPTIONS = $(SHARED) --encoder-mask-fade-updates $(UPDATES)

$(RUNS:%=$(RUN)/%/model.pt): $(RUN)/%/model.pt: $(RUN)/base/model.pt | $(RUN)/data/train.json
	mkdir -p $(@D)
	fairseq-train $(RUN)/data $(MODEL) $(OPTIONS) --lr 5e-4 --warmup-updates 100 --total-num-update $(UPDATES) \
	  --max-update $(UPDATES) --save-interval-updates 500 --seed $(lastword $(subst -, ,$*)) $(TRAIN) \
	  --finetune-from-model $< --save-dir $(@D) --log-file $(@D)/train.log >/dev/null
	mv $(@D)/checkpoint_last.pt $@

$(RUN)/labelled/.fetched:
	../data-prep/fetch_labelled.py --dest $(@D) --data trec rotten_tomatoes
	touch $@

$(RUN)/%/measured.csv: $(RUN)/%/model.pt | $(RUN)/data/train.json $(RUN)/labelled/.fetched
	$(PYTHON) continuing.py measure $* --run $(RUN)

$(RECORDS)/continuing.csv: $(RUN)/base/measured.csv $(RUNS:%=$(RUN)/%/measured.csv)
	awk 'FNR > 1 || NR == 1' $^ >$@
