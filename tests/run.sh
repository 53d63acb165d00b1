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
cargo test --locked
