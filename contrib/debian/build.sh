#!/usr/bin/env bash
# Builds the Debian package, and one with its debug information. Prints their paths.
#
#   contrib/debian/build.sh [--no-build]
#
# Needs cargo-deb (`cargo install cargo-deb --locked`). --no-build packs target/release/alexandra as
# it is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [[ "${1:-}" != --no-build ]]; then
    cargo build --release --locked
fi
program=target/release/alexandra
files=target/debian-files
rm -rf "$files"
mkdir -p "$files"/{man,links}
"$program" man "$files/man"
gzip --best --no-name "$files"/man/*
for shell in bash zsh fish; do
    "$program" completions "$shell" > "$files/alexandra.$shell"
done
sed 's#\./data/#/var/lib/cassandra/#' storage-conf.xml > "$files/storage-conf.xml"
for name in cassandra cassandra-cli clustertool nodetool nodeprobe sstable2json json2sstable sstablekeys; do
    ln -s alexandra "$files/links/$name"
done
cargo deb --no-build
