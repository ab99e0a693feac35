# Two commands set everything up: `make demo` shows what Roundtrip does, `make test` checks that it does it.
# Both create the environment in .venv the first time. PYTHON may name any Python of at least 3.11.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

.PHONY: demo test test-slow check format docs pictures clean

demo: .venv/ready
	$(BIN)/roundtrip demo -o demo

test: check
	$(BIN)/python -m pytest -m "not slow" -n 2

test-slow: .venv/ready
	$(BIN)/python -m pytest -m slow

check: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The site in build/docs: offline, and a warning is an error. It begins at build/docs/index.html.
docs: .venv/docs
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --builder html docs build/docs
	@echo "build/docs/index.html"

# Draws docs/images/ anew; `make docs` takes them as they are.
pictures: .venv/ready
	$(BIN)/python docs/pictures.py

# torch comes first and pinned: asked for by range it may bring gigabytes of GPU libraries.
.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Roundtrip needs Python 3.11 or newer; `make PYTHON=/path/to/python3.11` chooses one.")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable . --group dev
	@touch $@

.venv/docs: .venv/ready
	$(BIN)/pip install --quiet --constraint constraints.txt --group docs
	@touch $@

clean:
	rm -rf .venv build demo .pytest_cache .ruff_cache .mypy_cache
