# One command each, on a machine that has Python, pip and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8000
ARGS ?=
# Of the tests, which often wait: for processes, for time to pass. On two cores three are quicker than two.
WORKERS ?= 3

.PHONY: serve install test lint browser kernels bench format clean

serve: $(VENV)/.installed
	exec $(BIN)/turnout serve --port $(PORT) $(ARGS)

install: $(VENV)/.installed-dev

# Tests start hundreds of processes, and Python may have been told to write no bytecode.
test: $(VENV)/.installed-dev
	$(BIN)/python -m compileall -qq -j 0 -x '/[.]' . || true
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

# mypy and import-linter must see the folder under the package's name, whatever the clone is called.
lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	mkdir -p $(VENV)/lint && ln -sfn "$(CURDIR)" $(VENV)/lint/turnout
	cd $(VENV)/lint && MYPYPATH=. ../bin/mypy --config-file turnout/pyproject.toml -p turnout
	$(BIN)/lint-imports

# For tests of the console, which are skipped without it.
browser:
	@command -v chromium || command -v chromium-browser || command -v google-chrome || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get && apt-get -qq update && \
	    DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends chromium >/dev/null; } || \
	  echo "no browser, and apt-get as root cannot install one: tests that drive the console are skipped"

# The first engine on a machine would compile them.
kernels: $(VENV)/.installed-dev
	$(BIN)/turnout doctor >/dev/null

bench: $(VENV)/.installed
	$(BIN)/python bench/throughput.py $(ARGS)

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist *.egg-info

# pip would compile one file after the other, and that takes it a minute. Some files are templates, and no Python.
COMPILE := $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Turnout needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --no-compile --editable .
	$(COMPILE)
	touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[dev]'
	$(COMPILE)
	touch $@ $(VENV)/.installed
