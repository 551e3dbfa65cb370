# install: a virtual environment with everything for development, the package compiled as users get it
# develop: the same with the package taken from src, uncompiled, so that a change needs no new install
# serve:   the example models, from a fresh clone, with the core packages only; compiles in the background
# test:    what .ci/run runs: lint, types, tests
# bench:   measure this machine
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
CORE := $(VENV)/.core-installed
TEST := $(VENV)/.test-installed
DEVELOP := $(VENV)/.develop

# What the installed package is made of; in a development environment it follows src by itself.
ifeq ($(wildcard $(DEVELOP)),)
PACKAGE := .
SOURCES := hatch_build.py $(shell find src -name '*.py')
else
PACKAGE := -e .
SOURCES :=
endif

.PHONY: install develop serve test lint format reference bench clean

install: $(TEST)

develop: | $(BIN)/python
	TRIREME_COMPILE=0 $(PIP) -e '.[test]'
	@touch $(DEVELOP) $(CORE) $(TEST)

serve: $(CORE)
ifeq ($(wildcard $(DEVELOP)),)
	@$(BIN)/python background_build.py prepare
endif
	$(BIN)/trireme serve examples/model_repository $(ARGS)

# The tests see the sources; servers that they start, and the second run, the package as it is installed. Files of
# tests run side by side, and the tests of a file one after the other, so that they can share servers; the folders with
# the long ones come first.
test: lint
	$(PYTEST) $(ARGS)
	$(PYTEST) --override-ini pythonpath= tests/unit/core tests/unit/observe tests/unit/protocol tests/unit/registry tests/unit/scheduling tests/unit/server

lint: $(TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(TEST)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Writes docs/reference/ from the code, and the types of the configuration's messages from their descriptor.
reference: $(TEST)
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/generate_stubs.py

bench: $(TEST)
	$(BIN)/python benchmarks/serving.py $(ARGS)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Nothing is compiled here, so that the first start is quick; bytecode is written for what is used.
$(CORE): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing the core into $(VENV): half a minute."
	TRIREME_COMPILE=0 $(PIP) --no-compile -e .
	@rm -f $(VENV)/.compiled
	@touch $@

# The test environment contains the core, so it stands for both.
$(TEST): pyproject.toml constraints.txt $(SOURCES) | $(BIN)/python
	@echo "Installing into $(VENV); compiling takes a minute or two."
	$(PIP) $(PACKAGE)[test]
ifeq ($(wildcard $(DEVELOP)),)
	@test "$$TRIREME_COMPILE" = 0 || $(BIN)/python background_build.py mark
endif
	@touch $(CORE) $@
