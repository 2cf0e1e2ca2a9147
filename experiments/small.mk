# The small recipe beside a bag of words, and what its parts give. The page is SMALL.md.
#
#   make -C experiments -f small.mk page                         the page, from the records alone
#   make -C experiments -f small.mk RUN=/somewhere               all encoders that have no record: trained, measured
#   make -C experiments -f small.mk RUN=/somewhere PAIRS=/blimp  with minimal pairs
#   make -C experiments -f small.mk -n RUN=/somewhere            what is missing
#   make -C experiments -f small.mk RUN=/somewhere tuning        what each setting of fine-tuning gives, for TUNING.md
#
# Everything resumes, as with the Makefile.

RUN ?= run
PAIRS ?=
PYTHON ?= python
TUNED = short-1 demo-1 thin-1
MEASURE = $(PYTHON) small.py --run $(RUN) $(addprefix --pairs ,$(PAIRS))

.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all page tuning tuning_page

all: $(patsubst %,records/small/%.csv,$(shell $(PYTHON) small.py list)) records/small/baselines.npz

page:
	$(PYTHON) small_page.py

$(RUN)/data/train.json $(RUN)/labelled/.fetched:
	$(MAKE) RUN=$(RUN) $@

$(RUN)/text/tasks.txt: | $(RUN)/labelled/.fetched
	$(PYTHON) small.py task_texts --run $(RUN)

PREPARE = ../data-prep/prepare.sh --valid $(RUN)/text/valid.txt --dest $(@D)

$(RUN)/data_vocabulary16/train.json: | $(RUN)/data/train.json
	$(PREPARE) --train $(RUN)/text/train.txt --vocab-size 16000 --lowercase

$(RUN)/data_cased/train.json: | $(RUN)/data/train.json
	$(PREPARE) --train $(RUN)/text/train.txt --vocab-size 8000

$(RUN)/data_with_task_texts/train.json: | $(RUN)/data/train.json $(RUN)/text/tasks.txt
	$(PREPARE) --train $(RUN)/text/train.txt $(RUN)/text/tasks.txt --vocabulary $(RUN)/data

$(RUN)/data_of_task_texts/train.json: | $(RUN)/data/train.json $(RUN)/text/tasks.txt
	$(PREPARE) --train $(RUN)/text/tasks.txt --vocabulary $(RUN)/data

$(RUN)/vocabulary16-1/.trained: | $(RUN)/data_vocabulary16/train.json
$(RUN)/cased-1/.trained $(RUN)/half_cased-1/.trained: | $(RUN)/data_cased/train.json
$(RUN)/task_texts-1/.trained: | $(RUN)/data_with_task_texts/train.json
$(RUN)/further-1/.trained: | $(RUN)/data_of_task_texts/train.json $(RUN)/short-1/.trained

$(RUN)/%/.trained: | $(RUN)/data/train.json
	$(PYTHON) small.py options $* --run $(RUN) | xargs ../recipes/pretrain_small.sh --gpus 0 --save-dir $(@D)
	touch $@

records/small/untrained-%.csv: | $(RUN)/small-1/.trained $(RUN)/labelled/.fetched
	$(MEASURE) measure untrained-$*

records/small/%.csv: | $(RUN)/%/.trained $(RUN)/labelled/.fetched
	$(MEASURE) measure $*

records/small/baselines.npz: | $(RUN)/small-1/.trained $(RUN)/labelled/.fetched
	$(MEASURE) baselines

tuning: $(TUNED:%=$(RUN)/%/.trained) records/tuning/bag_of_words.csv
	for seed in 1 2 3; do for encoder in $(TUNED); do \
	  $(PYTHON) tuning.py measure $$encoder --run $(RUN) --seed $$seed || exit; \
	done; done

records/tuning/bag_of_words.csv: | $(RUN)/data/train.json $(RUN)/labelled/.fetched
	$(PYTHON) tuning.py bag_of_words --run $(RUN)

tuning_page:
	$(PYTHON) tuning.py page
