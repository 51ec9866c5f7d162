# Two commands: `make app` opens the studio, `make test` runs everything that decides a change.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: app test lint types web setup model constraints clean

app: setup model
	$(BIN)/python -m app

# One thread a process: the cores are taken by the processes. Browser and graphviz tests are skipped,
# with a reason at the end, where chromium or dot is missing.
test: setup model lint types web
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

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
