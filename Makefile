# Two commands do all the set-up on a fresh machine with Python 3.11 and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEEDS ?= 200
MUTANTS ?= 300
WORKERS ?= auto
PYTEST_ARGS ?=
COVERED_BY := tests/core tests/control tests/sim/replay tests/report tests/migrate tests/traces

.PHONY: ui ui-check help demo test system-packages test-cgroup2 man lint audit sbom install install-torch bench docs sim sim-planted sim-kubernetes sim-kubernetes-planted e2e-kubernetes soak coverage mutants clean

help:
	@echo "make demo     a server, real trainings, a preemption, a dead node, a report in demo-out/"
	@echo "make test WORKERS=n PYTEST_ARGS=...   all tests, two workers for each core; WORKERS=0: in one process"
	@echo "make test-cgroup2   the tests of control groups on a kernel with version 2 only, in an emulated machine (minutes)"
	@echo "make man      manual pages of the commands, in man/"
	@echo "make lint     ruff, mypy --strict, import contracts, sizes, starts"
	@echo "make audit    known vulnerabilities of the locked dependencies; needs the network, and says which database it had"
	@echo "make sbom     what a release is made of, as CycloneDX: dist/penstock-VERSION.cdx.json; needs the network and npm"
	@echo "make sim SEEDS=n   the fault simulator; make sim-planted proves that it finds bugs"
	@echo "make sim-kubernetes SEEDS=n   the same of a Kubernetes cluster; make sim-kubernetes-planted likewise"
	@echo "make e2e-kubernetes KUBECONFIG=file   the suite of a Kubernetes cluster, on one that is kept for tests"
	@echo "make bench    the benchmarks, one JSON object a line"
	@echo "make ui       the web pages, from ui/ into src/penstock/web/static; make ui-check compares them; needs node"
	@echo "make docs     the generated parts of docs/, and all of it as a site that needs no server: site/index.html"
	@echo "make soak     the long versions: 20,000 seeds, properties with 20 times the examples, 300 kill points (hours)"
	@echo "make coverage  98 % of the core's lines and branches are reached without a server (a quarter of an hour)"
	@echo "make mutants MUTANTS=n|all   small changes of order, place and room that a test has to notice"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python pyproject.toml constraints.txt
	@echo "installing into $(VENV): about a minute"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[demo]"
	@touch $(VENV)/.demo

$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt
	@echo "installing into $(VENV), with everything for development: some minutes"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[demo,dev]"
	@touch $(VENV)/.dev $(VENV)/.demo

install: $(VENV)/.dev

install-torch: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "torch==2.13.0"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt transformers accelerate lightning

demo: $(VENV)/.demo
	$(BIN)/python examples/demo.py

system-packages: $(VENV)/.dev
	@scripts/install-system-packages.sh

test: system-packages
	$(BIN)/python -m pytest -n $(WORKERS) --repeat-failed $(PYTEST_ARGS)

test-cgroup2: $(VENV)/.dev
	$(BIN)/python scripts/cgroup2_vm.py $(PYTEST_ARGS)

man: $(VENV)/.dev
	$(BIN)/python -m penstock.cli.main help --man man

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/check_size.py
	$(BIN)/python scripts/check_words.py
	$(BIN)/python scripts/check_starts.py
	$(BIN)/python scripts/check_folders.py
	$(BIN)/python scripts/generate_docs.py --check

audit: $(VENV)/.dev
	@$(BIN)/python scripts/audit.py

sbom: $(VENV)/.dev
	@$(BIN)/python scripts/sbom.py

sim: $(VENV)/.demo
	$(BIN)/python -m penstock.sim --seeds $(SEEDS)

sim-planted: $(VENV)/.demo
	$(BIN)/python -m penstock.sim --planted

sim-kubernetes: $(VENV)/.demo
	$(BIN)/python -m penstock.sim --kubernetes --seeds $(SEEDS)

sim-kubernetes-planted: $(VENV)/.demo
	$(BIN)/python -m penstock.sim --kubernetes --planted

e2e-kubernetes: $(VENV)/.dev
	@test -n "$(KUBECONFIG)" || { echo "KUBECONFIG names the kubeconfig of a cluster that is kept for tests"; exit 2; }
	PENSTOCK_E2E_KUBECONFIG=$(KUBECONFIG) $(BIN)/python -m pytest -n 0 tests/e2e_kubernetes $(PYTEST_ARGS)

soak: $(VENV)/.dev
	$(BIN)/python -m penstock.sim --seeds 20000 --first 100000
	$(BIN)/python -m penstock.sim --kubernetes --seeds 20000 --first 100000
	$(BIN)/python -m penstock.sim --planted
	$(BIN)/python -m penstock.sim --kubernetes --planted
	PENSTOCK_SLOW=1 $(BIN)/python -m pytest -m hypothesis
	PENSTOCK_SLOW=1 $(BIN)/python -m pytest tests/crash tests/server/test_schema.py tests/server/test_noisy_neighbour.py
	PENSTOCK_SLOW=1 $(BIN)/python -m pytest tests/core/place/test_mig_plan.py tests/devices/test_mig_apply.py
	$(BIN)/python -m pytest -m slow tests/engines tests/slurm

coverage: $(VENV)/.dev
	$(BIN)/python -m coverage run -m pytest -q $(COVERED_BY)
	$(BIN)/python -m coverage report --fail-under=98

mutants: $(VENV)/.dev
	$(BIN)/python scripts/mutants.py --sample $(MUTANTS)

bench: $(VENV)/.dev
	$(BIN)/python -m bench.end_to_end
	$(BIN)/python -m bench.submit
	$(BIN)/python -m bench.core_cycle
	$(BIN)/python -m bench.top
	$(BIN)/python -m bench.devices
	$(BIN)/python -m bench.completion
	$(BIN)/python -m bench.kueue_scenario --only baseline
	@[ -z "$$PENSTOCK_TRACES" ] || $(BIN)/python -m bench.placement_quality
	@[ -z "$$PENSTOCK_TRACES" ] || $(BIN)/python -m bench.elastic_quality

ui/node_modules: ui/package-lock.json
	cd ui && npm ci --ignore-scripts --no-audit --no-fund --silent
	@touch ui/node_modules

ui: $(VENV)/.dev ui/node_modules
	$(BIN)/python scripts/generate_types.py > ui/src/api/types.gen.ts
	cd ui && node_modules/.bin/tsc && node build.mjs

ui-check: $(VENV)/.dev ui/node_modules
	$(BIN)/python scripts/check_ui.py

docs: $(VENV)/.dev
	$(BIN)/python scripts/generate_docs.py
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --builder html docs site
	@echo "the documentation: site/index.html"

clean:
	rm -rf $(VENV) demo-out build dist site
