# The commands of this repository. `make` alone lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Where rustup installs cargo, for shells without it on their path.
export PATH := $(PATH):$(HOME)/.cargo/bin

# How long `make fuzz` looks.
FUZZ_SECONDS ?= 60

# A compiler other than the one this code was written with may know new lints. They are shown, but must not fail the tests.
known_compiler := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
deny_warnings = $(if $(findstring rustc $(known_compiler).,$(shell rustc --version 2>/dev/null)),-D warnings)

.PHONY: help
help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: run
run: setup ## Start the server on built-in example rules
	cargo run --release -p tollgate-server -- serve

# What is built is in git, so that a server can be built without npm, and is in the binary when that is built next.
dashboard_tools := dashboard/node_modules/.package-lock.json

.PHONY: dashboard
dashboard: dashboard-tools ## Build dashboard/dist, which is embedded in the binary; commit it with its sources
	@cd dashboard && npm run --silent build -- --logLevel warn

.PHONY: dashboard-tools
dashboard-tools:
	@scripts/setup.sh dashboard
	@$(MAKE) --silent $(dashboard_tools)

$(dashboard_tools): dashboard/package.json dashboard/package-lock.json
	@cd dashboard && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

.PHONY: test-dashboard
test-dashboard: dashboard-tools ## Test the dashboard's logic, and that dashboard/dist is built from its sources
	@cd dashboard && npm test --silent
	@scripts/test-dashboard.sh

.PHONY: pictures
pictures: setup-tests dashboard-tools ## Take the pictures of docs/pictures/ from the dashboard of a real server
	cargo test -p tollgate-server --test end_to_end -- --ignored dashboard::

.PHONY: demo
demo: setup ## Start a server with example traffic
	cargo build --release -p tollgate-server
	@trap : INT; TOLLGATE=$(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/release/tollgate demo/run.sh || test $$? = 130

.PHONY: demo-gateway
demo-gateway: setup ## Start a gateway with an upstream that slows down, and traffic
	cargo build --release -p tollgate-server
	@trap : INT; TOLLGATE=$(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/release/tollgate demo/gateway.sh || test $$? = 130

.PHONY: demo-regions
demo-regions: setup ## Start three regions with a Redis each, traffic that moves, and a region that is cut off
	cargo build --release -p tollgate-server
	@trap : INT; TOLLGATE=$(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/release/tollgate demo/regions.sh || test $$? = 130

# Most tests wait for other processes, so more of them run at the same time than there are processors. With eight in each of two
# streams the machine was so busy that connections timed out. Those that judge how long something takes run alone
# (crates/testing/src/machine.rs).
export RUST_TEST_THREADS ?= 4

# `cargo clippy` is `cargo check` with this wrapper around the compiler. Around the build of the tests it lints what it compiles, so
# that everything is compiled once. A Rust that came without rustup may lack clippy: then the tests still run.
clippy := $(shell cargo clippy --version 2>/dev/null)
linting = $(if $(clippy),RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS="$(subst $(space),__CLIPPY_HACKERY__,$(deny_warnings))__CLIPPY_HACKERY__")
empty :=
space := $(empty) $(empty)

# Documentation tests come before the others, so that what ends the output is the summary of tests that are most of them.
.PHONY: test
test: export CARGO_INCREMENTAL = 0
test: setup-tests test-dashboard format ## Run formatting, clippy and all tests
	@$(if $(clippy),,echo "clippy is missing, lints are not checked (rustup component add clippy)")
	$(linting) cargo test --all-features --no-fail-fast --quiet --doc
	$(linting) scripts/test.sh --all-features
	@$(MAKE) --silent perf

.PHONY: h2spec
h2spec: ## Build h2spec, which tests the gateway's HTTP/2
	@$(if $(shell command -v go),$(MAKE) --silent $(h2spec),echo "h2spec could not be built without Go, and is not run")

.PHONY: test-long
test-long: setup-tests test-dashboard test-dist h2spec ## Run all tests with longer random runs, and those of builds without optional features
	SCRIPT_CLAIMS=120000 cargo test --all-features --no-fail-fast --lib --bins --examples --tests -- \
		--include-ignored --skip pictures_are_taken
	cargo test -p tollgate-server -p tollgate-control -p tollgate-telemetry --no-default-features --lib --bins
	for feature in redis postgres otlp top openapi dashboard; do \
		cargo clippy --quiet -p tollgate-server --profile test --no-default-features --features $$feature -- $(deny_warnings); done

.PHONY: test-fast
test-fast: setup-tests dashboard-tools ## Run the tests except those named slow_…, without lints
	cargo test --all-features --lib --bins --tests -- --skip slow_

.PHONY: lint
lint: setup ## Run formatting, clippy and documentation, with warnings as errors
	cargo fmt --check
	cargo clippy --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --all-features

.PHONY: format
format: setup
	@if cargo fmt --version >/dev/null 2>&1; then cargo fmt --check; \
	else echo "rustfmt is missing, formatting is not checked (rustup component add rustfmt)"; fi

# Instructions and bytes, not time: the same on a busy machine. Another compiler, for which there are no budgets, only prints.
perf_built := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/perf/tollgate-perf

.PHONY: perf
perf: perf-built ## Count the instructions of fixed paths, and compare them with crates/perf/budgets.txt
	@$(perf_built)

.PHONY: perf-update
perf-update: perf-built ## Write crates/perf/budgets.txt anew; say why in the commit
	@$(perf_built) --update

.PHONY: perf-built
perf-built: setup
	@scripts/setup.sh perf
	@cargo build --quiet --profile perf -p tollgate-perf

# A workspace of its own, which tests and lints leave alone: its peers are heavy, and nothing here depends on them.
bench_built := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
peers := $(CURDIR)/target/peers/bin
throttlecrab := $(peers)/throttlecrab-server
ratelimit := $(peers)/ratelimit
h2spec := $(peers)/h2spec
h2spec_version := v2.2.1+incompatible
ratelimit_version := v1.4.1-0.20260122083618-3fb702589d36
peers_in_go := $(if $(shell command -v go),$(ratelimit))
run_bench = TOLLGATE=$(bench_built)/dist/tollgate THROTTLECRAB=$(throttlecrab) RATELIMIT=$(ratelimit) \
	cargo run --profile dist --manifest-path bench/Cargo.toml --

.PHONY: bench
bench: bench-built perf-built $(throttlecrab) $(peers_in_go) ## Benchmark Tollgate and its peers, and write the results to docs/benchmarks.md
	$(run_bench) | tee $(bench_built)/bench.log
	@$(perf_built) report $(bench_built)/bench.log

.PHONY: bench-server
bench-server: bench-built $(throttlecrab) ## Benchmark the running server and its peers, without the library
	$(run_bench) grpc http receipts resp latency

.PHONY: bench-redis
bench-redis: bench-built $(peers_in_go) ## Benchmark counters in Redis: the store, and servers compared to envoyproxy/ratelimit
	$(run_bench) redis fleet

.PHONY: bench-gateway
bench-gateway: bench-built perf-built setup-tests ## Benchmark the gateway, nginx and Envoy, and write the results to docs/benchmarks.md
	$(run_bench) gateway adaptive | tee $(bench_built)/bench-gateway.log
	@$(perf_built) report $(bench_built)/bench-gateway.log bench-gateway

.PHONY: bench-built
bench-built: setup
	@scripts/setup.sh bench
	cargo build --profile dist --bin tollgate

# Built once; it needs protoc, which setup brings.
$(throttlecrab):
	@scripts/setup.sh bench
	cargo install --quiet --locked --root $(CURDIR)/target/peers --version 0.4.40 throttlecrab-server

# Built once, if Go is available. If Go is too old or there is no network, a line says so, and the rest is measured.
$(ratelimit):
	@GOBIN=$(peers) go install github.com/envoyproxy/ratelimit/src/service_cmd@$(ratelimit_version) && \
		mv $(peers)/service_cmd $@ || echo "envoyproxy/ratelimit could not be built, and is not measured"

# Built once.
$(h2spec):
	GOBIN=$(peers) go install github.com/summerwind/h2spec/cmd/h2spec@$(h2spec_version)

# Takes long; `PRESETS="exercise thresholds"` runs some of them.
PRESETS ?= exercise thresholds hot s1 s2

.PHONY: simulate
simulate: setup ## Simulate fleets of up to 1,000 servers: the presets of `tollgate simulate`, and 10,000 random worlds
	cargo build --release -p tollgate-server
	for preset in $(PRESETS); do $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/release/tollgate simulate $$preset; done
	$(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/release/tollgate simulate random --seeds 10000

# Static binaries: both processors, or those of DIST_ARCHS=x86_64.
.PHONY: dist
dist: setup ## Build static binaries and tarballs in target/dist-out, for DIST_ARCHS="x86_64 aarch64"
	@scripts/setup.sh dist $(DIST_ARCHS)
	@scripts/dist.sh $(DIST_ARCHS)

.PHONY: image
image: dist image-only ## Build the container image tollgate:VERSION, also as a file in target/dist-out

.PHONY: image-only
image-only:
	@scripts/setup.sh image
	@scripts/image.sh

.PHONY: test-dist
test-dist: ## Build the tarball and the image for this machine, and try both as a new user would
	@$(MAKE) --silent dist DIST_ARCHS=$(shell uname -m)
	@scripts/test-dist.sh
	@$(MAKE) --silent image-only
	@scripts/test-image.sh

.PHONY: proto
proto: setup ## Generate crates/proto/src/generated/ from crates/proto/proto/
	@scripts/setup.sh proto
	@cargo run --quiet --profile test -p tollgate-proto --example generate

# libFuzzer on the stable compiler: the instrumentation is LLVM's own, and without unsafe code no sanitizer is needed.
# What it finds to be new it adds to fuzz/grown/; what fails, to fuzz/artifacts/.
fuzz_target := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
fuzz_flags := --cfg fuzzing -Cdebug-assertions -Cpasses=sancov-module $(addprefix -Cllvm-args=-sanitizer-coverage-, \
	level=4 inline-8bit-counters pc-table trace-compares)

.PHONY: fuzz
fuzz: setup ## Fuzz the rule loader for FUZZ_SECONDS=60
	@scripts/setup.sh c++
	@mkdir -p fuzz/grown/load_rules fuzz/artifacts/load_rules
	cd fuzz && RUSTFLAGS="$(fuzz_flags)" cargo run --release --target $(fuzz_target) --bin load_rules -- \
		-max_total_time=$(FUZZ_SECONDS) -max_len=8192 -timeout=5 -rss_limit_mb=1024 -print_final_stats=1 \
		-dict=rules.dict -artifact_prefix=artifacts/load_rules/ grown/load_rules corpus/load_rules

# mdBook, built once, without its own server.
mdbook_version := 0.5.4
mdbook := $(CURDIR)/target/tools/mdbook-$(mdbook_version)/bin/mdbook

.PHONY: site
site: $(mdbook) ## Build the documentation as a site with search, in target/site, and check its links
	@scripts/site.py $(mdbook)

$(mdbook):
	@scripts/setup.sh site
	cargo install --quiet --locked --root $(CURDIR)/target/tools/mdbook-$(mdbook_version) --version $(mdbook_version) \
		--no-default-features --features search mdbook

.PHONY: setup
setup: ## Install a C linker, if it is missing, from the system's packages
	@scripts/setup.sh

.PHONY: setup-tests
setup-tests: setup ## Install the tools of the tests: Envoy, nginx, Caddy, PostgreSQL, Prometheus, Redis's tools, schemathesis, Chromium
	@scripts/setup.sh tests
