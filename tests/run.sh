#!/usr/bin/env bash
# The whole check of the tree, in the order of what fails fastest: form, lints, tests; and beside the
# longest of them the documentation.
#
# With --all, after that the slow extras: what other programs make of a ring of three nodes, a
# restore from a backup off the host, and, for root, package and container on a clean Debian, and a
# static program in an empty root.
#
# The tests run in the dev profile: it checks arithmetic, and builds several times faster than the
# release profile, on which two cores would spend most of the run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The old clients' languages and their Thrift libraries; quick where they are installed already.
tests/setup.sh "$@"

cargo fmt --check
cargo clippy --locked --all-targets -- -D warnings
cargo test --locked --no-run
cargo test --locked --lib --bins --test tidy

# Tests of whole rings wait for gossip most of the time: four for each processor keep it busy. The
# simulation and the documentation compute, and take what they leave.
computed=$(mktemp)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -f "$computed"' EXIT
(
    nice cargo test --locked --test simulation
    RUSTDOCFLAGS="-D warnings" nice cargo doc --locked --no-deps
) >"$computed" 2>&1 &
RUST_TEST_THREADS="${RUST_TEST_THREADS:-$(($(nproc) * 4))}" cargo test --locked --test integration
result=0
wait $! || result=$?
cat "$computed"
[ $result = 0 ] || exit $result

if [ "${1:-}" = --all ]; then
    cargo build --locked
    program=${CARGO_TARGET_DIR:-target}/debug/alexandra
    tests/monitoring/check.py "$program"
    tests/console/.venv/bin/python tests/console/check.py "$program"
    tests/backup/check.py "$program"
    if [ "$(id -u)" = 0 ]; then
        root=${CARGO_TARGET_DIR:-target}/bookworm.tar
        tests/package/root.sh "$root"
        tests/package/check.sh "$program" "$root"
        tests/package/container.sh "$program" "$root"
        PROFILE=dev contrib/static/build.sh
        tests/package/static.sh "${CARGO_TARGET_DIR:-target}/static/alexandra"
    else
        echo "Not tried, for want of root: tests/package"
    fi
fi
