# Two commands do all set-up: `make demo` and `make test`. `make help` lists the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.docs-ready
DEMO := demo
ADDON := addons/companions

.PHONY: help demo test test-all lint format bench bench-check docs clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 16

$(READY): pyproject.toml $(ADDON)/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]' --editable '$(ADDON)[analysis]'
	touch $@

$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,docs]' --editable '$(ADDON)[analysis]'
	touch $@

demo: $(READY) ## embed, attack, verify and report on the embedded data (minutes; the report is demo/report.html)
	$(BIN)/indelible demo --out $(DEMO)

test: $(READY) ## the quick tests, offline, warnings as errors, on all cores (minutes)
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile -m 'not slow'

test-all: test ## the quick tests, then the slow ones
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile -m slow

lint: $(READY) ## ruff (lint and format check) and mypy strict on src, tests, experiments and the add-on
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## let ruff fix and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## measure speed: what each method, attack and verdict costs beside a plain step (goes on where it was)
	$(BIN)/python experiments/speed.py

bench-check: $(READY) ## measure again and compare with the committed ratios in results/speed.json
	$(BIN)/python experiments/speed.py --check --again

docs: $(DOCS_READY) ## build the documentation into docs/_build/html
	$(BIN)/sphinx-build --fail-on-warning --keep-going -b html docs docs/_build/html

clean: ## remove the environment and everything that was made
	rm -rf $(VENV) $(DEMO) docs/_build .mypy_cache .ruff_cache .pytest_cache
