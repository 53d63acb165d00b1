#!/bin/sh
# Sends a backup of the node on this host to a restic repository.
#
#   backup.sh snapshot    a snapshot, the archive of the commit log, the configuration and the options
#                         of the service; then the repository is checked, and old backups are removed
#   backup.sh log         the same without a snapshot
#
# Run it in the working directory of the server, as a user that may read its files. Settings are in
# the environment: RESTIC_REPOSITORY, RESTIC_PASSWORD_FILE and others of restic, and
#   CONFIG      storage-conf.xml or its directory, if not /etc/cassandra
#   NODETOOL    options of nodetool, such as --token-file FILE
#   KEEP        options of `restic forget`, if not for 14 days and 8 weeks
set -eu
config=$(realpath "${CONFIG:-/etc/cassandra}")
host=$(uname -n)

# Directories of an element of the configuration, one in a line, as absolute paths.
directories() {
    alexandra check-config "$config" |
        sed -En "s/^  $1 = (.*[^ ]) +(line [0-9]+|default)\$/\1/p" | sed 's/, /\n/g' |
        xargs -d '\n' realpath -m
}

# Prints the folders of the snapshot, one a line. Others may have a tag that is longer.
folders() {
    directories DataFileDirectories |
        xargs -d '\n' -I {} find {} -regex '.*/snapshots/[0-9]+-backup' -prune
}

# Clears the snapshot, also one that a killed backup has left.
clear_snapshot() {
    [ -z "$(folders)" ] ||
        alexandra snapshot clear --config "$config" --name backup >/dev/null
}

send() {
    options=/etc/default/cassandra
    [ -r "$options" ] || options=
    printf '%s\n' "$config" "$archive" ${options:+"$options"} "$@" |
        restic backup --quiet --host "$host" --tag "alexandra-$kind" --files-from-verbatim -
}

kind=${1:-}
case $kind in snapshot | log) ;; *) echo "usage: $0 snapshot|log" >&2; exit 1 ;; esac
archive=$(directories CommitLogArchiveDirectory)
[ -d "$archive" ] || { echo "no CommitLogArchiveDirectory of $config: $archive" >&2; exit 1; }
# One backup at a time; so locks in the repository by this host are those of killed ones.
exec 9<"$0"
flock 9
restic unlock --quiet
[ "$kind" = snapshot ] || { send; exit; }
trap clear_snapshot EXIT
trap 'exit 1' INT TERM
clear_snapshot
# shellcheck disable=SC2086 # Several options.
alexandra nodetool ${NODETOOL:-} snapshot backup
found=$(folders)
[ -n "$found" ] || { echo "the node at nodetool is not that of $config" >&2; exit 1; }
send "$found"
clear_snapshot
restic check --quiet
# shellcheck disable=SC2086
restic forget --quiet --host "$host" --tag alexandra-snapshot --tag alexandra-log \
    --group-by host,tags ${KEEP:---keep-daily 14 --keep-weekly 8} --prune
