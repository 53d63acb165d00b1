#!/bin/sh
# Makes a clean Debian with what the package and the blog need, unless the file is there.
#
#   tests/package/root.sh ROOT.tar
set -eu
[ -e "$1" ] && exit
mmdebstrap --quiet --variant=minbase --format=tar \
    --include=systemd,systemd-sysv,adduser,python3,python3-thrift,python3-six bookworm "$1.part"
mv "$1.part" "$1"
