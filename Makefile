# Every target sets up what it needs in .venv and then runs. PYTHON is only used to create it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint types docs format bench-images bench-cost contact-sheets regression clean

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

$(VENV)/bench.stamp: $(VENV)/dev.stamp
	$(INSTALL) --editable '.[bench]'
	@touch $@

# speed against other libraries, and what learning costs; about 40 minutes. BENCH_ARGS=--quick for a look
SHIM := ../shared/tools
bench-images: $(VENV)/bench.stamp
	$(BIN)/python -m benchmarks.images $(if $(wildcard $(SHIM)),--torchvision-shim $(SHIM)) $(BENCH_ARGS)
	$(BIN)/python -m benchmarks.images --table --write docs/benchmarks.md

bench-cost: $(VENV)/bench.stamp
	$(BIN)/python -m benchmarks.learning_cost $(BENCH_ARGS)
	$(BIN)/python -m benchmarks.learning_cost --table --write docs/benchmarks.md

# the pictures of docs/augmentations.md
contact-sheets: $(VENV)/dev.stamp
	$(BIN)/python docs/_contact_sheets.py

# the paper's regression experiment at full scale; minutes, not seconds
regression: $(VENV)/user.stamp
	$(BIN)/optima reproduce regression --scale full --output runs/regression

clean:
	rm -rf $(VENV) runs site build dist .pytest_cache .ruff_cache .hypothesis
