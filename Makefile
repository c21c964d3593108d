# Everything below sets itself up: with Python 3.10-3.13 and make, `make demo` and `make test`
# install the package, editable, with its tools into $(VENV), and use it again from then on.
#
#   make test PYTHON=python3.12 VENV=.venv312    another Python, in a folder of its own
#   make test PYTEST_ARGS="-x -k sgld"           arguments for pytest
#   make demo DEMO_ARGS="--simulate"             arguments for the demo

VENV ?= .venv
# Which Python makes $(VENV); empty: python3.11 if there is one, else python3.
PYTHON ?=
PYTEST_ARGS ?=
# How many processes the tests run in. TensorFlow keeps what it has compiled: together they have 16 GB
# at the end.
PYTEST_WORKERS ?= -n auto --maxprocesses 4 --dist worksteal
DEMO_ARGS ?=
BENCH_ARGS ?=
MUTATION_ARGS ?=
GATE_ARGS ?=
# The Python that R's tests use. Not inside r/, which R CMD build copies as a whole.
VENV_R ?= .venv-r
# Where `make test-versions` and `make wheels` make their environments, about 2 GB each.
VERSIONS ?= $(or $(TMPDIR),/tmp)/sgmcmc-versions
# Arguments for nox: -s newest-3.13 for one session, -R to use its environment again.
NOX_ARGS ?=
# What pip installs into $(VENV).
INSTALL ?= --editable '.[dev]'

BIN := $(VENV)/bin
RUN := $(BIN)/python -m
STAMP := $(VENV)/.installed
SUPPORTED := import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 14))

# Figures go to files, not to windows.
export MPLBACKEND ?= Agg

.DEFAULT_GOAL := help
.NOTPARALLEL:
# `cache`: run a vignette again only where it has changed.
NOTEBOOKS ?= cache

.PHONY: help install docs vignettes demo check test test-slow mutations gates test-faults test-versions wheels test-r docs-r lint types doctest bench bench-scaling bench-passes bench-formats bench-streams bench-serving bench-cores bench-executors bench-parts bench-long bench-topics bench-mamba bench-mixture bench-networks bench-manifolds bench-factors bench-seconds bench-posteriors bench-accuracy bench-large bench-regressions bench-structure bench-laws bench-mixed bench-growing bench-glmer bench-r format clean FORCE

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'

install: $(STAMP) ## set up .venv, if it is not up to date

demo: $(STAMP) ## sample a logistic regression on covertype; writes demo.png
	$(BIN)/python vignettes/demo.py $(DEMO_ARGS)

# There is a process on each core: more threads of BLAS would wait for each other.
test check test-slow: export OPENBLAS_NUM_THREADS ?= 1

# pytest comes last, so that its closing line is the last one printed. The examples in the
# docstrings, the types and the site are among its tests, so that both cores work to the end.
test: lint ## lint, then all tests, with types, the docstrings' examples and the site
	$(RUN) pytest $(PYTEST_WORKERS) $(PYTEST_ARGS)

check: $(STAMP) ## public interface and draws of every sampler against those written down; a minute
	$(RUN) pytest $(PYTEST_WORKERS) tests/contract $(PYTEST_ARGS)

test-slow: $(STAMP) ## only the long statistical tests; hours
	$(RUN) pytest $(PYTEST_WORKERS) -m slow $(PYTEST_ARGS)

mutations: $(STAMP) ## fifty small changes of the package, one at a time: do tests notice? Hours
	$(RUN) tests.mutations.run $(MUTATION_ARGS)

gates: $(STAMP) ## errors, warnings and time of posteriors and chains, beside those before a change; hours
	$(RUN) benchmarks.gates.run $(GATE_ARGS)

test-faults: $(STAMP) ## only kills, damage and bad luck, by the thousand; hours
	$(RUN) pytest -m faults $(PYTEST_ARGS)

test-versions: $(VERSIONS)/tools/bin/nox ## quick tests on Python 3.10-3.13, TensorFlow old and new; PYTEST_ARGS=whole for all
	$(NOX) $(NOX_ARGS) -- $(PYTEST_ARGS)

wheels: $(VERSIONS)/tools/bin/nox ## build wheel and sdist in dist/, install them into bare environments, run a chain
	$(NOX) -s build wheel sdist

# nox asks for each Python by its name; those of pyenv need not be switched on.
NOX = PATH="$(subst $() $(),:,$(wildcard $(HOME)/.pyenv/versions/3.1[0-3].*/bin)):$$PATH" \
    $(VERSIONS)/tools/bin/nox --envdir $(VERSIONS)/envs

$(VERSIONS)/tools/bin/nox:
	$(or $(PYTHON),python3) -m venv --clear $(VERSIONS)/tools
	$(VERSIONS)/tools/bin/python -m pip install 'nox[uv]>=2024.10.9' packaging

# Debian's reticulate is older than NumPy 2, so R has a Python environment of its own.
test-r: ## the R package: R CMD check and its tests; installs R, on Debian, if it is missing
	r/check.sh install
	$(MAKE) install VENV=$(VENV_R) INSTALL="--editable . 'numpy<2'"
	r/check.sh check $(VENV_R)/bin/python build/r

docs-r: ## write the R package's help pages and NAMESPACE anew, with roxygen2
	Rscript -e 'roxygen2::roxygenise("r", load_code = roxygen2::load_source)'

docs: $(STAMP) ## the site, in docs/_build/html; NOTEBOOKS=off leaves the vignettes unexecuted
	SGMCMC_NOTEBOOKS=$(NOTEBOOKS) $(RUN) sphinx -W --keep-going -b html docs docs/_build/html

vignettes: $(STAMP) ## all vignettes in full, with what each takes; figures in build/vignettes
	$(BIN)/python vignettes/_in_full.py --output build/vignettes $(VIGNETTES)

lint: $(STAMP) ## ruff: rules and formatting; words and phrases to avoid; import-linter: what may import what
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(BIN)/codespell -D packaging/words.txt sgmcmc README.md CONTRIBUTING.md SECURITY.md docs/*.md docs/reference/*.md vignettes/*.py r/R r/vignettes
	! grep -rnEf packaging/phrases.txt --include='*.py' --include='*.md' --include='*.R' --include='*.Rmd' \
	    --exclude-dir=_build sgmcmc README.md SECURITY.md docs vignettes r/R r/vignettes
	if [ -x $(BIN)/lint-imports ]; then $(BIN)/lint-imports --no-cache; fi

types: $(STAMP) ## mypy
	$(RUN) mypy

doctest: $(STAMP) ## the examples in the docstrings
	$(RUN) pytest $(PYTEST_WORKERS) sgmcmc

bench: $(STAMP) ## compare with other packages, which takes long; writes docs/benchmarks.md
	$(RUN) benchmarks.run $(BENCH_ARGS)
	$(RUN) benchmarks.run --section further $(BENCH_ARGS)
	$(RUN) benchmarks.limits

bench-scaling: $(STAMP) ## cost and memory up to a hundred million rows; 6.5 GB of temporary disk
	$(RUN) benchmarks.scaling
	$(RUN) benchmarks.alternating

bench-passes: $(STAMP) ## passes over a hundred million rows; 4 GB of temporary disk
	$(RUN) benchmarks.passes

bench-formats: $(STAMP) ## seconds and memory of data in each form; 5 GB of temporary disk
	$(RUN) benchmarks.formats

bench-streams: $(STAMP) ## ten million rows through tf.data, Zarr and S3; needs moto[server] and s3fs
	$(RUN) benchmarks.streams

bench-serving: $(STAMP) ## a posterior of 100 MB as a SavedModel: loaded and asked
	$(RUN) benchmarks.serving

bench-cores: $(STAMP) ## CPU time of one, two and four chains
	$(RUN) benchmarks.cores

bench-executors: $(STAMP) ## passes over the data and chains on one and two workers; writes docs/long-chains.md
	$(RUN) benchmarks.executors

bench-parts: $(STAMP) ## where the time of an iteration goes
	$(RUN) benchmarks.parts

bench-long: $(STAMP) ## what a step and a store cost
	$(RUN) benchmarks.long_chains

bench-topics: $(STAMP) ## steps a second of the topic model; needs the data of KOS
	$(RUN) benchmarks.topics

bench-mixture: $(STAMP) ## steps a second of the Dirichlet-process mixture; needs the web data
	$(RUN) benchmarks.mixture

bench-networks: $(STAMP) ## networks on tables, against a deep ensemble and bde, and on UCI's; needs their data; hours
	$(RUN) benchmarks.networks.run
	$(RUN) benchmarks.networks.uci

bench-manifolds: $(STAMP) ## steps a second on manifolds and of topics on the sphere; needs the data of KOS
	$(RUN) benchmarks.manifolds

bench-factors: $(STAMP) ## steps a second of matrix factorization; needs ml-100k
	$(RUN) benchmarks.factors

bench-seconds: $(STAMP) ## from the call to the posterior, in passes of NumPy; fifteen minutes; needs covertype
	$(RUN) benchmarks.seconds

bench-posteriors: $(STAMP) ## posteriors against references, and bad constants; writes docs/posteriors.md
	$(RUN) benchmarks.posteriors.run
	$(RUN) benchmarks.posteriors.bad_cases

bench-large: $(STAMP) ## posteriors of 500 coordinates and more against references; hours; needs insteval.csv and MNIST; writes docs/posteriors.md
	$(RUN) benchmarks.large.run
	$(RUN) benchmarks.large.run --nuts

bench-laws: $(STAMP) ## exact and measured variances of every chain with a closed form; writes docs/posteriors.md
	$(RUN) benchmarks.laws.run

bench-mamba: $(STAMP) ## a search by Stein discrepancy against `sample`, on its authors' logistic regression; 25 minutes; writes docs/benchmarks.md
	$(RUN) benchmarks.mamba.run

bench-regressions: $(STAMP) ## regressions against long NUTS, and against bambi, rstanarm and brms; writes docs/regression.md
	$(RUN) benchmarks.regressions.families
	$(RUN) benchmarks.regressions.packages

bench-structure: $(STAMP) ## seconds and memory of regressions from sums beside other tools; half an hour; needs R with lme4 for its column; writes docs/regression.md
	$(RUN) benchmarks.structure.run

bench-accuracy: $(STAMP) ## errors of posterior SDs against seconds, also of other packages; an hour; needs covertype
	$(RUN) benchmarks.accuracy.run

bench-mixed: $(STAMP) ## mixed models without constants against references; needs R with lme4, nlme, MASS, jsonlite; writes docs/hierarchical.md
	$(RUN) benchmarks.mixed.run

bench-growing: $(STAMP) ## seconds of a mixed model as N grows, also of other packages; hours; needs R with lme4; writes docs/hierarchical.md
	$(RUN) benchmarks.mixed.growing

bench-glmer: ## sgmcmcGlm against lmer and glmer, on lme4's data; ten minutes; needs R with lme4; writes docs/in-r.md
	r/check.sh install
	$(MAKE) install VENV=$(VENV_R) INSTALL="--editable . 'numpy<2'"
	mkdir -p build/library && R CMD INSTALL --library=build/library r
	RETICULATE_PYTHON=$(CURDIR)/$(VENV_R)/bin/python R_LIBS=$(CURDIR)/build/library Rscript benchmarks/from_r/mixed.R

bench-r: ## microseconds an iteration from R and from Python; writes docs/old-scripts.md
	r/check.sh install
	$(MAKE) install VENV=$(VENV_R) INSTALL="--editable . 'numpy<2'"
	$(VENV_R)/bin/python -m benchmarks.from_r.run

format: $(STAMP) ## let ruff format and mend what it can
	$(RUN) ruff format .
	$(RUN) ruff check --fix .

clean: ## remove .venv, caches and what the demo wrote
	rm -rf $(VENV) $(VENV_R) docs/_build docs/vignettes benchmarks/.envs .mypy_cache .pytest_cache .ruff_cache build dist *.egg-info *.png
	rm -f sgmcmc/data/native/*.so
	find sgmcmc tests vignettes r/inst -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp holds the folder it was made for and depends on the dependencies' list. A copied or
# moved checkout is installed anew (an editable install points at the old place), and so is a
# $(VENV) whose Python has gone.
ifneq ($(CURDIR),$(shell $(BIN)/python -c "print(open('$(STAMP)').read(), end='')" 2>/dev/null))
$(STAMP): FORCE
endif
$(STAMP): pyproject.toml $(wildcard sgmcmc/data/native/*.cpp)
	@if ! $(BIN)/python -c '$(SUPPORTED)' 2>/dev/null || ! $(RUN) pip --version >/dev/null 2>&1; then \
	    found=; for python in $(or $(PYTHON),python3.11 python3); do \
	        if "$$python" -c '$(SUPPORTED)' 2>/dev/null; then found="$$python"; break; fi; \
	    done; \
	    if [ -z "$$found" ]; then \
	        echo "No Python 3.10 to 3.13 (tried: $(or $(PYTHON),python3.11 python3)). Name one: make PYTHON=..." >&2; \
	        exit 1; \
	    fi; \
	    echo "$$found -m venv --clear $(VENV)"; \
	    "$$found" -m venv --clear $(VENV) || exit 1; \
	fi
	$(RUN) pip install $(INSTALL)
	@printf '%s' '$(CURDIR)' > $@

FORCE:
