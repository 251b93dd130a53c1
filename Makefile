# Needs Python 3.11 or newer with venv and pip, and nothing else.
PYTHON ?= python3
BIN := .venv/bin

# The locked Node.js for pyright, whatever the machine has.
export PYRIGHT_PYTHON_GLOBAL_NODE := 0
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.PHONY: help setup run test check format coverage nightly bench lock clean

help: ## list what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.ready ## install everything into .venv

run: setup ## a sample API and a client that walks into its limits
	$(BIN)/noria demo

test: setup ## all tests that need no root, no server and no Node.js
	$(BIN)/pytest

check: setup ## format, lint, types, floors
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo --no-cache

format: setup ## format and fix what can be fixed
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

coverage: setup ## the tests, with the branches they miss
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

nightly: setup ## the long tests
	$(BIN)/pytest -m nightly --hypothesis-profile=nightly --timeout=3600

bench: setup ## Noria beside its peers
	$(BIN)/python bench/run.py

# Without addresses: packages come from whichever index pip is set up with.
lock: setup ## choose versions afresh: requirements.lock
	$(BIN)/uv pip compile pyproject.toml --group dev --all-extras --upgrade \
		--universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-annotate \
		--custom-compile-command "make lock" --quiet --output-file requirements.lock

clean: ## remove what the other targets made
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.* dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A new lock file gets a new environment, so that nothing old is left in it.
.venv/.locked: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Noria needs Python 3.11 or newer; '$(PYTHON)' is not. Try: make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

.venv/.ready: .venv/.locked pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
