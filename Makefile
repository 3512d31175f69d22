# The only entry point: CI runs nothing else. `make help` lists the targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

export CARGO_TERM_PROGRESS_WHEN ?= auto

# One crate or topic: `make test ONLY=crds`, `make test ONLY=leader`.
ONLY ?=

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

.PHONY: test
test: ## Lint, unit, simulated and real API server tests; ONLY=crate-or-topic for a part
	@scripts/test.sh "$(ONLY)"

.PHONY: lint
lint: ## Format, clippy, licences and bans, dependency direction, generated files, file sizes
	@scripts/lint.sh

.PHONY: generate
generate: ## Write the definitions, roles, the chart's copies and the references in docs/
	@cargo run --quiet --package operator --example generate

.PHONY: build
build: ## Build every binary
	@cargo build --workspace --bins

.PHONY: release
release: ## Build every binary as it is shipped
	@cargo build --workspace --bins --release

# What the image is called, and for which machines if not for such as this one:
# `make image IMAGE=registry.example/orrery:1 ARCH=arm64`.
IMAGE ?= localhost/orrery:dev
ARCH ?=

.PHONY: image
image: ## Write an OCI image of what is shipped to target/image, without Docker; IMAGE=name ARCH=amd64|arm64
	@scripts/image.sh "$(IMAGE)" "$(ARCH)" bill

.PHONY: reproducible
reproducible: ## Build the image of the last commit a second time, elsewhere, and compare
	@scripts/reproducible.sh

# Where to run: in a private node, or with CLUSTER=current IMAGE=registry/name:tag where your kubeconfig points to.
# WITH=cassandra,mariadb,redis adds real ones to the private node.
CLUSTER ?= private
DETACH ?=
WITH ?=

.PHONY: run
run: ## Start a private node with Orrery installed in it, until Ctrl-C; DETACH=1 WITH=engines, or CLUSTER=current IMAGE=name
	@CLUSTER="$(CLUSTER)" DETACH="$(DETACH)" WITH="$(WITH)" $(if $(filter command line environment,$(origin IMAGE)),IMAGE="$(IMAGE)") scripts/run.sh

.PHONY: stop
stop: ## End what `make run DETACH=1` has left running
	@scripts/run.sh stop

.PHONY: e2e
e2e: ## Cases with running pods, on two private nodes; ONLY=part of a case's name. Needs root
	@scripts/e2e.sh "$(ONLY)"

.PHONY: tools
tools: ## Fetch and build the real parts that tests need
	@scripts/prepare.sh

.PHONY: cluster
cluster: ## Start a Kubernetes API server with our definitions to try things on, until Ctrl-C
	@cargo run --quiet --package testbed -- up

.PHONY: bench
bench: ## Measure what we cost beside others, and write docs/benchmarks.md; ONLY=topic for a part
	@scripts/bench.sh "$(ONLY)"

# What decides the faults of a long run, and how long each topic runs: `make soak ONLY=leader SEED=1 MINUTES=60`.
SEED ?=
MINUTES ?=

.PHONY: soak
soak: ## Run real parts under faults for ten minutes per topic; ONLY=topic SEED=n MINUTES=n
	@scripts/soak.sh "$(ONLY)" "$(SEED)" "$(MINUTES)"

.PHONY: clean
clean: ## Remove what was built here; caches outside the repository stay
	@cargo clean --quiet
