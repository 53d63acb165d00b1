#!/usr/bin/env bash
# Builds the image of contrib/container on a clean Debian, and runs it as it is meant to be run: its
# root read-only, without capabilities, on data that outlive the container.
#
#   tests/package/container.sh PROGRAM ROOT.tar
#
# ROOT.tar is what root.sh has made. Needs root and what `tests/setup.sh --all` installs. Images are
# below a temporary directory, and the container has no network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=$1
base=$2
directory=$(mktemp -d --tmpdir alexandra-container-XXXXXX)
trap stop EXIT
trap 'exit 1' INT TERM

fail() {
    echo "failed: $*" >&2
    pods logs node >&2 || true
    exit 1
}

pods() {
    podman --runtime runc --cgroup-manager cgroupfs --log-level error \
        --root "$directory/images" --runroot "$directory/run" "$@"
}

stop() {
    pods rm --force node >/dev/null 2>&1 || true
    umount "$directory/images/overlay" 2>/dev/null || true
    rm -rf "$directory"
}

# Systems without systemd have no timer for health checks: `check_health` does it by hand.
run() {
    pods run --detach --name node --network none --no-healthcheck --read-only \
        --read-only-tmpfs=false --cap-drop all --ulimit nofile=10240:10240 \
        --ulimit nproc=4096:4096 --volume data:/var/lib/cassandra localhost/alexandra >/dev/null
    local count
    for ((count = 0; count < 120; count++)); do
        if check_health; then return; fi
        sleep 0.5
    done
    fail "it is not healthy within a minute"
}

check_health() {
    pods exec node "${health[@]}" >/dev/null 2>&1
}

echo "--- build"
mkdir -p "$directory/tree/target/release"
cp storage-conf.xml "$directory/tree"
strip -o "$directory/tree/target/release/alexandra" "$program"
pods import --quiet "$base" localhost/base >/dev/null
pods build --quiet --isolation chroot --format docker --build-arg BASE=localhost/base \
    --file contrib/container/Containerfile --tag alexandra "$directory/tree"
pods inspect localhost/alexandra >"$directory/image.json"
jq --exit-status --raw-output '.[0].Healthcheck.Test[1:][]' "$directory/image.json" \
    >"$directory/health"
mapfile -t health <"$directory/health"

echo "--- run"
run
[ "$(pods exec node id --user --name)" = cassandra ] || fail "it runs as another user"
pods exec node alexandra cli --execute "set Keyspace1.Standard1['kept']['name'] = 'value'"
pods exec node alexandra check-config /etc/cassandra | grep 'ThriftAddress = 0.0.0.0' ||
    fail "it serves nobody outside"

echo "--- stop, and run another one on the data"
pods stop --time 60 node >/dev/null
code=$(pods inspect node --format '{{.State.ExitCode}}')
[ "$code" = 0 ] || fail "it ended with $code on SIGTERM"
if check_health; then fail "it is healthy after its end"; fi
pods rm node >/dev/null
run
pods exec node alexandra cli --execute "get Keyspace1.Standard1['kept']['name']" |
    grep value=value || fail "the row is gone"
echo "--- all is well"
