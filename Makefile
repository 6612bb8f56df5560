# Two commands do everything on a fresh machine with Python 3.11 or later: `make demo` and `make test`.

# The newest that Inbounds supports and that runs here; `make test PYTHON=python3.11` takes another.
PYTHON ?= $(shell sh release/pythons --newest)
VENV := .venv
BIN := $(VENV)/bin
DOCS := .venv-docs
OUT ?= out/demo
# Two workers: the tests are compiled programs of one core each.
WORKERS ?= 2

.PHONY: demo test lowest lint docs tutorials dist bench scoreboard fuzz clean

demo: $(VENV)/installed
	$(BIN)/python -m experiments demo --out $(OUT)

test: $(VENV)/installed
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --ignore tests/transforms
	XLA_FLAGS= $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal tests/transforms

# The same with the lowest versions that pyproject.toml allows, in an environment of its own. With Python 3.11, for which they were made.
lowest:
	PIP_CONSTRAINT=$(CURDIR)/tests/lowest.txt $(MAKE) test VENV=.venv-lowest PYTHON="$$(sh release/pythons --oldest)"

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, in an environment of its own: a warning is an error, and then headless Chromium opens it.
docs: $(DOCS)/installed
	rm -rf out/site
	$(DOCS)/bin/sphinx-build --fail-on-warning --keep-going --fresh-env --quiet --builder html docs out/site
	$(DOCS)/bin/python -m pytest --quiet docs/_site
	@echo "open out/site/index.html"

# Every cell of every tutorial, with the numbers that stand there; `python docs/tutorials/run.py` keeps what they print.
tutorials: $(VENV)/installed
	$(BIN)/python docs/tutorials/run.py --check

# The wheel and the sdist, each installed and tried in fresh environments of the oldest and the newest Python that is found.
dist: $(VENV)/installed
	rm -rf dist
	$(BIN)/python -m build --quiet --outdir dist
	$(BIN)/python release/check.py dist

fuzz: $(VENV)/installed
	$(BIN)/python tests/fuzz/run.py --inputs 100000

bench: $(VENV)/installed
	$(BIN)/python -m benchmarks.transforms
	$(BIN)/python -m benchmarks.gradients
	$(BIN)/python benchmarks/throughput --set-up --out benchmarks/results/throughput.json
	$(BIN)/python benchmarks/throughput --pages
	$(BIN)/python -m benchmarks.bounds --out benchmarks/results/bounds.json
	$(BIN)/python -m benchmarks.accuracy --out benchmarks/results/accuracy.json --picture docs/results/speed/accuracy
	$(BIN)/python -m benchmarks.speed_pages
	$(BIN)/python -m benchmarks.geometry
	$(BIN)/python -m benchmarks.geometry --pages

# Total error against time beside other methods, in an environment of its own. It goes on where it was cut off.
SCOREBOARD := .venv-scoreboard
scoreboard:
	test -x $(SCOREBOARD)/bin/python || "$(PYTHON)" -m venv $(SCOREBOARD)
	$(SCOREBOARD)/bin/python -m pip install --quiet --editable '.[arviz]' --requirement benchmarks/scoreboard/requirements.txt
	$(SCOREBOARD)/bin/python -m benchmarks.scoreboard references
	$(SCOREBOARD)/bin/python -m benchmarks.scoreboard race

# Set up again when the dependencies change, or the Python; the marker is written last, so that an interrupted install is repeated.
$(VENV)/installed: pyproject.toml $(VENV)/pyvenv.cfg
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

$(DOCS)/installed: pyproject.toml $(DOCS)/pyvenv.cfg
	$(DOCS)/bin/python -m pip install --quiet --upgrade pip
	$(DOCS)/bin/python -m pip install --quiet --editable '.[docs]'
	touch $@

# Looked at every time, and made anew where it is of another Python, of one that is gone, or was never finished.
$(VENV)/pyvenv.cfg $(DOCS)/pyvenv.cfg: FORCE
	@python="$(PYTHON)"; is='import sys; print(sys.version)'; \
	if [ -z "$$python" ]; then exit 1; fi; \
	"$$python" -c 'import sys; sys.exit("Inbounds needs Python 3.11 or later; set PYTHON=...") if sys.version_info < (3, 11) else None' && \
	if [ ! -e $(@D)/installed ] || [ "$$($(@D)/bin/python -c "$$is" 2>/dev/null)" != "$$("$$python" -c "$$is")" ]; then \
		"$$python" -m venv --clear $(@D); \
	fi

FORCE:

clean:
	rm -rf .venv .venv-docs .venv-lowest .venv-newest .venv-scoreboard dist docs/reference out .bench
