# The two commands that matter: `make demo` and `make test`.

CARGO ?= cargo

.PHONY: demo test setup format lint unit docs web simulate fuzz experiment reproduce package clean

# Build, start a node, load it, fit, predict, compare, report. About four minutes after the build.
demo:
	$(CARGO) build --release --locked -p concertina
	$(CARGO) run --release --locked -q -p concertina -- demo

# The whole of CI: formatting, lints as errors, all tests, the documentation. Incremental compilation makes the first
# build slower, and pays off for who edits and runs `cargo test`.
# What the tests need and the lints do not is fetched and built beside them; the documentation is built while tests wait,
# and takes what they leave of the processors.
test: export CARGO_INCREMENTAL = 0
test:
	@sh .ci/setup system
	@sh .ci/setup clients & clients=$$!; $(MAKE) format lint && wait $$clients
	@nice -n 19 $(MAKE) docs & docs=$$!; $(MAKE) unit; unit=$$?; wait $$docs && exit $$unit

# What the tests need beside a Rust toolchain, where this can be installed.
setup:
	@sh .ci/setup

format:
	$(CARGO) fmt --all -- --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml -- --check
	$(CARGO) fmt --manifest-path python/Cargo.toml -- --check

lint:
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	@mkdir -p target && sed -n '/^\[profile\.dev/,/^\[profile\.release/{/^\[profile\.release/d;p}' Cargo.toml > target/lint-profile.toml
	$(CARGO) clippy --manifest-path fuzz/Cargo.toml --no-default-features --target-dir target --config target/lint-profile.toml --locked -- -D warnings
	PYO3_NO_PYTHON=1 PYO3_BUILD_EXTENSION_MODULE=1 $(CARGO) clippy --manifest-path python/Cargo.toml --target-dir target --config target/lint-profile.toml --locked -- -D warnings

# Most end-to-end tests wait for processes more than they compute: twice as many at a time as there are processors.
unit: export RUST_TEST_THREADS ?= $(shell echo $$((2 * $$(nproc 2>/dev/null || echo 2))))
unit:
	@mkdir -p target && rm -f target/unit.status
	@{ $(CARGO) test --workspace --locked --no-fail-fast 2>&1; echo $$? > target/unit.status; } | tee target/unit.log; \
	test "$$(cat target/unit.status)" = 0 || { awk -f .ci/failures target/unit.log; exit 1; }

docs:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

# The page, from its sources into the crate that embeds it. Its result is committed, so that no other target needs npm.
web:
	cd web && npm ci --ignore-scripts && npm run check && npm test && npm run build

# More seeds than a test run has time for: make simulate SEEDS=100000; FROM=100000 goes on where another ended.
SEEDS ?= 10000
FROM ?= 0
simulate:
	SIM_SEEDS=$(SEEDS) SIM_SEEDS_FROM=$(FROM) $(CARGO) test --release -p engine --test sim seeds -- --nocapture

# Coverage-guided: each target for so long (docs/fuzzing.md). Needs nightly Rust and cargo-fuzz (cargo install cargo-fuzz).
SECONDS ?= 60
TARGETS ?= $(basename $(notdir $(wildcard fuzz/targets/*.rs)))
fuzz:
	for target in $(TARGETS); do $(CARGO) +nightly fuzz run $$target -- -max_total_time=$(SECONDS) -max_len=400 -len_control=0 || exit 1; done

# One experiment again on this machine: make experiment NAME=spotify-single [SHORT=1] [OUT=DIR]
HELPER_foreign = slowdisk
HELPER_nginx = slowdisk
HELPER_serve-objects = serve-objects-bare
HELPER_shard-build = shard-queries-bench
HELPER_shard-curve = shard-queries-bench
HELPER_shard-layers = shard-queries-bench
HELPER_shard-queries = shard-queries-bench
NAME ?= spotify-single
experiment:
	$(CARGO) build --release --locked -p concertina -p experiments $(addprefix -p ,$(HELPER_$(NAME)))
	target/release/experiments run experiments/$(NAME) $(if $(SHORT),--short) $(if $(OUT),--out $(OUT))

# Every figure and table of the sources, theirs beside ours, in one page: make reproduce [CHAPTER=spotify] [RUN=short|long]
# Computes what follows from published parameters, and shows the newest records of what was measured, after measuring again with RUN.
CHAPTER ?=
reproduce:
	$(CARGO) build --release --locked -p concertina -p experiments -p shard-queries-bench
	target/release/experiments reproduce $(CHAPTER) $(if $(RUN),--run $(RUN))

# A Debian package in target/package (deploy/debian): program, unit, user, configuration, manual pages, completions.
package:
	$(CARGO) build --release --locked -p concertina
	@deploy/debian/package target/release/concertina target/package

clean:
	$(CARGO) clean
