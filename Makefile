# Two commands: `make app` opens the studio, `make test` runs everything that decides a change.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: app test lint types setup model clean

app: setup model
	$(BIN)/python -m app

# One thread a process: the cores are taken by the processes.
test: setup model lint types
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/pyright

# The embedded target, with a progress bar; later calls find it and return at once.
model: setup
	$(BIN)/python -m app fetch

setup: $(VENV)/.ready

$(VENV)/.ready: requirements.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Draftscope needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install -r requirements.txt
	touch $@

clean:
	rm -rf $(VENV)
