# make install  make a virtual environment with the package and its extras; the other targets begin with that
# make demo     pretrain a small encoder on film reviews and look at it: three minutes or more on two cores, once installed
# make test     run the test suite
# make lint     check style and formatting with ruff
#
# make PYTHON=python3.11 ...   which Python makes the environment: otherwise one that is found, or that uv fetches
# make test TESTS=tests/test_recipes.py

PYTHON ?=
VENV ?= .venv
TESTS ?= tests

.PHONY: help install demo test lint

help:
	@sed -n '/^PYTHON/q; s/^# \{0,1\}//p' Makefile

install: $(VENV)/.installed

# The stamp is written last, so that a failed installation is tried again. A killed one may leave half a package that
# pip believes to be complete: the environment is then rebuilt. fairseq brings torchaudio, which nothing here uses; where
# it, or a torchvision, does not fit torch, transformers does not load either.
$(VENV)/.installed: setup.py constraints.txt Makefile recipes/openmp.pth
	@recipes/make_environment.sh "$(VENV)" $(PYTHON)
	@echo "Installing fairseq, torch and the plugin into $(VENV): a few minutes, longer if pip has to fetch torch with CUDA."
	@touch $(VENV)/.installing
	@$(VENV)/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || $(VENV)/bin/python -m pip install --quiet 'pip<24.1' \
	  || { rm $(VENV)/.installing; exit 1; }
	@$(VENV)/bin/python -m pip install --quiet --use-pep517 -c constraints.txt -e '.[demo,finetune,huggingface,test]' \
	  || { rm $(VENV)/.installing; exit 1; }
	@for name in torchaudio torchvision; do \
	  $(VENV)/bin/python -c "import $$name" 2>/dev/null || $(VENV)/bin/python -m pip uninstall --quiet --yes $$name 2>/dev/null; \
	done
	@cp recipes/openmp.pth $(VENV)/lib/python*/site-packages/
	@rm $(VENV)/.installing
	@$(VENV)/bin/python recipes/check_installation.py
	@touch $@
	@echo "Installed. Next: . $(VENV)/bin/activate"

demo: install
	@PYTHON= PATH="$(abspath $(VENV))/bin:$$PATH" recipes/demo/demo.sh

# Tests load exported models with transformers, in environments of their own without this package: with the oldest that
# model cards name, and the newest that Python 3.10 can install.
VERSIONS := 4.45.2 5.20.2
SENTENCE_TRANSFORMERS_4.45.2 := 3.0.1
SENTENCE_TRANSFORMERS_5.20.2 := 6.2.0
TRANSFORMERS = $(patsubst %,$(VENV)-transformers-%/.installed,$(VERSIONS))

$(VENV)-transformers-%/.installed: constraints.txt Makefile | install
	@echo "Installing transformers $* into $(@D), for the tests."
	@$(VENV)/bin/python -m venv --clear --without-pip $(@D)
	@grep '^torch==' constraints.txt >$(@D)/constraints.txt
	@$(VENV)/bin/python -m pip --python $(@D)/bin/python install --quiet -c $(@D)/constraints.txt \
	  torch safetensors transformers==$* accelerate peft sentence-transformers==$(SENTENCE_TRANSFORMERS_$*) \
	  $(if $(filter $*,$(lastword $(VERSIONS))),onnx onnxruntime onnxscript)
	@touch $@

# Named files that load no export need none of them.
LOADING := tests/test_huggingface_transformers.py tests/test_pages.py
ifneq ($(filter tests/test_%,$(TESTS)),)
ifeq ($(filter $(LOADING),$(TESTS)),)
TRANSFORMERS :=
endif
endif

test: install $(TRANSFORMERS)
	@PYTHON= PATH="$(abspath $(VENV))/bin:$$PATH" OMP_NUM_THREADS=1 \
	  TESTS_TRANSFORMERS="$(subst $() $(),:,$(patsubst %/.installed,$(CURDIR)/%/bin/python,$(TRANSFORMERS)))" \
	  $(VENV)/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 1 $(TESTS)

lint: install
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
