# Two commands: `make app` opens the studio, `make test` runs the tests.
# `make quick` is the part of them that takes less than a minute.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: app test thorough quick test-engines lint types web setup model constraints clean

app: setup model
	$(BIN)/python -m app

# One thread a process: the cores are taken by the processes. Tests that need chromium, dot or librsvg are skipped,
# with a reason at the end, where these are missing. `make test PYTEST=` runs long tests too, as CI does.
PYTEST ?= --short

test: setup model lint types web
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal $(PYTEST)

# Before a release: longer texts, more damaged files, every shipped drafter.
thorough: setup model lint types web
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal --thorough --timeout 0

# Before each commit: linters, and the tests that take 0.03 s of processor time or less.
quick: setup lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal --quick $(PYTEST)

# The recorder in a real vLLM and a real SGLang on a CPU, each in an environment of its own (3.4 and 3.3 GB).
# DRAFTSCOPE_VLLM and DRAFTSCOPE_SGLANG name the Pythons of others, DRAFTSCOPE_DRAFTERS a folder of exported
# drafters by vLLM's methods.
DRAFTSCOPE_VLLM ?= $(CURDIR)/.venv-vllm/bin/python
DRAFTSCOPE_SGLANG ?= $(CURDIR)/.venv-sglang/bin/python

test-engines: setup model $(patsubst %/bin/python,%/.ready,$(filter $(CURDIR)/%,$(DRAFTSCOPE_VLLM) $(DRAFTSCOPE_SGLANG)))
	OMP_NUM_THREADS=1 DRAFTSCOPE_VLLM=$(DRAFTSCOPE_VLLM) DRAFTSCOPE_SGLANG=$(DRAFTSCOPE_SGLANG) \
		$(BIN)/python -m pytest -n0 -rs -s tests/engines/proof.py

# Without packages for pictures and sound: they may be of another build than torch, and then vLLM cannot be imported.
$(CURDIR)/.venv-vllm/.ready: recorders/requirements-vllm.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet -r recorders/requirements-vllm.txt
	$(@D)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(@D)/bin/python -m pip install --quiet ./recorders
	touch $@

$(CURDIR)/.venv-sglang/.ready: recorders/requirements-sglang.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet -r recorders/requirements-sglang.txt
	$(@D)/bin/python -m pip install --quiet --no-deps sglang==0.5.23 ./recorders
	touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache

types: setup
	$(BIN)/pyright

# Format, lint and unit tests of app/web. Node comes with requirements.txt; Biome, and axe-core for the
# browser tests, from npm's registry.
web: node_modules/.ready
	PATH="$(CURDIR)/$(BIN):$$PATH" npm run --silent lint
	PATH="$(CURDIR)/$(BIN):$$PATH" npm run --silent test

node_modules/.ready: $(VENV)/.ready package.json
	PATH="$(CURDIR)/$(BIN):$$PATH" npm install --no-package-lock --no-audit --no-fund --loglevel=error
	touch $@

# The embedded target, with a progress bar; later calls find it and return at once.
model: setup
	$(BIN)/python -m app model fetch

# After a change of requirements.txt, and for newer versions of what it brings.
constraints:
	PYTHON=$(PYTHON) .ci/constraints

setup: $(VENV)/.ready

$(VENV)/.ready: requirements.txt constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15) and "Draftscope needs Python 3.11 to 3.14; set PYTHON=/path/to/python3.14")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install -r requirements.txt
	touch $@

clean:
	rm -rf $(VENV) node_modules
