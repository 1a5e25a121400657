# Every target installs what it needs first; once that is done it costs nothing.
#   make train                      OT-TRPO on CliffWalking and Taxi
#   make train ENV=Taxi-v4 STEPS=1000000
#   make test                       make check, then the tests
#   make check                      formatting, lint, types, import directions, no code from files
#   make lock                       constraints.txt anew: what is installed, and the hashes of its files
#   make results                    the tables of README.md and results/RESULTS.md, made from results/
#   make docs                       the documentation site, in docs/_build/html
#   make wheel-check                the wheel in a clean environment: it trains, reports, and says what it lacks
#   make matrix                     the same with every Python from 3.11 on that is at hand

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# What is installed, each a stamp: the core, the deep agents, the site's tools, all that tests need.
CORE := $(VENV)/.core
DEEP := $(VENV)/.deep
DOCS := $(VENV)/.docs
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check
# The packages of a stage as constraints.txt has them, and no file with another hash than it lists.
HASHED = awk -v stage=$(1) '/^\# for / { on = index($$0 " ", " " stage " ") } on' constraints.txt > $(VENV)/$(1).txt \
	&& $(PIP) install --quiet --require-hashes --no-deps --requirement $(VENV)/$(1).txt
# Torch's CPU build, or, if no index has it, the other with CUDA's libraries.
TORCH = $(call HASHED,cpu) 2> $(VENV)/cpu.log || if grep 'No matching distribution' $(VENV)/cpu.log; \
	then $(call HASHED,cuda); else cat $(VENV)/cpu.log >&2; false; fi
# The project itself, without asking any index; what is missing or does not fit is told.
PROJECT = $(PIP) install --quiet --no-deps --no-build-isolation --editable . \
	&& { $(PIP) check > $(VENV)/check.txt || cat $(VENV)/check.txt; }
# One thread per process: two made training slower, and test processes would fight for cores.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
export NUMBA_NUM_THREADS := 1
export NPROC := 1

ENV ?= CliffWalking-v1 Taxi-v4
STEPS ?=
SEED ?= 0
# These train with the core alone; any other environment may need the deep agents.
FINITE := CliffWalking% Taxi% FrozenLake%
NEEDED := $(if $(filter-out $(FINITE),$(ENV)),$(DEEP),$(CORE))
# those that answer: a name may stand for a version that is not there
PYTHONS ?= $(foreach minor,11 12 13 14,$(shell python3.$(minor) -c 'import sys; print(sys.executable)' 2> /dev/null))
# a file's tests in one process: two would each compile its programs
PYTEST_ARGS ?= -n 2 --dist loadfile

.DELETE_ON_ERROR:
.PHONY: setup lock train test check format results slow docs wheel-check matrix clean

setup: $(INSTALLED)

# whether it is there counts, not its date
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("ottrpo needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENV)

$(CORE): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV) (a minute the first time)"
	@$(call HASHED,core)
	@$(PROJECT)
	@touch $@

$(DEEP): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing the deep agents into $(VENV) (some minutes the first time)"
	@$(call HASHED,deep)
	@$(TORCH)
	@$(PROJECT)
	@touch $(CORE) $@

$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing everything into $(VENV) (some minutes the first time)"
	@$(call HASHED,test)
	@$(TORCH)
	@$(PROJECT)
	@touch $(CORE) $(DEEP) $@

$(DOCS): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing what the site needs into $(VENV) (some minutes the first time)"
	@$(call HASHED,docs)
	@$(TORCH)
	@$(PROJECT)
	@touch $(CORE) $(DEEP) $@

train: $(NEEDED)
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

lock: $(INSTALLED)
	$(BIN)/python -m tests.lock

results: $(INSTALLED)
	$(BIN)/python -m ottrpo.reports.readme

# a warning is an error: links between pages lead somewhere, tutorials run
docs: $(DOCS)
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs docs/_build/html
	@echo "docs/_build/html/index.html"

wheel-check: $(INSTALLED)
	$(BIN)/pytest -m slow tests/test_package.py

matrix: $(INSTALLED)
	@set -e; for python in $(PYTHONS); do \
	  echo "$$python"; WHEEL_PYTHON=$$python $(BIN)/pytest -q -m slow tests/test_package.py; \
	done

clean:
	rm -rf docs/_build docs/generated docs/site docs/tutorials build dist src/ottrpo.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
