# Every target works on a fresh clone with Go alone; `make help` lists them. Without a C compiler the tests run without
# the race detector, except in CI, where that is an error.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Each directory with a go.mod; internal/deptest checks that go.work names the same ones.
MODULES := . sqlite postgres postgres/ormtest examples bench

GOLANGCI_VERSION := v2.15.0
BIN := $(CURDIR)/.bin
GOLANGCI := $(BIN)/golangci-lint
GOLANGCI_STAMP := $(BIN)/golangci-lint-$(GOLANGCI_VERSION).stamp

# Go itself turns cgo off where there is no C compiler, and the race detector needs cgo.
RACE := $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)

TESTFLAGS ?=
TEST_TIMEOUT ?= 20m
DURATION ?= 1m
# A soak has no timeout of its own by default: DURATION bounds it.
SOAK_TIMEOUT ?= 0
BENCH ?= .
BENCHFLAGS ?=

# $(call each,command) runs the command in every module directory and fails at the end if it failed in any of them.
# With GOWORK=off each module is seen as its users see it: with the versions of its own go.mod.
define each
@failed=; \
for m in $(MODULES); do \
	echo "--> $$m"; \
	(cd "$$m" && export GOWORK=off && $(1)) || failed="$$failed $$m"; \
done; \
if [ -n "$$failed" ]; then echo "$@ failed in:$$failed" >&2; exit 1; fi
endef

.PHONY: help
help: ## List the targets.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

.PHONY: test
test: race ## Run every test of every module: unit, conformance and process tests (TESTFLAGS=…).
	$(call each,go test $(RACE) -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...)

.PHONY: race
race:
	@if [ -z "$(RACE)" ]; then \
		echo "no C compiler: the race detector is off" >&2; \
		if [ -n "$${CI:-}" ]; then exit 1; fi; \
	fi

.PHONY: lint
lint: $(GOLANGCI_STAMP) ## Run the linters and the format check on every module.
	$(GOLANGCI) config verify
	$(call each,$(GOLANGCI) run $(LINTFLAGS) ./...)

.PHONY: fmt
fmt: $(GOLANGCI_STAMP) ## Format every module (gofumpt and gci).
	$(call each,$(GOLANGCI) fmt ./...)

$(GOLANGCI_STAMP):
	@mkdir -p $(BIN)
	@rm -f $(BIN)/golangci-lint-*.stamp
	@echo "building golangci-lint $(GOLANGCI_VERSION) (about three minutes, once)"
	cd $(BIN) && GOWORK=off GOFLAGS= GOBIN=$(BIN) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@touch $@

.PHONY: tidy
tidy: ## Tidy every go.mod.
	$(call each,go mod tidy)

.PHONY: tidy-check
tidy-check: ## Fail if a go.mod or go.sum is not tidy.
	$(call each,go mod tidy -diff)

# The output goes to /dev/null: a module with one command would otherwise write a file named like its directory.
.PHONY: build
build: ## Build and vet every module, in the workspace and on its own.
	go build -o /dev/null work
	go vet work
	$(call each,go build -o /dev/null ./... && go vet ./...)

.PHONY: examples
examples: ## Run every example.
	@cd examples; export GOWORK=off; \
	mains=$$(go list -f '{{if eq .Name "main"}}{{.ImportPath}}{{end}}' ./...); \
	if [ -z "$$mains" ]; then echo "there is no example to run" >&2; exit 1; fi; \
	for p in $$mains; do echo "--> $$p"; go run "$$p"; done

# A soak is a test whose name has Soak in it. It runs for the duration in RELAYBUS_SOAK, and for a moment without it.
.PHONY: soak
soak: race ## Run the soak tests for DURATION (1m) each.
	@dirs=$$(grep -rlE --include='*_test.go' --exclude-dir='.?*' '^func Test[A-Za-z0-9_]*Soak' . | xargs -r -n1 dirname | sort -u || true); \
	if [ -z "$$dirs" ]; then echo "there is no soak test to run" >&2; exit 1; fi; \
	failed=; \
	for d in $$dirs; do \
		echo "--> $$d"; \
		(cd "$$d" && RELAYBUS_SOAK=$(DURATION) GOWORK=off go test $(RACE) -count=1 -timeout $(SOAK_TIMEOUT) -run Soak $(TESTFLAGS) .) || failed="$$failed $$d"; \
	done; \
	if [ -n "$$failed" ]; then echo "$@ failed in:$$failed" >&2; exit 1; fi

.PHONY: bench
bench: ## Run the benchmarks of every module (BENCH=regexp BENCHFLAGS='-count=6').
	$(call each,go test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 0 $(BENCHFLAGS) ./...)

.PHONY: ci
ci: ## Run what CI runs.
	.ci/run
