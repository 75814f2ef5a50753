# Every target sets up what it needs in .venv and then runs. PYTHON is only used to create it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint types docs format regression clean

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "optima needs Python 3.11 or newer; run make PYTHON=…")'
	$(PYTHON) -m venv $(VENV)

# what a user installs
$(VENV)/user.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable '.[report]'
	@touch $@

# what a developer installs on top
$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable '.[dev,docs]'
	@touch $@ $(VENV)/user.stamp

demo: $(VENV)/user.stamp
	$(BIN)/optima demo --output runs/demo --force

# two processes of one thread each are quicker than one of two on tensors this small
test: $(VENV)/dev.stamp
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 $(PYTEST_ARGS)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp
	$(BIN)/pyright --pythonpath $(BIN)/python --warnings

docs: $(VENV)/dev.stamp
	$(BIN)/mkdocs build --strict --quiet

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# the paper's regression experiment at full scale; minutes, not seconds
regression: $(VENV)/user.stamp
	$(BIN)/optima reproduce regression --scale full --output runs/regression

clean:
	rm -rf $(VENV) runs site build dist .pytest_cache .ruff_cache .hypothesis
