# Every target sets the machine up first; once that is done it costs nothing.
#   make train                      OT-TRPO on CliffWalking and Taxi
#   make train ENV=Taxi-v4 STEPS=1000000
#   make test                       make check, then the tests
#   make check                      formatting, lint, types, import directions, no code from files
#   make results                    the README's results tables, made from results/
#   make wheel-check                the wheel installs into a clean environment and `ottrpo --help` runs there

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# One thread per process: two made training slower, and test processes would fight for cores.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
export NUMBA_NUM_THREADS := 1
export NPROC := 1

ENV ?= CliffWalking-v1 Taxi-v4
STEPS ?=
SEED ?= 0
PYTEST_ARGS ?= -n 2

.DELETE_ON_ERROR:
.PHONY: setup train test check format results slow wheel-check clean

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("ottrpo needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@echo "setting up $(VENV) (some minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[all]'
	@touch $@

train: $(INSTALLED)
	@set -e; for env in $(ENV); do \
	  $(BIN)/ottrpo train $$env --seed $(SEED) $(if $(STEPS),--steps $(STEPS)); \
	done

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.persistence.lint src

test: check
	$(BIN)/pytest $(PYTEST_ARGS) -m "not slow"

slow: $(INSTALLED)
	$(BIN)/pytest -m slow

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

results: $(INSTALLED)
	$(BIN)/python -m ottrpo.reports.readme

wheel-check: $(INSTALLED)
	$(BIN)/pytest -m slow tests/test_package.py

clean:
	rm -rf build dist src/ottrpo.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
