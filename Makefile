# Everything here works from a fresh clone: what a target needs beyond Go, it
# fetches. `make` alone lists the targets.

.DEFAULT_GOAL := help

# `make generate verify` keeps its order, also where MAKEFLAGS of a shell has -j: a target reads the files of the one before.
.NOTPARALLEL:

.PHONY: help run token tools clients clients-check test test-localpubsub test-postgres crash fresh compose-check tf-check tf-provider lint vulnerabilities fmt generate verify proto-release fork aggregate ci clean

# Extra arguments for the command behind run, test and bench.
ARGS ?=

# Of a fork, and of an aggregate. Not from the environment, where some machines have a NAME or a PARENT.
MODULE    :=
DIR       :=
FIELDS    :=
PARENT    :=
AGGREGATE :=
PLURAL    :=
OWNER     :=
READER    :=
NAME      :=
ENGAGEMENT :=

# make takes a space for the end of a file's name. So where the path of a folder has one, its files are
# named from here: $(call target,PATH,THE SAME FOLDER FROM HERE).
target = $(if $(word 2,$(1)),$(2),$(1))

# Tools are pinned here and built into BIN. Each has a stamp that carries its
# version: a new version is a new stamp, hence a new install. BIN is not from the environment either.
BIN     := $(CURDIR)/build/bin
TOOLS   := $(call target,$(BIN),build/bin)
BUF     := $(TOOLS)/.buf@v1.75.0
LINTER  := $(TOOLS)/.golangci-lint@v2.15.0
GEN_GO  := $(TOOLS)/.protoc-gen-go@v1.36.12
GEN_RPC := $(TOOLS)/.protoc-gen-go-grpc@v1.6.2
export PATH := $(abspath $(TOOLS)):$(PATH)
# With its path, because make 3.81, which macOS has, looks up a plain command in its own PATH.
LINT    := "$(abspath $(TOOLS))/golangci-lint"

# Terraform's provider, likewise. Its branch is a Go module, its releases are not:
# this commit follows 8.0.0. Tests find it by the variable.
LOCKSTEP_TF_PLUGINS ?= $(CURDIR)/build/terraform
PLUGINS   := $(call target,$(LOCKSTEP_TF_PLUGINS),build/terraform)
TF_GOOGLE := $(PLUGINS)/.terraform-provider-google@v1.20.1-0.20260828184646-f3721fb45fa3
export LOCKSTEP_TF_PLUGINS

# The client in TypeScript, compiled next to its packages, and the reader in Node.js. A package-lock.json pins the packages of each.
CLIENT   := build/clients/typescript
FOLLOWER := build/clients/reader

# Each module builds as it would alone, also in a folder below a go.work that does not name it. GOWORK of
# the environment names one that does.
export GOWORK ?= off

# Variables of a shell that no command here has. With a CDPATH, cd may enter another folder of the same name. GOOS and GOARCH are
# for programs of other machines, and Terraform's variables for a deployment.
unexport CDPATH GOOS GOARCH $(filter TF_DATA_DIR TF_CLI_ARGS% TF_VAR_%,$(.VARIABLES))

# The other modules of the repository.
NESTED := localpubsub $(wildcard lab)

# git's name for a tree without files: what differs from it is everything.
EMPTY_TREE := 4b825dc642cb6eb9a060e54bf8d69288fbee4904

# RACE=-race switches the race detector on, which needs a C compiler. With it the tests take twice
# the time: CI has it for the packages with goroutines of the library on each push, and for all every night.
RACE ?=

# A program under the race detector sleeps for a second before it exits, so that its other
# threads can report. Those of a test have ended by then.
export GORACE ?= atexit_sleep_ms=10

# The oldest and the newest supported Postgres, and between them the one of the Terraform module, as versions of a
# package of npm: .ci/postgres.
POSTGRES ?= 15.18.0-beta.17 17.10.0-beta.17 18.4.0-beta.17

# The packages that the targets for tests test; empty: all of the module.
PKG ?=

# One package more than processors: most tests wait, for servers, leases and deliveries.
TOGETHER = $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# Built and exec'd rather than `go run`, which dies of a SIGTERM before its child. Without the commit:
# git refuses the repository of another user, as in a container that mounts it, and go would give up.
# After Ctrl-C build/dev ends with 0. make itself ends by that signal, which a shell shows as 130: no recipe can change that.
run: ## Run the pair, walk one video through it, serve until Ctrl-C (ARGS="--once --json")
	@go build -buildvcs=false -o build/dev ./cmd/dev
	@exec build/dev $(ARGS)

token: ## Print a token of a user for the running pair (USER=UUID, ARGS=--admin)
	@go run ./cmd/dev token --user "$(USER)" $(ARGS)

# A package takes up to six minutes, on a busy machine ten; twenty are a hang. The longest
# starts first, and go test prints the results in the same order. cmd/fork has one goroutine, whose
# regular expressions read the whole repository: ten minutes with the race detector, one without.
test: ## Run the tests of the pair (RACE=-race ARGS="-short -run Relay" PKG=./services/...)
	go test $(RACE) -p $(TOGETHER) -timeout 20m $(ARGS) $(or $(PKG),./services $(filter-out %/cmd/fork,$(shell go list ./...)))
	$(if $(PKG),,go test -timeout 20m $(ARGS) ./cmd/fork)
	@echo "These are the tests of the root module. The others: make $(NESTED:%=test-%)"

test-localpubsub: ## Likewise those of the local Pub/Sub, a module of its own
	go -C localpubsub test $(RACE) -timeout 20m $(ARGS) $(or $(PKG),./...)

# fork: leave out
.PHONY: test-lab bench bench-full tf-mutants tf-e2e

test-lab: ## Likewise those of the benchmarks, of Terraform's checks and of the relays' model, a module of its own
	go -C lab test $(RACE) -timeout 20m $(ARGS) $(or $(PKG),./...)

# fork: go on
clients: $(CLIENT)/.installed ## Generate the TypeScript client, after a change in an openapi.json
	@for service in video catalog; do \
		$(CLIENT)/node_modules/.bin/openapi-typescript services/$$service/openapi.json -o clients/typescript/src/$$service.ts || exit 1; done

clients-check: $(CLIENT)/.installed $(FOLLOWER)/.installed ## Lint the OpenAPI documents; generate, compile and run the TypeScript client; run the reader in Node.js (needs npm)
	REDOCLY_TELEMETRY=off $(CLIENT)/node_modules/.bin/redocly lint --extends=recommended-strict services/*/openapi.json
	$(CLIENT)/node_modules/.bin/spectral lint --fail-severity=hint -r clients/typescript/spectral.json services/*/openapi.json
	@rm -rf $(CLIENT)/src $(CLIENT)/dist $(CLIENT)/generated && cp -R clients/typescript/src clients/typescript/tsconfig.json $(CLIENT)/
	@for service in video catalog; do \
		$(CLIENT)/node_modules/.bin/openapi-typescript services/$$service/openapi.json -o $(CLIENT)/generated/$$service.ts && \
		diff -u clients/typescript/src/$$service.ts $(CLIENT)/generated/$$service.ts || { echo "run make clients"; exit 1; }; done
	$(CLIENT)/node_modules/.bin/tsc -p $(CLIENT)
	@cp clients/reader/*.mjs $(FOLLOWER)/
	LOCKSTEP_CLIENT="$(CURDIR)/$(CLIENT)/dist" LOCKSTEP_READER="$(CURDIR)/$(FOLLOWER)" \
		go test -count=1 -timeout 10m -run '^TestTypeScriptStory$$|^TestNodeReader$$' ./services/

# The scripts of packages do not run.
$(CLIENT)/.installed $(FOLLOWER)/.installed: build/%/.installed: %/package-lock.json
	@command -v npm >/dev/null || { echo "$* needs npm, with Node.js 20 or later: install it"; exit 1; }
	@mkdir -p $(@D)
	cp $*/package.json $*/package-lock.json $*/.npmrc $(@D)/
	npm ci --prefix $(@D) --include=dev --ignore-scripts --no-audit --no-fund
	@touch $@

# Only the server of the tests differs from one version to the next.
test-postgres: ## Run the tests of the pair on the oldest and the newest supported Postgres, and on Terraform's (POSTGRES=18.4.0-beta.17 PKG=./pkg/...; needs npm)
	@for version in $(POSTGRES); do \
		bin=$$(.ci/postgres $$version) && echo "==> Postgres $$version" && \
		env -u TEST_DATABASE_URL PATH="$$bin:$$PATH" $(MAKE) --no-print-directory test ARGS='-count=1 $(ARGS)' || exit 1; done

# The quick form is part of `make test`.
crash: ## Run the long tests: processes killed under load, failovers, random histories (CONTRIBUTING.md)
	LOCKSTEP_FULL=1 go test -count=1 -v -run "^TestCrash$$" ./services/
	LOCKSTEP_FULL=1 go test -count=1 -v -timeout 15m -run "^TestOffsetsUnderKills$$" ./services/
	LOCKSTEP_FULL=1 go test -count=1 -v -timeout 10m -run "^TestFlood$$" ./services/
	LOCKSTEP_FULL=1 go test -count=1 -v -timeout 10m -run "^TestAlertsInAFault$$" ./services/
	LOCKSTEP_FULL=1 go test -count=1 -v -timeout 20m -run "^TestCounters$$" ./services/
	LOCKSTEP_FULL=1 go test -count=1 -v -timeout 20m -run "Failover$$" ./services/
	LOCKSTEP_FULL=1 go test -count=1 -v -timeout 20m -run "^TestReconcileAMillionRows$$" ./services/
	LOCKSTEP_FULL=1 go test -count=1 -v -timeout 30m -run "^TestRebuild$$|^TestRebuildAMillionRows$$" ./services/
	LOCKSTEP_FULL=1 go test -count=1 -v -timeout 15m -run "^TestManyLossesAreLeftOnce$$" ./pkg/eventing/rebuild/
	LOCKSTEP_FULL=1 go test -count=1 -v -timeout 15m -run "IsInterrupted$$" ./pkg/eventing/rebuild/ ./pkg/eventing/operator/backlog/
	LOCKSTEP_FULL=1 go test -count=1 -v -timeout 30m -run "^TestHistory|^TestUnderALongTransaction$$" ./pkg/eventing/outbox/
	LOCKSTEP_FULL=1 go test -count=1 -v -timeout 20m -run "^TestShapeMigrationUnderLoad$$" ./pkg/eventing/migrate/
	LOCKSTEP_FULL=1 go test -count=1 -v -timeout 15m -run "^TestEveryInterleaving$$" ./pkg/eventing/inbox/
	LOCKSTEP_FULL=1 go test -count=1 -v -timeout 15m -run "^TestEveryWait$$" ./pkg/eventing/consistency/
	LOCKSTEP_HISTORIES=10000 go test -count=1 -v -timeout 20m -run "^TestHistories$$" ./pkg/eventing/inbox/
	LOCKSTEP_FULL=1 go test -count=1 -v -timeout 20m -run "^TestInHandIsBoundedUnderOverload$$|^TestPoisonOfEveryKind$$" ./pkg/eventing/inbox/

fresh: ## 100,000 reads with tokens under kills, pauses and restarts, and 10,000 waiters; print the outcomes
	LOCKSTEP_FULL=1 go test -count=1 -v -timeout 15m -run "^TestFreshReads$$" ./services/
	LOCKSTEP_FULL=1 go test -count=1 -v -run "^TestTenThousandWaiters" ./services/catalog/

compose-check: ## Run docker-compose.yml, kill its parts, look at the images (STANDINS=1 where no images can be pulled)
	$(if $(STANDINS),deploy/compose/standins.sh)
	LOCKSTEP_COMPOSE=1 go test -count=1 -v -timeout 40m $(ARGS) ./deploy/compose/

# fork: leave out, for tf-check.mk
bench: ## Measure the pair, other implementations and the limits; build/bench.json (ARGS="-quick", ARGS="-only REGEXP")
	@go -C lab build -buildvcs=false -o ../build/bench ./bench
	@exec build/bench $(ARGS)

bench-full: ## The same with more runs and the large tables
	@$(MAKE) --no-print-directory bench ARGS='--full $(ARGS)'

tf-check: ## Check deploy/terraform without a cloud: fmt, validate, tests, who may do what (ARGS=-optional)
	@go -C lab build -buildvcs=false -o ../build/tf ./terraform
	@exec build/tf check $(ARGS)

# Without the commit in the program: a run that was cut off goes on after a commit of something else.
tf-mutants: ## Make wrong edits in deploy/terraform, and show which check catches each; goes on where it was cut off (ARGS="-only REGEXP")
	@go -C lab build -buildvcs=false -o ../build/tf ./terraform
	@exec build/tf mutants $(ARGS)

tf-e2e: ## Apply deploy/terraform to a stand-in for Google Cloud, run the pair on it, upgrade, destroy; in 3 minutes (ARGS=-update)
	@go -C lab build -buildvcs=false -o ../build/tf ./terraform
	@exec build/tf e2e $(ARGS)

# fork: go on
tf-provider: $(TF_GOOGLE) ## Build Terraform's google provider once, in 5 minutes: the tests that need it run then

lint: $(LINTER) $(BUF) ## Lint Go and proto; refuse breaking changes of the released contract
	cd proto && buf lint && buf breaking --against released.yaml
	$(LINT) run ./...
	@for module in $(NESTED); do echo "golangci-lint run ./$$module/..." && (cd $$module && $(LINT) run ./...) || exit 1; done

vulnerabilities: ## Look for calls of functions with known vulnerabilities, which it asks vuln.go.dev for
	@for module in . $(NESTED); do go -C $$module run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./... || exit 1; done

fmt: $(LINTER) ## Format the Go code
	$(LINT) fmt
	@for module in $(NESTED); do (cd $$module && $(LINT) fmt) || exit 1; done

# The tools that tests run. .ci/full builds them for each of its parts.
tools: $(LINTER) $(BUF) $(GEN_GO) $(GEN_RPC)

generate: $(BUF) $(GEN_GO) $(GEN_RPC) ## Regenerate the Go code of proto/, the Pub/Sub schemas, docs/grpc.md, docs/events.md, docs/tables.md, and the files that follow from the lists of topics, metrics, alerts and boards
	cd proto && buf generate
	go run ./cmd/schema
	go run ./cmd/reference
	go test -count=1 -timeout 5m -run '^TestGenerated$$' ./internal/monitoring ./internal/topics ./migrations -update

# Generates aside and compares, so that an edit by hand shows whether or not it
# is committed, and so does a file whose .proto is gone.
verify: $(BUF) $(GEN_GO) $(GEN_RPC) ## Fail if generated code, go.mod or formatting is out of date, or a binary other than a picture of docs/ is in git
	@rm -rf build/.generated
	cd proto && buf generate -o ../build/.generated
	diff -ru -x '*.proto' -x '*.yaml' proto build/.generated
	go run ./cmd/schema -o build/.schemas
	diff -ru -x '*.go' -x released deploy/schemas build/.schemas
	go run ./cmd/reference -o build/.reference
	@for page in grpc events; do diff -u docs/$$page.md build/.reference/$$page.md || exit 1; done
	go test -count=1 -timeout 5m -run '^TestGenerated$$' ./internal/monitoring ./internal/topics ./migrations
	go mod tidy -diff
	@for module in $(NESTED); do echo "go -C $$module mod tidy -diff" && go -C $$module mod tidy -diff || exit 1; done
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not gofmt'd: $$unformatted"; exit 1; }
	@binaries=$$(git diff --cached --numstat $(EMPTY_TREE) 2>/dev/null | awk '$$1 == "-" && $$2 == "-" { print $$3 }' | grep -v '^docs/[a-z-]*\.png$$'); \
		test -z "$$binaries" || { echo "binaries in git: $$binaries"; exit 1; }

proto-release: $(BUF) ## Accept today's proto/ as the contract that lint and tests compare with
	cd proto && buf build --exclude-source-info -o released.yaml
	go run ./cmd/schema -o deploy/schemas/released

fork: $(BUF) $(GEN_GO) $(GEN_RPC) ## Make a repository of your own (MODULE=example.org/acme/pair DIR=../pair; AGGREGATE, PLURAL, OWNER, READER and NAME: in its own words; ENGAGEMENT=no: without the second aggregate)
	@go run ./cmd/fork --module "$(MODULE)" --dir "$(DIR)" --aggregate "$(AGGREGATE)" --plural "$(PLURAL)" --owner "$(OWNER)" --reader "$(READER)" --name "$(NAME)" --engagement "$(or $(ENGAGEMENT),yes)"

aggregate: $(BUF) $(GEN_GO) $(GEN_RPC) ## Add an aggregate through all layers (NAME=comment FIELDS="text:string,stars:int32" PARENT=video)
	@go run ./cmd/aggregate --name "$(NAME)" --fields "$(FIELDS)" --parent "$(PARENT)"
	@$(MAKE) --no-print-directory generate

ci: ## Run what CI runs
	.ci/run

clean: ## Remove build/
	rm -rf build

# The old stamps go, so that going back to an earlier version installs it again.
define install
	@mkdir -p $(TOOLS) && rm -f $(TOOLS)/.$(notdir $(1))@*
	GOBIN="$(abspath $(TOOLS))" go install $(1)@$*
	@touch $@
endef

$(TOOLS)/.buf@%:
	$(call install,github.com/bufbuild/buf/cmd/buf)
$(TOOLS)/.golangci-lint@%:
	$(call install,github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
$(TOOLS)/.protoc-gen-go@%:
	$(call install,google.golang.org/protobuf/cmd/protoc-gen-go)
$(TOOLS)/.protoc-gen-go-grpc@%:
	$(call install,google.golang.org/grpc/cmd/protoc-gen-go-grpc)

# One compilation at a time: the largest takes 2 GB.
$(PLUGINS)/.terraform-provider-google@%:
	@mkdir -p $(@D) && rm -f $(@D)/.terraform-provider-google@*
	CGO_ENABLED=0 GOBIN="$(abspath $(@D))" go install -p 1 -trimpath \
		-ldflags='-s -w -X github.com/hashicorp/terraform-provider-google/version.ProviderVersion=8.0.0' \
		github.com/hashicorp/terraform-provider-google@$*
	@touch $@
