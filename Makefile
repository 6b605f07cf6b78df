# One virtual environment in .venv, two stamps in it: `demo` has the runtime dependencies, `test` all of them.
# Choose an interpreter with `make PYTHON=/path/to/python …`; otherwise the first that works is taken.

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo test browser lint types contract spelling docs bench soak figures lock clean

PYTHON ?=
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install -q
COMPILE := $(BIN)/uv pip compile -q -U --universal --generate-hashes --no-header --no-emit-index-url --no-emit-find-links
VENV_OK := $(VENV)/.stamp-venv
DEMO_OK := $(VENV)/.stamp-demo
TEST_OK := $(VENV)/.stamp-test
DOCS_OK := $(VENV)/.stamp-docs

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(DEMO_OK) ## install the package and run its demonstration
	@$(BIN)/occamap demo

test: lint types contract spelling $(DOCS_OK) ## everything a change must pass: lint, types, contract, spelling, tests, docs
	@echo "pytest: tests and doctests, warnings as errors"
	@$(BIN)/python -m pytest -q
	@$(MAKE) docs

browser: ## install Debian's chromium, in which reports are tested, unless a browser is there
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do \
	  if command -v $$name >/dev/null; then exit 0; fi; \
	done; \
	echo "apt: chromium"; apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium >/dev/null

lint: $(TEST_OK) ## ruff over the whole tree
	@echo "ruff: style and likely mistakes"
	@$(BIN)/ruff check .

types: $(TEST_OK) ## mypy, strict, over the package
	@echo "mypy: types of the package"
	@$(BIN)/mypy

contract: $(TEST_OK) ## import-linter: imports point one way, numba stays in its room
	@echo "import-linter: direction of the imports"
	@out=$$($(BIN)/lint-imports 2>&1) || { echo "$$out"; exit 1; }

spelling: $(TEST_OK) ## codespell over code and texts
	@echo "codespell: code and texts"
	@$(BIN)/codespell

docs: $(DOCS_OK) ## the site, into build/docs: every cell runs, links are checked, warnings are errors
	@echo "sphinx: pages and their cells, warnings as errors"
	@rm -rf docs/generated build/docs
	@$(BIN)/python -m sphinx -b html -j auto -q -W --keep-going docs build/docs
	@echo "open build/docs/index.html"

bench: $(TEST_OK) ## time and memory, side by side with the peers
	@$(BIN)/python -m benchmarks

soak: $(TEST_OK) ## faults, load and hostile input by the thousand; counts go to soak/results
	@$(PIP) -e '.[soak]'
	@$(BIN)/python -m soak
	@$(BIN)/python -m soak.page

figures: $(TEST_OK) ## the figures of the paper in full, into docs/figures
	@$(BIN)/occamap reproduce all --full --out docs/figures

lock: $(TEST_OK) ## renew the locks with hashes in requirements
	@$(PIP) uv
	@for what in "lock:--extra cells --extra dask" "lock-test:--extra test"; do \
	  $(COMPILE) pyproject.toml $${what#*:} -o requirements/$${what%%:*}.txt >/dev/null || exit 1; \
	done
	@printf 'hatchling>=1.27\nvl-convert-python>=1.9,<2\n' | $(COMPILE) --python-version 3.11 - -o requirements/lock-build.txt >/dev/null

clean: ## remove the environment, caches and build products
	@rm -rf $(VENV) build dist docs/generated .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV_OK):
	@for py in $(or $(PYTHON),python3 python3.13 python3.12 python3.11); do \
	  if "$$py" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "venv: $(VENV) with $$("$$py" -V)"; "$$py" -m venv --clear $(VENV) && touch $@; exit; \
	  fi; \
	done; \
	echo "occamap needs Python 3.11 or newer with venv and pip, but $(if $(PYTHON),$(PYTHON) is not one,none was found): name one with make PYTHON=/path/to/python." >&2; exit 1

$(DEMO_OK): pyproject.toml | $(VENV_OK)
	@echo "pip: occamap and its dependencies"
	@$(PIP) -e .
	@touch $@

$(TEST_OK): pyproject.toml | $(VENV_OK)
	@echo "pip: occamap with what the tests and benchmarks need"
	@$(PIP) -e '.[test,peers]'
	@touch $@ $(DEMO_OK)

$(DOCS_OK): pyproject.toml | $(TEST_OK)
	@echo "pip: what the site is built with"
	@$(PIP) -e '.[docs]'
	@touch $@
