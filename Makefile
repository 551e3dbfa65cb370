# make serve    the example models, from a fresh clone, with the core packages only; compiles in the background
# make install  a virtual environment with everything for development, the package compiled as users get it
# make develop  the same with the package taken from src, uncompiled, so that a change needs no new install
# make test     what .ci/run runs: lint, types, tests; ARGS="tests/unit/cli -k flags" runs a part
# make test-two-front-ends  the tests of whole servers once more, with two front-end processes that get workers
# make format   ruff's fixes and formatting
# make bench    measure this machine
# make clean    remove the virtual environment and what tools left
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
WORKERS ?= 4
FILLERS ?= 2
PYTEST := $(BIN)/python -m pytest
# The dependencies are installed without bytecode: what is used of them writes its own.
unexport PYTHONDONTWRITEBYTECODE
# Which Python makes the environment is nobody's business in it.
unexport PYTHON
CORE := $(VENV)/.core-installed
DEPENDENCIES := $(VENV)/.dependencies-installed
# What only `make test` uses is compiled without optimization, in half the time, and served to nobody: `make serve` and
# `make install` do not take it for a compiled build. Where there is one for use, the tests use that.
ifeq ($(UNOPTIMIZED),)
WHEEL := $(VENV)/wheel
TEST := $(VENV)/.test-installed
OTHER_TEST := $(VENV)/.unoptimized-installed
else
WHEEL := $(VENV)/wheel-unoptimized
TEST := $(VENV)/.unoptimized-installed
OTHER_TEST := $(VENV)/.test-installed
export TRIREME_COMPILE_LEVEL := 0
endif
DEVELOP := $(VENV)/.develop

# What the installed package is made of; in a development environment it follows src by itself.
ifeq ($(wildcard $(DEVELOP)),)
PACKAGE := .
COMPILED := $(WHEEL)
SOURCES := hatch_build.py $(shell find src -name '*.py')
else
PACKAGE := -e .
COMPILED :=
SOURCES :=
endif

.PHONY: help install develop serve test tests tests-compiled test-two-front-ends test-programs lint format reference dashboards screenshots bench clean

help:
	@sed -n 's/^# make /make /p' $(firstword $(MAKEFILE_LIST))

install:
	@$(MAKE) --no-print-directory --jobs=2 $(TEST)

develop: | $(BIN)/python
	TRIREME_COMPILE=0 $(PIP) --no-compile -e '.[test]'
	@touch $(DEVELOP) $(CORE) $(DEPENDENCIES) $(TEST)

serve: $(CORE)
ifeq ($(wildcard $(DEVELOP)),)
	@$(BIN)/python background_build.py prepare
endif
	@echo $(BIN)/trireme serve examples/model_repository $(ARGS)
	@trap : INT; $(BIN)/trireme serve examples/model_repository $(ARGS); code=$$?; \
	$(BIN)/python background_build.py remind; exit $$code

# Two things at a time: the dependencies are installed while the package compiles, lint runs as soon as they are there,
# then the tests with the sources, and beside them the second run. With ARGS only the tests that they name.
test:
	@$(MAKE) --no-print-directory --jobs=2 UNOPTIMIZED=$(if $(wildcard $(TEST) $(VENV)/.compiled),,yes) lint tests $(if $(ARGS),,tests-compiled)

# The tests see the sources; servers that they start see the package as it is installed. Files of tests run in
# $(WORKERS) processes, more than there are cores because some wait for servers, and the tests of a file one after the
# other, so that they can share servers; the folders with the long ones come first. Meanwhile $(FILLERS) more run unit
# tests with what time is left.
tests: $(if $(ARGS),,test-programs) $(TEST)
	$(PYTEST) --forks $(WORKERS) --fillers $(FILLERS) $(ARGS) $(if $(ARGS),,|| $(BIN)/python tests/run_again.py $$?)

# The rooms with compiled modules once more, as they are installed; in a development environment that is the sources.
tests-compiled: lint $(TEST)
ifeq ($(wildcard $(DEVELOP)),)
	$(PYTEST) --override-ini pythonpath= --override-ini cache_dir=.pytest_cache/compiled $(addprefix tests/unit/,core observe protocol registry scheduling server)
endif

# Every server that a test starts as a command has two front-end processes, and leases them workers of all models that
# have some to spare; not part of `make test`, because it takes as long again.
test-two-front-ends: $(TEST)
	$(PYTEST) --forks $(WORKERS) --frontend-processes 2 --frontend-leases $(or $(ARGS),$(addprefix tests/,contract integration e2e))

# A browser and Prometheus, where they may be installed without asking anybody.
test-programs: | $(BIN)/python
	@$(BIN)/python tests/system_packages.py

lint: $(DEPENDENCIES)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(DEPENDENCIES)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Writes deploy/grafana/ and deploy/prometheus/ from the metric definitions.
dashboards: $(TEST)
	$(BIN)/python deploy/generate.py

# Takes the pictures of docs/console.md, of a server that has been under load for some minutes.
screenshots: $(TEST)
	TRIREME_WRITE_SCREENSHOTS=240 $(BIN)/python -m pytest --timeout 600 tests/e2e/console/test_screenshots.py

# Writes docs/reference/ from the code, and the types of the configuration's messages from their descriptor.
reference: $(TEST)
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/generate_stubs.py

bench: $(TEST)
	$(BIN)/python benchmarks/serving.py $(ARGS)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

# A pip from before 2025, as Python 3.11 and 3.12 bring it along, takes three times as long to find the packages.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	@echo "Renewing pip in $(VENV): up to half a minute."
	@$(PIP) 'pip>=25' || echo "It goes on with the pip that Python brings along."

# Nothing is compiled here, so that the first start is quick; bytecode is written for what is used.
$(CORE): pyproject.toml constraints.txt | $(BIN)/python
	@$(BIN)/python background_build.py is-installed || { echo "Installing the core into $(VENV): half a minute."; \
	TRIREME_COMPILE=0 $(PIP) --no-compile -e . && rm -f $(VENV)/.compiled; }
	@touch $@

$(DEPENDENCIES): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing into $(VENV), and compiling beside it: two minutes or three."
	TRIREME_COMPILE=0 $(PIP) --no-compile $(PACKAGE)[test]
	@touch $@

$(WHEEL): pyproject.toml constraints.txt $(SOURCES) | $(BIN)/python
	@rm -rf $@
	$(BIN)/python -m pip --disable-pip-version-check wheel --quiet --no-deps --wheel-dir $@ .

# The test environment contains the core, so it stands for both.
$(TEST): $(DEPENDENCIES) $(COMPILED)
ifeq ($(wildcard $(DEVELOP)),)
	$(PIP) --no-compile --no-deps --force-reinstall $(WHEEL)/*.whl
	@test "$$TRIREME_COMPILE" = 0 || $(BIN)/python background_build.py $(if $(UNOPTIMIZED),unmark,mark)
endif
	@rm -f $(OTHER_TEST)
	@touch $(CORE) $@
