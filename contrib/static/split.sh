#!/usr/bin/env bash
# Parts a program from its debug information: DIRECTORY gets a stripped copy, and beside it a file
# `.debug`, where gdb and addr2line find it. Prints the paths of both.
#
#   contrib/static/split.sh target/release/alexandra DIRECTORY
set -euo pipefail
program=$1
directory=$2

mkdir -p "$directory"
stripped=$directory/$(basename "$program")
objcopy --only-keep-debug --compress-debug-sections "$program" "$stripped.debug"
chmod 0644 "$stripped.debug"
# Not in place: a server may run the copy of before.
objcopy --strip-all --add-gnu-debuglink="$stripped.debug" "$program" "$stripped.part"
mv "$stripped.part" "$stripped"
ls -sh1 "$stripped" "$stripped.debug"
