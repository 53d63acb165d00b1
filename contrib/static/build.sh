#!/usr/bin/env bash
# Builds a program that needs nothing of the system it runs on but Linux, and puts its debug
# information into a file of its own. Prints the paths of both.
#
#   contrib/static/build.sh [options of cargo build]
#
# Needs `rustup target add x86_64-unknown-linux-musl`, or that of another processor, and musl-gcc
# (`apt-get install musl-tools`). PROFILE=dev builds faster, for tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

profile=${PROFILE:-release}
target=$(uname -m)-unknown-linux-musl
files=${CARGO_TARGET_DIR:-target}
cargo build --profile "$profile" --locked --target "$target" "$@"
contrib/static/split.sh "$files/$target/${profile/#dev/debug}/alexandra" "$files/static"
# README.md promises a program of less than 20 MB.
if [ "$profile" = release ] && [ "$(stat -c %s "$files/static/alexandra")" -ge 20000000 ]; then
    echo "the program has grown to 20 MB" >&2
    exit 1
fi
