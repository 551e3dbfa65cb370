# install: a virtual environment with everything for development
# serve:   the example models, from a fresh clone, with the core packages only
# test:    what .ci/run runs: lint, types, tests
# bench:   measure this machine
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
CORE := $(VENV)/.core-installed
TEST := $(VENV)/.test-installed

.PHONY: install serve test lint format reference bench clean

install: $(TEST)

serve: $(CORE)
	$(BIN)/trireme serve examples/model_repository $(ARGS)

test: lint
	$(BIN)/python -m pytest $(ARGS)

lint: $(TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(TEST)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Writes docs/reference/ from the code.
reference: $(TEST)
	$(BIN)/python docs/generate.py

bench: $(TEST)
	$(BIN)/python benchmarks/serving.py $(ARGS)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(CORE): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -c constraints.txt -e .
	@touch $@

# The test environment contains the core, so it stands for both.
$(TEST): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -c constraints.txt -e '.[test]'
	@touch $(CORE) $@
