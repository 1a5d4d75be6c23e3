# Two commands: `make demo` runs the scenes of `perdure demo`, `make test` runs every check.
# Both set everything up by themselves in .venv from the locked requirements, `make test` also what only tests need.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready
TEST_STAMP := .venv/.ready-for-tests
WEIGHTS := src/perdure/models/weights/minilm-l6-v2-int8.graph.onnx
MODEL := .cache/models/SmolLM2-135M-Instruct.Q4_1.gguf

unexport PYTHONDONTWRITEBYTECODE  # without its bytecode every test process compiles the package and the tests again

.PHONY: demo demo-many test unit fuzz slice check bench table figures figures-full lock weights model release clean

demo: $(STAMP) $(WEIGHTS)
	@$(BIN)/perdure demo --all

# One home for three people on real servers and eight processes, of which one of each kind is killed: docs/operating.md
demo-many: $(TEST_STAMP) $(WEIGHTS)
	@$(BIN)/python tools/demo_many.py

test: $(TEST_STAMP) $(WEIGHTS) check
	$(BIN)/python -m pytest -n auto --dist worksteal  # else one worker keeps the slow tests

# Everything that needs no home on disk, no network and no browser.
unit: $(TEST_STAMP)
	$(BIN)/python -m pytest -n auto --dist loadgroup -m "not slow" tests/unit

# The tests of properties, with new random values each time; what it finds becomes an example in its test.
fuzz: $(TEST_STAMP)
	PERDURE_FUZZ=1 $(BIN)/python -m pytest -n auto $$(grep -rl "^@given" tests --include=*.py)

# The unit tests of one slice, by its name in docs/architecture.md, or of a surface: make slice S=recall, make slice S=web
SLICES = $$(sed -n 's/^| `\([a-z_]*\)` |.*/\1/p' docs/architecture.md) $$(ls src/perdure/surfaces | grep -v '[._]py')
slice: $(TEST_STAMP)
	@case " $$(echo $(SLICES)) " in *" $(S) "*) ;; *) echo "make slice S=NAME, one of: "$(SLICES); exit 2 ;; esac; \
	paths=$$(ls -d tests/unit/$(S) tests/unit/surfaces/$(S) tests/unit/test_$(S).py 2>/dev/null); \
	if [ -n "$$paths" ]; then exec $(BIN)/python -m pytest $$paths; fi; \
	echo "$(S) has no unit tests of its own. These, among others, use it:" $$(grep -lE "perdure\.(surfaces\.)?$(S)\b|home\.$(S)\b" -r tests/flow tests/contract --include=*.py | sort | head -4)

check: $(TEST_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(TEST_STAMP) $(WEIGHTS)
	$(BIN)/python -m benchmarks

# The public table of memories, with the sets that are here: docs/evaluation/table.md
table: $(STAMP) $(WEIGHTS)
	$(BIN)/python -m benchmarks.table

# The results that the README and the documents quote, in benchmarks/results; one of the present code is not made again.
figures: $(TEST_STAMP) $(WEIGHTS)
	$(BIN)/python -m benchmarks.figures

figures-full: $(TEST_STAMP) $(WEIGHTS)
	$(BIN)/python -m benchmarks.figures --full

# Wheels, sdists and SHA256SUMS in dist/, from a commit that has the tag of its version.
release: $(STAMP) $(WEIGHTS)
	$(BIN)/python tools/release.py dist

COMPILE := $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate

lock: $(STAMP)
	$(BIN)/python -m pip install -q uv
	$(COMPILE) --group dev pyproject.toml -o requirements-dev.lock
	$(COMPILE) --group build --extra server --extra openai --extra postgres --extra s3 --extra workers --extra openid --constraints requirements-dev.lock pyproject.toml -o requirements.lock

# The models that the wheel carries, from hash-pinned sources (123 MB, kept in .cache); fails unless they are the pinned ones.
weights: $(WEIGHTS)

$(WEIGHTS): tools/build_weights.py src/perdure/models/weights.json | $(STAMP)
	$(BIN)/python tools/build_weights.py
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
	HATCH_BUILD_NO_HOOKS=true $(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q src || true
	@touch $(STAMP)

$(TEST_STAMP): requirements-dev.lock $(STAMP)
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $(TEST_STAMP)

clean:
	rm -rf .venv .demo dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
