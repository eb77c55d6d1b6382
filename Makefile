# `make setup` builds .venv; every other target calls it first.
#   make demo      tune a whole MobileNetV2, compare it with eager PyTorch and ONNX Runtime
#   make test      the tests of every day        make test-all  the slow ones too
#   make lint      ruff and mypy                 make bench     the benchmarks
# Choose an interpreter with PYTHON=/path/to/python3.12 (3.10, 3.11 or 3.12).

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.foretune-setup
DEMO   := foretune-work/demo
DEMO_SECONDS ?= 240
# Tests that judge timings run alone; the others in a process per core, whole files at a time, whose
# fixtures are dear.
PARALLEL := -n logical --maxprocesses 4 --dist loadfile

.PHONY: setup demo test test-all lint format bench clean
.DEFAULT_GOAL := setup

# The compiler is looked for as TVM looks for it.
setup: $(STAMP)
	@for choice in "$$CXX" "$$CC" g++ gcc clang++ clang c++ cc; do \
	  if [ -n "$$choice" ] && command -v $$choice >/dev/null 2>&1; then exit 0; fi; \
	done; \
	echo "warning: no C++ compiler found: foretune tunes, but cannot save artifacts (tune -o) without one: apt install g++" >&2

# Done again when pyproject.toml changes; otherwise nothing to do.
$(STAMP): pyproject.toml foretune_research/pyproject.toml
	@set -e; \
	fits() { "$$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' >/dev/null 2>&1; }; \
	found=''; \
	if [ "$(origin PYTHON)" = file ]; then choices="$(PYTHON) python3.12 python3.11 python3.10"; else choices="$(PYTHON)"; fi; \
	for choice in $$choices; do if fits "$$choice"; then found="$$choice"; break; fi; done; \
	if [ -z "$$found" ]; then \
	  echo "foretune needs Python 3.10, 3.11 or 3.12 with the venv module, but none of these is one: $$choices. Install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12" >&2; exit 2; \
	fi; \
	if [ -x $(BIN)/python ] && ! fits $(BIN)/python; then rm -rf $(VENV); fi; \
	if [ ! -x $(BIN)/python ]; then echo "creating $(VENV) with $$found"; "$$found" -m venv $(VENV); fi; \
	echo "installing foretune and everything it can use (some minutes the first time)"; \
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -e '.[all,dev]' -e ./foretune_research; \
	touch $@

demo: setup
	$(BIN)/foretune tune mobilenet_v2 --time $(DEMO_SECONDS) --work-dir $(DEMO) --fresh --store none \
	  -o $(DEMO)/mobilenet_v2.so --json $(DEMO)/tune.json
	$(BIN)/foretune compare mobilenet_v2 --artifact $(DEMO)/mobilenet_v2.so \
	  --against eager,onnxruntime --json $(DEMO)/compare.json
	$(BIN)/foretune report $(DEMO)

# Test files and foretune itself are compiled once, not by every process of the tests.
test test-all: export PYTHONDONTWRITEBYTECODE :=

test: setup
	$(BIN)/python -m pytest -q --durations 8 -m "not slow and not machine" $(PARALLEL)
	$(BIN)/python -m pytest -q --durations 8 -m "not slow and machine"

test-all: setup
	$(BIN)/python -m pytest -q --durations 8 -m "not machine" $(PARALLEL)
	$(BIN)/python -m pytest -q --durations 8 -m machine

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python -m benchmarks

clean:
	rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find foretune tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
