# Every target works from a bare Python >= 3.11, and sets up .venv first: `make demo`, `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TESTS  ?= # folders or files for `make coverage`; empty: all

.PHONY: help setup demo test test-all test-core types-beside tests-unmarked tests-most tests-ray nightly nightly-stress nightly-packages nightly-wheel nightly-pytests nightly-oldest nightly-rays nightly-mutation test-litellm test-mcp test-frameworks test-promptfoo test-scorers test-verifiers test-osmosis test-cluster browser viewer viewer-check lint types check coverage docs docs-screenshots matrix clean bench

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort

setup: $(STAMP) ## make .venv with the package, its extras and the tools

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable ".[all]" --group dev
	$(BIN)/python -m pip install --quiet --upgrade --no-deps --target $(VENV)/companions --group companions # only their tests see them
	touch $(STAMP)

demo: $(STAMP) ## run configs/eval/multiply.toml with five runs per row: 500 rollouts, offline
	$(BIN)/python -m pytest --osmosis-config=configs/eval/multiply.toml --osmosis-n=5 --osmosis-batch-size=32

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m tests.lint

types: $(STAMP)
	$(BIN)/mypy

check: lint types ## lint and types

# mypy needs a core for minutes if it has no cache, so it runs beside the tests, and prints only what it finds.
PYTEST       := $(BIN)/python -m pytest
IN_PARALLEL  := -n 2 --dist worksteal

test: lint ## lint, types, and the tests that take minutes together: no mark
	@$(MAKE) --no-print-directory -j2 types-beside tests-unmarked

test-all: lint browser ## lint, types, and every test that CI requires; print the ten slowest and the balance
	@$(MAKE) --no-print-directory -j3 types-beside tests-ray tests-most

types-beside: $(STAMP)
	@mkdir -p dist
	@$(BIN)/mypy > dist/types.txt 2>&1 || { cat dist/types.txt; exit 1; }

tests-unmarked: $(STAMP)
	$(PYTEST) $(IN_PARALLEL) -m "not slow and not ray and not nightly"

tests-most: $(STAMP)
	$(PYTEST) $(IN_PARALLEL) --durations=10 -m "not ray and not nightly"

tests-ray: $(STAMP) # one cluster serves all, so one process runs them
	@mkdir -p dist
	@$(PYTEST) -p no:xdist --durations=3 -m "ray and not nightly" > dist/ray.txt 2>&1 || { cat dist/ray.txt; exit 1; }
	@tail -n 8 dist/ray.txt

CORE := dist/core
test-core: $(STAMP) ## test the core in a copy without pytest_osmosis/addons, without the tests of add-ons
	rm -rf $(CORE)
	mkdir -p $(CORE)
	git ls-files -- . ":!pytest_osmosis/addons" | tar -cf - -T - | tar -xf - -C $(CORE)
	cd $(CORE) && PYTHONPATH=$(abspath $(CORE)) $(abspath $(BIN))/python -m pytest $(IN_PARALLEL) -m "not slow and not ray and not nightly and not addon"

# Nothing waits for these. Each part takes an hour at most.
NIGHTLY := stress packages wheel pytests oldest rays mutation
nightly: $(addprefix nightly-,$(or $(PART),$(NIGHTLY))) ## test what takes too long for CI; PART=stress, packages, wheel, pytests, oldest, rays or mutation: one part

nightly-stress: $(STAMP)
	$(PYTEST) $(IN_PARALLEL) --durations=10 -m "nightly or hypothesis" --hypothesis-profile=new

nightly-packages: test-litellm test-mcp test-frameworks test-promptfoo test-scorers test-verifiers test-osmosis

# nox finds interpreters on PATH. This adds pyenv's, even if none is active.
PYENV_BINS := $(subst $() ,:,$(wildcard $(HOME)/.pyenv/versions/3.1[1-3]*/bin))
NOX_wheel   := wheel
NOX_pytests := tests
NOX_oldest  := oldest beside
NOX_rays    := cluster
nightly-wheel nightly-pytests nightly-oldest nightly-rays: nightly-%: $(STAMP)
	$(BIN)/python -m pip install --quiet --group matrix
	PATH="$(PYENV_BINS):$$PATH" $(BIN)/nox -s $(NOX_$*)

matrix: nightly-wheel nightly-pytests nightly-oldest nightly-rays ## test the wheel on every Python, and the plugin with other pytests, Rays and the oldest requirements (hours)

nightly-mutation: $(STAMP)
	$(BIN)/python -m tests.mutation

# LiteLLM brings packages that only these tests see. They also run with openai 2 here, which some frameworks require.
test-litellm: $(STAMP) ## test the client of LiteLLM
	test -d $(VENV)/litellm/litellm || $(BIN)/python -m pip install --quiet --target $(VENV)/litellm "litellm>=1.100" "mcp>=2.2" "openai<3"
	PYTHONPATH=$(VENV)/litellm $(BIN)/python -m pytest -W ignore::DeprecationWarning tests/unit/models/test_litellm.py tests/unit/models/test_answer_bodies.py tests/unit/models/test_clients.py tests/unit/models/test_failures.py

# Strands requires openai 2, and the OpenAI Agents SDK requires openai 3.
test-frameworks: $(STAMP) ## test the examples of agents with frameworks: OpenAI Agents, LangGraph, Pydantic AI, smolagents, Strands
	test -d $(VENV)/frameworks/agents || $(BIN)/python -m pip install --quiet --target $(VENV)/frameworks --group frameworks
	test -d $(VENV)/strands/strands || $(BIN)/python -m pip install --quiet --target $(VENV)/strands --group strands
	PYTHONPATH=$(abspath $(VENV)/frameworks) $(BIN)/python -m pytest tests/endpoint/test_agent_examples.py
	PYTHONPATH=$(abspath $(VENV)/strands) $(BIN)/python -m pytest tests/endpoint/test_agent_examples.py -k strands

# fastmcp brings some forty packages.
test-mcp: $(STAMP) ## test MCP tools
	test -d $(VENV)/mcp/fastmcp || $(BIN)/python -m pip install --quiet --target $(VENV)/mcp "fastmcp>=4"
	PYTHONPATH=$(abspath $(VENV)/mcp) $(BIN)/python -m pytest tests/mcp

# promptfoo brings some five hundred packages of npm.
test-promptfoo: $(STAMP) ## compare the verdicts of checks with those of promptfoo's assertions; needs npm
	test -d $(VENV)/promptfoo/node_modules/promptfoo || npm install --silent --no-audit --no-fund --ignore-scripts --prefix $(VENV)/promptfoo promptfoo
	PROMPTFOO=$(abspath $(VENV)/promptfoo) $(BIN)/python -m pytest -m "" tests/unit/checks/test_checks.py

# Each in a folder of its own: some conflict with each other.
SCORERS := autoevals openevals pydantic-evals deepeval inspect-ai
test-scorers: $(addprefix test-scorers-,$(SCORERS)) ## score with what autoevals, openevals, Pydantic Evals, DeepEval and Inspect have

test-scorers-%: $(STAMP)
	test -d $(VENV)/scorers/$* || $(BIN)/python -m pip install --quiet --target $(VENV)/scorers/$* $*
	PYTHONPATH=$(abspath $(VENV))/scorers/$* $(BIN)/python -m pytest -m "" tests/unit/rewards/test_scorers.py

# verifiers brings some hundred packages. VERIFIERS_ENVIRONMENTS names the folder `environments` of its repository.
# The other releases: 0.1.13 never became final, 0.3.1 is the last that has environments, and 0.4.0 has tasksets.
VERIFIERS := 0.1.13.dev8 0.2.1 0.3.1 0.4.0
test-verifiers: $(STAMP) $(addprefix test-verifiers-,$(VERIFIERS)) ## test environments of each verifiers, and compare their rewards with those of vf-eval
	test -d $(VENV)/verifiers/verifiers || $(BIN)/python -m pip install --quiet --target $(VENV)/verifiers --group verifiers
	PYTHONPATH=$(abspath $(VENV)/verifiers) $(BIN)/python -m pytest tests/verifiers

test-verifiers-%: $(STAMP)
	test -d $(VENV)/verifiers-$*/verifiers || $(BIN)/python -m pip install --quiet --target $(VENV)/verifiers-$* "verifiers==$*" reasoning-gym
	PYTHONPATH=$(abspath $(VENV))/verifiers-$* $(BIN)/python -m pytest tests/verifiers

# osmosis-ai needs Python 3.12, which .venv may not be.
test-osmosis: $(STAMP) ## test workspaces with the newest SDK of Osmosis, in an environment of nox
	$(BIN)/python -m pip install --quiet --group matrix
	PATH="$(PYENV_BINS):$$PATH" $(BIN)/nox -s osmosis

# .venv has the newest Ray, with which `make test-all` tests clusters.
test-cluster: $(STAMP) ## test clusters with the oldest Ray that is admitted, in an environment of nox
	$(BIN)/python -m pip install --quiet --group matrix
	$(BIN)/nox -s "cluster-$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')(ray='oldest')"

browser: $(STAMP) ## install what tests/browser needs: Debian's chromium, unless there is a browser
	@command -v chromium || command -v chromium-browser || command -v google-chrome || \
	  { apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium; }

# Needs node and npm, which users do not: what it builds is committed, and shipped in the wheel.
viewer: $(STAMP) ## build the front end of reports and of the dashboard, after a change in viewer/
	$(BIN)/python viewer/shapes.py
	cd viewer && npm ci --silent --ignore-scripts && npx tsc && node build.mjs

viewer-check: $(STAMP) ## build the front end again, and compare it byte for byte with the bundle
	rm -rf dist/bundle && mkdir -p dist/bundle && cp pytest_osmosis/addons/viewer/assets/* viewer/src/shapes.ts dist/bundle
	$(MAKE) viewer
	cd dist/bundle && cmp app.js ../../pytest_osmosis/addons/viewer/assets/app.js && cmp app.css ../../pytest_osmosis/addons/viewer/assets/app.css && cmp shapes.ts ../../viewer/src/shapes.ts

coverage: $(STAMP) browser ## measure the branch coverage of `make test` and `make test-all`; list what only processes reach
	$(BIN)/python -m pip install --quiet --group coverage
	rm -rf dist/coverage && mkdir -p dist/coverage
	-$(BIN)/python -m coverage run -m pytest -p tests.covered $(IN_PARALLEL) -m "not nightly" $(TESTS) # the report is printed even if a test fails
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m tests.covered

docs: $(STAMP) ## build the documentation into dist/docs; a warning is an error
	$(BIN)/python -m pip install --quiet --group docs
	$(BIN)/python docs/generate.py
	$(BIN)/python -m sphinx -W --keep-going --quiet -b html docs dist/docs
	$(BIN)/python docs/example_report.py

docs-screenshots: $(STAMP) browser ## take the pictures of the documentation in docs/pictures
	$(BIN)/python docs/screenshots.py

bench: $(STAMP) browser ## measure the speed claims; nothing else should run meanwhile
	test -d $(VENV)/pytest-html/pytest_html || $(BIN)/python -m pip install --quiet --target $(VENV)/pytest-html pytest-html
	-$(BIN)/python -m benchmarks.hosts
	-$(BIN)/python -m benchmarks.viewer
	$(BIN)/python -m benchmarks

clean: ## remove everything that the targets created
	rm -rf $(VENV) .nox .osmosis .pytest_cache .mypy_cache .ruff_cache dist build
