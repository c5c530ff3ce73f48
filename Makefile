# make demo | test | lint | games | venv | clean. The virtual environment is made when it is missing or
# when the dependencies have changed.

PYTHON ?= python3
PYTEST_ARGS ?= -n 2 --dist loadfile --no-loadscope-reorder

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test lint games venv clean

demo: $(INSTALLED)
	$(BIN)/python -m grue.cli.demo

test: lint
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pyright --pythonpath $(BIN)/python

# Builds the shipped levels anew, story files and compiled files.
games: $(INSTALLED)
	$(BIN)/python -m grue.games.saladworld.builder
	$(BIN)/python -m grue.engine.compiler

venv: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist demo .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
