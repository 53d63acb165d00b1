#!/usr/bin/env bash
# Installs, upgrades, removes and purges the Debian package on a clean Debian that systemd has
# booted, with a blog and data that have to survive.
#
#   tests/package/check.sh PROGRAM ROOT.tar
#
# PROGRAM is packed as it is; it has to run on Debian bookworm. ROOT.tar is what root.sh has made.
# Needs root and what `tests/setup.sh --all` installs. All is below one temporary directory and
# stopped at the end; the container has a network of its own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=$(realpath "$1")
directory=$(mktemp -d --tmpdir alexandra-package-XXXXXX)
root=$directory/root
container=
leader=
trap stop EXIT
trap 'exit 1' INT TERM

say() { echo "--- $*"; }

fail() {
    echo "failed: $*" >&2
    exit 1
}

# Packages of two revisions, from a copy of the tree.
build() {
    local tree=$directory/tree revision
    mkdir -p "$tree/target/release" "$directory/packages"
    git ls-files -z | tar --create --null --files-from=- | tar --extract --directory "$tree"
    cp "$program" "$tree/target/release/alexandra"
    strip "$tree/target/release/alexandra"
    for revision in 1 2; do
        "$tree/contrib/debian/build.sh" --no-build --no-dbgsym --fast --deb-revision "$revision" \
            --output "$directory/packages/$revision.deb"
    done
}

boot() {
    setsid systemd-nspawn --quiet --register=no --keep-unit --private-network --boot \
        --console=pipe --directory "$root" >"$directory/console.log" 2>&1 </dev/null &
    container=$!
    wait_for "systemd is up" is_booted
}

is_booted() {
    leader=$(pgrep --parent "$container") && inside systemctl is-system-running 2>/dev/null |
        grep -q -e running -e degraded
}

inside() {
    timeout 120 nsenter --target "$leader" --mount --uts --ipc --net --pid --cgroup -- \
        env -i PATH=/usr/sbin:/usr/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"
}

stop() {
    if [ -n "$container" ]; then
        kill -s RTMIN+4 "$leader" 2>/dev/null || true
        timeout 60 tail --pid="$container" -f /dev/null || kill -s KILL "$leader"
    fi
    rm -rf "$directory"
}

wait_for() {
    local what=$1 count
    shift
    for ((count = 0; count < 120; count++)); do
        if "$@"; then return; fi
        sleep 0.5
    done
    fail "not within a minute: $what"
}

install_package() { inside dpkg --install "/packages/$1.deb" | tail -n 3; }

cli() { inside alexandra cli --stop-on-error --execute "$1"; }

serves() {
    [ "$(inside systemctl is-active alexandra)" = active ] || fail "the service is not active"
    inside nodetool -h 127.0.0.1 info >/dev/null || fail "nodetool does not reach the server"
}

is_down() {
    if inside nodetool -h 127.0.0.1 info >/dev/null 2>&1; then fail "the server still runs"; fi
}

# A row that was written at the beginning.
write_row() { cli "set Keyspace1.Standard1['kept']['name'] = 'value'" >/dev/null; }
has_row() {
    cli "get Keyspace1.Standard1['kept']['name']" | grep -q value=value || fail "the row is gone"
}

run_blog() { inside /clients/python/check.py | tail -n 1; }

say "build"
build
lintian --allow-root --fail-on error,warning "$directory/packages/1.deb" || fail "lintian objects"

say "a clean Debian"
mkdir "$root"
tar --extract --file "$2" --directory "$root"
# Makes the bindings, for which the clean Debian has no compiler.
PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 clients/python/check.py --help >/dev/null
cp -r "$directory/packages" clients cassandra.thrift tests/package/night.sh "$root"
boot

say "install"
install_package 1
serves
run_blog
write_row
inside stat -c "%U %a %n" /var/lib/cassandra /var/log/cassandra /etc/cassandra/storage-conf.xml
mode=$(inside stat -c "%U %G %a" /etc/cassandra/storage-conf.xml)
[ "$mode" = "root cassandra 640" ] || fail "the configuration is not for the service alone: $mode"
inside systemd-analyze security alexandra | tail -n 1

say "three nights with a script of the years of 0.6"
night() { inside /night.sh 127.0.0.1 8080 /var/lib/cassandra/data /backups; }
night | grep "1 backups, 0 snapshots left"
night | grep "2 backups, 0 snapshots left"
# night.txt is what the script printed with a server of 0.6.13. Figures may differ, and the order of
# pools and column families.
night | sed -E '/^(node|token|ROW|Keyspace|Standard)/ {
    s/[0-9.]+ (bytes|KB|MB),/SIZE,/
    s/NaN|\b[0-9][0-9.]*(E-[0-9]+)?\b/N/g
}' | LC_ALL=C sort >"$directory/night"
diff tests/package/night.txt "$directory/night" || fail "the script does not find what it found"

say "backups by the units of contrib/backup"
cp "$(command -v restic)" "$root/usr/bin"
inside install -d -o cassandra -g cassandra -m 700 /var/lib/cassandra/archive /var/backups/node
sed -i 's#</Storage>#<CommitLogArchiveDirectory>./archive</CommitLogArchiveDirectory>&#' \
    "$root/etc/cassandra/storage-conf.xml"
inside systemctl restart alexandra
echo secret >"$root/etc/alexandra-backup.password"
cat >"$root/etc/default/alexandra-backup" <<END
RESTIC_REPOSITORY=/var/backups/node
RESTIC_PASSWORD_FILE=/etc/alexandra-backup.password
END
inside sh -c 'cp /usr/share/alexandra/backup/alexandra-backup@* /etc/systemd/system/'
restic_inside() {
    inside runuser -u cassandra -- sh -c "set -a; . /etc/default/alexandra-backup; restic $*"
}
restic_inside init
inside systemctl enable --now alexandra-backup@snapshot.timer alexandra-backup@log.timer
for kind in snapshot log; do
    inside systemctl start "alexandra-backup@$kind" || fail "no backup: $kind"
    restic_inside snapshots --compact --tag "alexandra-$kind" | grep "alexandra-$kind"
done
inside systemctl list-timers --no-pager 'alexandra-backup@*' | grep -c alexandra-backup@ |
    grep 2 || fail "no timers"
rm "$root"/etc/systemd/system/alexandra-backup@* "$root"/etc/*/alexandra-backup* \
    "$root"/etc/alexandra-backup* "$root"/etc/systemd/system/*/alexandra-backup@*

say "upgrade"
configured=$(sha256sum <"$root/etc/cassandra/storage-conf.xml")
before=$(inside systemctl show --property MainPID alexandra)
install_package 2
serves
[ "$before" != "$(inside systemctl show --property MainPID alexandra)" ] || fail "no restart"
inside dpkg-query --show alexandra
has_row
run_blog

kept() {
    [ "$configured" = "$(sha256sum <"$root/etc/cassandra/storage-conf.xml")" ] ||
        fail "the configuration has changed"
    [ -d "$root/var/lib/cassandra/data/Keyspace1" ] || fail "the data are gone"
}

say "remove"
inside dpkg --remove alexandra | tail -n 1
is_down
kept
install_package 2
serves
has_row

say "purge"
inside dpkg --purge alexandra | tail -n 2
is_down
kept
if inside dpkg-query --status alexandra 2>/dev/null; then fail "dpkg still knows it"; fi
left=$(find "$root/etc" "$root/usr" "$root/lib" -name '*alexandra*')
[ -z "$left" ] || fail "files of the package are left: $left"

say "a configuration of old, and no data"
rm -rf "$root/var/lib/cassandra"
sed -i 's/Test Cluster/Of old/' "$root/etc/cassandra/storage-conf.xml"
configured=$(sha256sum <"$root/etc/cassandra/storage-conf.xml")
install_package 1
serves
cli "show cluster name" | grep 'Of old' || fail "it is not served"
write_row
kept
say "all is well"
