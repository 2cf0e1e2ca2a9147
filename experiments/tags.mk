# Words with tags: encoders of small.mk beside a conditional random field, for SMALL.md.
#
#   make -C experiments -f tags.mk RUN=/somewhere FOLDER=/archives
#
# FOLDER has the source archives of seqlearn 0.2 and usaddress 0.5.16:
#   pip download --no-deps --no-binary :all: --no-build-isolation seqlearn==0.2 usaddress==0.5.16
# RUN is that of small.mk. Everything resumes.

RUN ?= run
PYTHON ?= python
TASKS = dutch_entities us_addresses
ENCODERS = small-1 half-1 mlm-3 short-1 cased-1 half_cased-1
TAG = ../recipes/finetune_tagging.sh --seeds 1
FILES = $(RUN)/tags/files/us_addresses/test.txt

.DELETE_ON_ERROR:
.PHONY: all trials

all: trials $(ENCODERS:%=$(RUN)/%/.trained)
	for task in $(TASKS); do \
	  for encoder in $(ENCODERS); do \
	    $(TAG) --labelled $(RUN)/tags/files/$$task --checkpoint $(RUN)/$$encoder/checkpoint_best.pt \
	      --data $$($(PYTHON) small.py data $$encoder --run $(RUN)) --save-dir $(RUN)/tags/$$encoder || exit; \
	  done; \
	  $(TAG) --labelled $(RUN)/tags/files/$$task --checkpoint $(RUN)/small-1/checkpoint_best.pt --from-scratch --data $(RUN)/data \
	    --save-dir $(RUN)/tags/untrained-1 || exit; \
	done
	$(PYTHON) tags.py record --run $(RUN)
	$(PYTHON) small_page.py

# What chose the settings: parts of the training files, and another encoder. The smaller task has further trials.
trials: $(FILES) $(RUN)/mlm-3/.trained
	for task in $(TASKS); do \
	  for options in "--epochs 5" "--epochs 12" "--epochs 12 --lr-layer-decay 0.7"; do $(TRY) || exit; done; \
	done
	task=us_addresses; for options in "--epochs 20" "--epochs 20 --lr-layer-decay 0.7" \
	  "--epochs 20 --lr 1.5e-3" "--epochs 20 --lr 3e-4" "--epochs 40"; do $(TRY) || exit; done
TRY = $(TAG) --labelled $(RUN)/tags/parts/$$task --checkpoint $(RUN)/mlm-3/checkpoint_best.pt --data $(RUN)/data \
  --save-dir $(RUN)/tags/trials $$options

$(FILES):
	$(PYTHON) tags.py files $(FOLDER) --run $(RUN)

$(RUN)/%/.trained:
	$(MAKE) -f small.mk RUN=$(RUN) $@
