#!/usr/bin/env bash
# Builds the Debian package, and one with its debug information. Prints their paths.
#
#   contrib/debian/build.sh [--no-build] [options of cargo-deb]
#
# Needs cargo-deb (`cargo install cargo-deb --locked`). --no-build packs target/release/alexandra as
# it is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [[ "${1:-}" = --no-build ]]; then
    shift
else
    cargo build --release --locked
fi
program=target/release/alexandra
files=target/debian-files
rm -rf "$files"
mkdir -p "$files"/{man,links,bash,zsh,fish}
"$program" man "$files/man"
gzip --best --no-name "$files"/man/*
gzip --best --no-name --stdout CHANGELOG.md > "$files/changelog.gz"
version=$("$program" version)
cat > "$files/changelog.Debian" <<END
alexandra (${version#* }-1) unstable; urgency=medium

  * See changelog.gz.

 -- The authors of Alexandra <root@localhost>  $(date --utc -R -r CHANGELOG.md)
END
for name in alexandra nodetool nodeprobe clustertool cassandra-cli; do
    "$program" completions bash "$name" > "$files/bash/$name"
    "$program" completions zsh "$name" > "$files/zsh/_$name"
    "$program" completions fish "$name" > "$files/fish/$name.fish"
done
sed 's#\./data/#/var/lib/cassandra/#' storage-conf.xml > "$files/storage-conf.xml"
# The old names. Those without a page of their own have that of the command that they stand for.
while read -r name command; do
    ln -s alexandra "$files/links/$name"
    [ -e "$files/man/$name.1.gz" ] || ln -s "alexandra-$command.1.gz" "$files/man/$name.1.gz"
done <<END
cassandra serve
cassandra-cli cli
clustertool clustertool
nodetool nodetool
nodeprobe nodetool
sstable2json sstable
json2sstable sstable
sstablekeys sstable
stress.py stress
END
cargo deb --no-build "$@"
