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
TUNED = short-1 demo-1
MEASURE = $(PYTHON) small.py --run $(RUN) $(addprefix --pairs ,$(PAIRS))

.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all page tuning tuning_page

all: $(patsubst %,records/small/%.csv,$(shell $(PYTHON) small.py list)) records/small/baselines.npz

page:
	$(PYTHON) small_page.py

$(RUN)/data/train.json $(RUN)/labelled/.fetched:
	$(MAKE) RUN=$(RUN) $@

$(RUN)/%/.trained: | $(RUN)/data/train.json
	$(PYTHON) small.py options $* | xargs ../recipes/pretrain_small.sh --gpus 0 --data $(RUN)/data --save-dir $(@D)
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
