# Every command that anyone needs.  `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
# Tests at once: as many as there are cores, and not more than four, for some of them start several processes.
WORKERS = $(shell n=$$(nproc); echo $$((n < 4 ? n : 4)))

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.node: pyproject.toml
	@deploy/setup/environment $(PYTHON) $(VENV) node,demo,logs,notify
	@touch $@

$(VENV)/.dev: pyproject.toml
	@deploy/setup/environment $(PYTHON) $(VENV) node,demo,logs,notify,generate,test,frameworks,dev torch
	@touch $@ $(VENV)/.node

.PHONY: programs
programs:
	@deploy/setup/programs

.PHONY: demo
demo: programs $(VENV)/.node ## Watch a real training run break, with everything on this machine
	@$(BIN)/trainvitals up --demo --simulate-devices 2

.PHONY: up
up: programs $(VENV)/.node ## Run exporter, Prometheus and Alertmanager on this machine
	@$(BIN)/trainvitals up

.PHONY: test
test: programs $(VENV)/.dev ## Run every check that CI runs
	@$(MAKE) --no-print-directory lint check-generated
	@# The tests start Python more than a thousand times; it shall find the package compiled.
	@$(BIN)/python -m compileall -q exporter
	@# A file stays together, for what its tests share; in the order of names the last files are small.
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not torture" $(PYTEST)

.PHONY: torture
torture: $(VENV)/.dev ## Kill supervised trainings: four ranks, two nodes, 200 at random (twenty minutes)
	TORTURE_RANKS=4 $(BIN)/python -m pytest tests/supervise/test_supervised.py
	TORTURE_KILLS=$(or $(KILLS),200) TORTURE_SEED=$(or $(SEED),1) $(BIN)/python -m pytest -s -m torture tests/supervise

.PHONY: coverage
coverage: programs $(VENV)/.dev ## Run the tests and see which lines they reach (half as long again)
	@$(MAKE) --no-print-directory test PYTEST="--cov --cov-report=term:skip-covered $(PYTEST)"

.PHONY: lint
lint: $(VENV)/.dev ## Style, types, layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

.PHONY: generate
generate: $(VENV)/.dev ## Write rules, dashboards and generated pages
	$(BIN)/trainvitals generate

.PHONY: check-generated
check-generated: $(VENV)/.dev ## Fail when a generated file is stale
	$(BIN)/trainvitals generate --check

.PHONY: format
format: $(VENV)/.dev ## Format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: bench
bench: $(VENV)/.dev ## Measure the cost of a step and of a scrape (minutes; installs TensorBoard and W&B)
	@deploy/setup/environment $(PYTHON) .venv-bench node,demo torch tensorboard wandb
	.venv-bench/bin/python benchmarks/probe.py
	.venv-bench/bin/python benchmarks/scrape.py

.PHONY: endurance
endurance: $(VENV)/.dev ## Poll devices 20,000 times while they come and go; fail when something grows (ten minutes)
	$(BIN)/python benchmarks/endurance.py

.PHONY: bench-devices
bench-devices: ## Compare with nvitop-exporter on a driver that does not exist (ten minutes; needs a C compiler)
	@deploy/setup/environment $(PYTHON) .venv-bench node nvitop-exporter
	.venv-bench/bin/python benchmarks/devices.py

.PHONY: bench-follow
bench-follow: $(VENV)/.dev ## Measure how fast logs are read (two minutes; writes 1 GiB below the temporary folder)
	$(BIN)/python benchmarks/follow.py

.PHONY: bench-judge
bench-judge: ## Measure how fast runs are judged, beside losslint, runmedic and trainspotter (five minutes)
	@deploy/setup/environment $(PYTHON) .venv-bench node losslint runmedic trainspotter
	.venv-bench/bin/python benchmarks/judge.py

.PHONY: bench-accuracy
bench-accuracy: ## Count right and wrong findings beside three packages (half an hour; FOLDER=logs with a MANIFEST.tsv)
	@deploy/setup/environment $(PYTHON) .venv-bench node,logs trainspotter runmedic losslint
	.venv-bench/bin/python benchmarks/accuracy.py $(FOLDER)

.PHONY: bench-fleet
bench-fleet: programs $(VENV)/.dev ## Measure series, memory and rules of Prometheus at 1,250 nodes (ten minutes; 10 GiB of memory; a C compiler)
	$(BIN)/python benchmarks/fleet.py $(FLEET)

.PHONY: screenshot
screenshot: $(VENV)/.dev ## Take the pictures of docs/images from a running exporter (a minute; needs Chromium)
	$(BIN)/python tests/serve/screenshot.py

.PHONY: clean
clean: ## Remove what the targets made
	rm -rf $(VENV) .venv-bench build dist *.egg-info exporter/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
