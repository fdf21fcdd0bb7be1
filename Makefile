# Kota's commands. `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: help tools build wasm demo test test-long fuzz accuracy bench bench-failures bench-layouts deny fmt clean

STORE ?= memory
KOTA_PACKAGES := --workspace --exclude kota-noop

help: ## Lists these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

tools: ## Fetches Envoy and what else the tests run (Debian packages as root, else says which)
	@integration/tools.sh

build: wasm ## Builds the kota binary (target/release/kota) and the filter
	cargo build --locked --release -p kota

wasm: ## Builds the filter (target/wasm32-wasip1/wasm/kota_filter.wasm), and the one that does nothing
	cargo build --locked --profile wasm --target wasm32-wasip1 -p kota-filter -p kota-noop

demo: ## Runs Envoy on 127.0.0.1:10000 with Kota; STORE=redis://… counts in Redis
	@integration/tools.sh demo
	@$(MAKE) --no-print-directory build
	cargo build --locked -q -p kota-integration --bin demo
	@exec "$${CARGO_TARGET_DIR:-target}/debug/demo" "$(STORE)"

fmt: ## Formats the code
	cargo fmt --all
	cargo fmt --manifest-path integration/fuzz/targets/Cargo.toml

# Clippy covers the code behind cfg(target_arch = "wasm32") too: that is where a panic would trap a worker's VM.
test: tools build ## Everything that CI runs: format, lints, unit tests, end-to-end tests
	@echo "== format"; cargo fmt --all --check; cargo fmt --manifest-path integration/fuzz/targets/Cargo.toml --check
	@echo "== lints"; cargo clippy --locked $(KOTA_PACKAGES) --all-targets -- -D warnings
	cargo clippy --locked --target wasm32-wasip1 -p kota-filter -p kota-noop -- -D warnings
	@echo "== unit tests"; cargo test --locked $(KOTA_PACKAGES) --exclude kota-integration
	@echo "== a million random steps: script on Redis against model"; cargo test --locked -p kota-sidecar --test lua -- --ignored
	@echo "== end-to-end tests: Envoy, Redis, sidecars"; cargo test --locked -p kota-integration
	@echo "== passed: format, lints, unit tests, end-to-end tests"

test-long: tools build ## The tests that need minutes, after those of `make test`
	cargo test --locked $(KOTA_PACKAGES)
	cargo test --locked --release $(KOTA_PACKAGES) -- --ignored

fuzz: ## Feeds the parsers what a stranger could send (needs a nightly compiler), FUZZ_SECONDS (60) for each target
	@integration/fuzz/run.sh

accuracy: ## Tries the sliding window counter against an exact log on synthetic days; writes integration/bench/accuracy.json
	cargo run --locked -q -p kota-integration --bin accuracy

bench: ## Measures side by side what Kota costs (8 minutes); writes target/bench/report.json. BENCH_SECONDS, BENCH_ROUNDS, BENCH_ONLY
	@integration/tools.sh bench
	@$(MAKE) --no-print-directory build
	cargo build --locked -q -p kota-integration --bin bench
	@exec "$${CARGO_TARGET_DIR:-target}/debug/bench"

bench-failures: ## Measures how long a request waits when sidecar or Redis are away; writes target/bench/failures.json
	@integration/tools.sh bench
	@$(MAKE) --no-print-directory build
	cargo build --locked -q -p kota-integration --bin bench
	@exec "$${CARGO_TARGET_DIR:-target}/debug/bench" failures

bench-layouts: ## Compares layouts of a bucket's state on Redis, and what each kind takes; writes integration/bench/layouts/*.csv
	integration/bench/layouts/run.py
	integration/bench/layouts/kinds.py

deny: ## Checks licences, sources and duplicates of the dependencies (.deny.toml)
	@[ -x target/tools/bin/cargo-deny ] || cargo install --locked --root target/tools cargo-deny
	target/tools/bin/cargo-deny check bans licenses sources

clean: ## Removes what was built (and what `make tools` fetched)
	cargo clean
	rm -rf target
