# `make demo` and `make test` set up everything they need, once, in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready-test
PIP := $(BIN)/python -m pip install --quiet -c constraints.txt

.PHONY: demo test slow plain-kernels oracles check format lint types layers docs results clean constraints

demo: $(VENV)/.ready
	$(BIN)/fairtopk demo

# Tests share the cores; what takes long is in `make slow`.
PYTEST = $(BIN)/python -m pytest -n auto --dist worksteal
test: $(READY)
	$(PYTEST) -m "not slow"

slow: $(READY)
	$(PYTEST) -m slow

# Tests of the compiled loops, run as plain Python.
plain-kernels: $(READY)
	NUMBA_DISABLE_JIT=1 $(PYTEST) -m "kernel and not compiled" tests --ignore=tests/drill

# Our numbers beside those of other packages; `make test` skips this where they are missing.
oracles: $(VENV)/.ready-oracles
	$(BIN)/pytest tests/objectives/test_libauc.py tests/metrics/test_peers.py tests/reranking/test_peers.py
	$(BIN)/python benchmarks/libauc_loss.py

# The whole gate: what runs before every merge.
check: lint types layers test slow plain-kernels

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(BIN)/python tools/house.py --static  # a report, not a gate

types: $(READY)
	$(BIN)/mypy

layers: $(READY)
	$(BIN)/lint-imports

docs: $(VENV)/.ready-docs
	$(BIN)/mkdocs build --strict

# A night of training the first time; it goes on where it was stopped. RESULTS keeps the runs.
RESULTS ?= runs/results
results: $(READY)
	@test -n "$(FAIRTOPK_DATA)" || { echo "set FAIRTOPK_DATA to the folder with the MovieLens archive"; exit 2; }
	$(BIN)/python -m studies.movielens.run --data "$(FAIRTOPK_DATA)" --out "$(RESULTS)"
	$(BIN)/python -m studies.movielens.choices --data "$(FAIRTOPK_DATA)" --out "$(RESULTS)/choices"

# A stamp is renewed when the dependencies change.
$(VENV)/.ready: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11 or newer"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing fairtopk and what it needs into $(VENV) (once, a minute or two)"
	@$(PIP) -e .
	@touch $@

$(VENV)/.ready-test: $(VENV)/.ready
	@$(PIP) -e '.[test,export,lightgbm]'
	@touch $@

$(VENV)/.ready-docs: $(VENV)/.ready
	@$(PIP) -e '.[docs]'
	@touch $@

# What libauc asks for would replace torch, so it comes without, beside what its losses import.
$(VENV)/.ready-oracles: Makefile $(READY)
	@$(PIP) scikit-learn scipy tqdm
	@$(PIP) --no-deps libauc
	@$(PIP) aif360 fairranktune fairsearchcore ir-measures torchmetrics
	@touch $@

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks studies tools -name __pycache__ -type d -prune -exec rm -rf {} +

# Pins what is installed now, after an upgrade that passed `make check`.
constraints: $(READY) $(VENV)/.ready-docs $(VENV)/.ready-oracles
	$(BIN)/python -m pip list --format=freeze | grep -vE '^(fairtopk|pip|setuptools)==' | sed 's/+cpu$$//' > constraints.txt
