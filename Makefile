# `make` lists the commands. Everything runs in .venv, which `make setup` makes from requirements.lock.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

# The first interpreter that is new enough; PYTHON=... overrides. Looked up only when a target needs it.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PY := .venv/bin/python
CODE := worker/headrace operator/headrace_operator tests bench examples scripts
ARGS ?=
ID ?=

.PHONY: help setup setup-python setup-system setup-cluster setup-mongo setup-keda lock test lint format crds demo bench \
  model election chaos twins scenarios wheels images clean

help: ## list the commands
	@echo "Headrace: make COMMAND"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: setup-python setup-system setup-cluster setup-mongo ## everything that tests need (Debian packages only as root)
	@$(PY) -m tests.cluster.binaries --later keda keda-metrics-server

setup-python: ## .venv with the locked packages
	@test -n "$(PYTHON)" || { echo "setup: Python 3.11 or newer is needed; install it or pass PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) scripts/setup_python.py

setup-system: ## Debian packages for Redis, image tests and alert rules; says so and goes on when not root
	@scripts/setup_system.sh
	@scripts/setup_promtool.sh

setup-cluster: setup-python ## Kubernetes binaries, found or built once
	@$(PY) -m tests.cluster.binaries etcd kube-apiserver kube-controller-manager kube-scheduler kubectl helm

setup-mongo: setup-python ## a server that speaks the MongoDB protocol, built once, for tests
	@$(PY) -m tests.cluster.binaries ferretdb

setup-keda: setup-python ## KEDA's operator and metrics server, built once, for tests and for B14; else built when first needed
	@$(PY) -m tests.cluster.binaries keda keda-metrics-server

lock: setup-python ## resolve requirements.in into requirements.lock
	@$(PY) -m uv pip compile requirements.in -o requirements.lock --quiet --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
	  --no-emit-package headrace --no-emit-package headrace-operator
	@echo "lock: requirements.lock written; make setup installs it"

test: setup ## all tests; ARGS="tests/unit -k T3" selects
	@$(PY) -m pytest $(ARGS)

lint: setup-python ## ruff (rules and format) and mypy --strict
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy $(CODE)

format: setup-python ## let ruff fix and format the code
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

crds: setup-python ## regenerate the CustomResourceDefinitions from the models
	@$(PY) -m headrace_operator.crds

demo: setup-python setup-cluster ## cluster, operator, workers, live repartition; needs no root
	@$(PY) -m examples.demo $(ARGS)

bench: setup-python ## one benchmark: make bench ID=B1
	@test -n "$(ID)" || { echo "bench: name one, for example make bench ID=B1"; exit 1; }
	@$(PY) -m bench $(ID) $(ARGS)

model: setup-python ## check the store protocol in all scenarios, the large ones too: make model ARGS="slow promoter"
	@$(PY) -m tests.simulation $(ARGS)

twins: setup-python ## memory and real servers under new random commands, compared whole: make twins ARGS="200 80"
	@$(PY) -m tests.conformance.twins $(ARGS)

election: setup-python ## the election in a simulator, many seeds: make election ARGS="--seeds 5000 --timings fast"
	@$(PY) -m tests.simulation.election $(ARGS)

chaos: setup-python setup-cluster setup-mongo ## real workers under faults: make chaos ARGS="--seconds 600 --seed 7"
	@$(PY) -m tests.chaos $(ARGS)

scenarios: setup-python ## fill the tests column of docs/scenarios.md
	@$(PY) -m scripts.scenario_map --update

wheels: setup-python ## wheels of both packages and their locked dependencies, for the images
	@$(PY) -m scripts.wheelhouse

images: setup-python ## both images with buildah (root); BASE_IMAGE=... replaces the local base
	@$(PY) -m scripts.images

clean: ## remove build output and caches of tools; .venv and downloaded binaries stay
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find worker operator tests bench examples scripts -name __pycache__ -type d -prune -exec rm -rf {} +
