# Two commands do all the set-up: `make demo` and `make test`. Both make .venv first.

PYTHON ?= python3.11
PYTHON310 ?= $(shell scripts/find-python 3.10)
VENV := .venv
SITE_VENV := .venv-site
BIN := $(VENV)/bin
# Everything installs with plain pip. torch's version is pinned so that no CUDA packages follow it.
TORCH := torch==2.13.0
# Only its ONNX file is used; its dependencies would bring torchaudio.
VAD := silero-vad==6.2.3
# A module stays on one worker, so that what its tests share is made once.
WORKERS := --numprocesses auto --maxprocesses 4 --dist loadscope
# Hundreds of processes of a test run import the same modules: each compiles them where Python may
# not write bytecode, as some containers ask, which costs more than half of the collection.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help install wheels demo test test-near test-all test-rest test-py310 test-arm64 test-attack check docs docs-site deb image bench clean

help:
	@echo "make demo        export, check, run and profile the shipped model; verify one of a user's"
	@echo "make test        the test suite without what takes long, in some five minutes"
	@echo "make test-near FILE=...   the tests that a change in a file can break, in about a minute"
	@echo "make test-all    every test, also on Python 3.10"
	@echo "make test-rest PART=2/8   what make test leaves out, or one part of it"
	@echo "make test-py310  the runtime on Python 3.10, where one is found"
	@echo "make test-arm64  runtime, devices and replays on aarch64 under emulation (docs/arm64.md)"
	@echo "make test-attack every fuzzer with all its cases, some 60 minutes (docs/attacks.md)"
	@echo "make check       ruff, format, mypy, then the tests"
	@echo "make docs        write docs/api.md and a table of docs/native.md, then test the documents"
	@echo "make docs-site   README and docs/ as pages in site/, with a search that needs no server"
	@echo "make deb         Debian packages of the wheels in dist/"
	@echo "make image BUNDLE=...   a container image of a bundle's program, for four processors"
	@echo "make bench       measure everything again, write benchmarks/records and docs/results.md"
	@echo "make wheels      a wheel for each platform in dist/; CHECK=1 builds twice and compares"
	@echo "make install     only the virtual environment"
	@echo "make clean       remove what these made, the virtual environments included"

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml Makefile
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet $(TORCH)
	$(BIN)/pip install --quiet --editable '.[train]' --group dev
	$(BIN)/pip install --quiet --no-deps $(VAD)
	@touch $@

demo: install
	$(BIN)/python demo/demo.py

test: install
	$(BIN)/python -m pytest $(WORKERS) --everyday

# FILE names files or models; without it, the files that git says are changed.
test-near: install
	@$(BIN)/python scripts/test_near.py $(FILE)

test-all: CASES310 :=
test-all: install test-py310
	$(BIN)/python -m pytest $(WORKERS)

# A part of the combinations and journeys that `make test` leaves out; PART=2/8 is the third of
# eight. What is marked slow takes minutes and runs in `make test-all` only.
PART ?= 0/1
test-rest: install
	$(BIN)/python -m pytest $(WORKERS) --rest --part $(PART)

# The runtime and the devices on the Python and the onnxruntime of JetPack 6, without torch: the
# first case of each test, and CASES310="--one-case --part 2/8" that part of the others, too.
CASES310 ?= --everyday --one-case
test-py310: install
	@scripts/test-py310 "$(PYTHON310)" $(BIN)/python $(CASES310)

# The same on aarch64 binaries under emulation of a Cortex-A72; ARM64_TESTS names other tests.
test-arm64: install
	@scripts/test-arm64 $(BIN)/python $(ARM64_TESTS)

# Bundles, snapshots, rows, kills and more with fixed seeds and counts; ATTACK="-k rows" is one kind.
test-attack: install
	$(BIN)/python -m pytest -q -s attack $(ATTACK)

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(MAKE) test

docs: install
	$(BIN)/python scripts/api_page.py >docs/api.md
	$(BIN)/python scripts/operator_table.py
	$(BIN)/python -m pytest -q tests/test_readme.py tests/test_public_surface.py tests/export/native/test_limits.py

# README and docs/ as pages in site/: no server, no network, links and anchors checked.
$(SITE_VENV)/installed: docs/site/requirements.txt
	$(PYTHON) -m venv $(SITE_VENV)
	$(SITE_VENV)/bin/pip install --quiet --no-deps --requirement $<
	@touch $@

docs-site: $(SITE_VENV)/installed
	$(PYTHON) scripts/site_pages.py build/site-pages
	NO_MKDOCS_2_WARNING=1 $(SITE_VENV)/bin/mkdocs build --strict
	@echo "open site/index.html"

# Debian packages of the wheels in dist/ (docs/releasing.md).
deb:
	scripts/build-deb dist dist

# BUNDLE as a container image of its static program, for four processors; needs ziglang.
image: install
	$(BIN)/python scripts/oci_image.py $(BUNDLE) --out dist/$(notdir $(BUNDLE)).oci.tar

bench: install
	$(BIN)/python -m benchmarks step_latency
	$(BIN)/python -m benchmarks constancy
	$(BIN)/python -m benchmarks process
	$(BIN)/python -m benchmarks growth
	$(BIN)/python -m benchmarks drift
	$(BIN)/python -m benchmarks drift --backend native
	$(BIN)/python -m benchmarks accuracy
	$(BIN)/python -m benchmarks precision
	$(BIN)/python -m benchmarks reopen
	$(BIN)/python -m benchmarks memory_states
	$(BIN)/python -m benchmarks budget
	$(BIN)/python -m benchmarks flash
	$(BIN)/python -m benchmarks energy_simulation
	$(BIN)/python -m benchmarks engine_build
	$(BIN)/python -m benchmarks examples
	$(BIN)/python -m benchmarks silero
	$(BIN)/python -m benchmarks native_sizes
	$(BIN)/python -m benchmarks native_speed
	$(BIN)/python -m benchmarks comparisons
	$(BIN)/python -m benchmarks native_process
	$(BIN)/python -m benchmarks native_others
	$(BIN)/python -m benchmarks family --fresh
	$(BIN)/python -m benchmarks family --preset small --points 100 1000 --fresh
	$(BIN)/python -m benchmarks published_forms
	$(BIN)/python -m benchmarks floors
	$(BIN)/python -m benchmarks attention_speed
	$(BIN)/python -m benchmarks attention_operations
	$(BIN)/python -m benchmarks attention_drift
	$(BIN)/python -m benchmarks condition_tables
	$(BIN)/python -m benchmarks tables

# The tools of the wheels, in an environment of their own (docs/install.md). The generator needs onnx;
# versions are those that make the bytes: of the metadata, and of the compiled libraries.
WHEEL_TOOLS := .venv-wheels
$(WHEEL_TOOLS)/installed: Makefile
	$(PYTHON) -m venv $(WHEEL_TOOLS)
	$(WHEEL_TOOLS)/bin/pip install --quiet setuptools==80.9.0 ziglang==0.17.1 "onnx>=1.17"
	@touch $@

WHEELS ?= dist
wheels: $(WHEEL_TOOLS)/installed
	ZIG_GLOBAL_CACHE_DIR=$(CURDIR)/$(WHEEL_TOOLS)/zig-cache $(WHEEL_TOOLS)/bin/python \
	    scripts/wheels/build.py --out $(WHEELS) $(if $(CHECK),--check)

clean:
	rm -rf $(VENV) $(SITE_VENV) build site .venv310 .arm64 .node-red .libraries .node-tools .zig demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
