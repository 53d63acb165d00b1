#!/usr/bin/env bash
# The whole check of the tree, in the order of what fails fastest: form, lints, documentation, tests.
#
# The tests run in the dev profile: it checks arithmetic, and builds several times faster than the
# release profile, on which two cores would spend most of the run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The old clients' languages and their Thrift libraries; quick where they are installed already.
tests/setup.sh

cargo fmt --check
cargo clippy --locked --all-targets -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps
# Tests of whole rings wait for gossip most of the time: two for each processor keep it busy.
RUST_TEST_THREADS="${RUST_TEST_THREADS:-$(($(nproc) * 2))}" cargo test --locked
