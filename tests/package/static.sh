#!/usr/bin/env bash
# Runs the program of contrib/static/build.sh in a root that has nothing but it, a configuration and
# /etc/hosts, and looks for its debug information.
#
#   tests/package/static.sh PROGRAM
#
# Needs root. All is below one temporary directory and on an address of this machine alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=$(realpath "$1")
root=$(mktemp -d --tmpdir alexandra-static-XXXXXX)
address=127.96.61.1
server=
trap stop EXIT
trap 'exit 1' INT TERM

fail() {
    echo "failed: $*" >&2
    cat "$root/log" >&2 || true
    exit 1
}

stop() {
    [ -z "$server" ] || kill -s KILL "$server" 2>/dev/null || true
    rm -rf "$root"
}

alone() { chroot --userspec=65534:65534 --groups= "$root" /alexandra "$@"; }

cli() { alone cli --host node --stop-on-error --execute "$1"; }

start() {
    local count
    : >"$root/log"
    chroot --userspec=65534:65534 --groups= "$root" /alexandra serve --config / \
        >>"$root/log" 2>&1 </dev/null &
    server=$!
    for ((count = 0; count < 120; count++)); do
        if grep -q "listening for Thrift clients on $address:9160" "$root/log"; then return; fi
        sleep 0.5
    done
    fail "it does not serve within a minute"
}

echo "--- it needs no library, and its debug information is found beside it"
if readelf --program-headers "$program" | grep INTERP; then fail "it needs libraries"; fi
# Which of its functions are left depends on the profile.
lines=$(nm "$program.debug" | awk '/9alexandra8commands5serve/ { print "0x" $1 }' |
    xargs addr2line --exe "$program")
grep -m 1 'src/commands/serve.rs:[1-9]' <<<"$lines" || fail "addr2line finds no lines"

echo "--- an empty root"
mkdir "$root/etc"
echo "$address node" >"$root/etc/hosts"
cp "$program" "$root/alexandra"
sed -e "s#127\.0\.0\.1#node#; s#</Storage>#<AdminAddress>node</AdminAddress>&#" \
    storage-conf.xml >"$root/storage-conf.xml"
chown 65534:65534 "$root"
start
cli "set Keyspace1.Standard1['kept']['name'] = 'value'"
alone nodetool -h node info

echo "--- it is killed, and has the row"
kill -s KILL "$server"
{ wait "$server" || true; } 2>/dev/null
start
cli "get Keyspace1.Standard1['kept']['name']" | grep value=value || fail "the row is gone"
kill "$server"
wait "$server" || fail "it ended with $? on SIGTERM"
server=
find "$root" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort
echo "--- all is well"
