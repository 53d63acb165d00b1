#!/bin/sh
# Installs what the tests need besides Rust: the C compiler that Rust links with, the Thrift
# libraries of Python and Ruby, which the old clients below clients/ are written on, the Thrift
# compiler, which makes their bindings, the CQL driver of Python, and, in a virtual environment
# below clients/modern, the library of the client there.
#
# With --all also what only `tests/run.sh --all` needs: Prometheus, restic, programs that cause
# faults, those that make packages and try them on a Debian of their own, the C library of static
# programs, and Chromium with what drives it, in a virtual environment below tests/console.
#
# For Debian and its descendants; elsewhere it only says what is missing. It uses sudo unless it is
# run by root, installs nothing that is there already, and is done at once where all of it is.
set -eu
cd "$(dirname "$0")/.."
extras=${1:-}

missing() {
    command -v cc >/dev/null || echo gcc
    # A compiler without the headers and start files of the C library links nothing.
    [ -e /usr/include/stdlib.h ] || echo libc6-dev
    [ -x /usr/bin/python3 ] || echo python3
    /usr/bin/python3 -c 'import ensurepip' 2>/dev/null || echo python3-venv
    /usr/bin/python3 -c 'import thrift.protocol.fastbinary' 2>/dev/null || echo python3-thrift
    # The library imports it, but its package does not ask for it.
    /usr/bin/python3 -c 'import six' 2>/dev/null || echo python3-six
    # Not every build of the driver has an event loop, which this module looks for.
    /usr/bin/python3 -c 'import cassandra.cluster' 2>/dev/null || echo python3-cassandra
    [ -x /usr/bin/ruby ] || echo ruby
    /usr/bin/ruby -e 'require "thrift"' 2>/dev/null || echo ruby-thrift
    command -v thrift >/dev/null || echo thrift-compiler
    [ "$extras" = --all ] || return 0
    for program in prometheus restic faketime strace lintian mmdebstrap podman runc jq chromium; do
        command -v $program >/dev/null || echo $program
    done
    command -v systemd-nspawn >/dev/null || echo systemd-container
    command -v musl-gcc >/dev/null || echo musl-tools
}

# Makes a virtual environment below a folder, if it is not there, for a module that is not in Debian.
prepare() {
    versions=$1/requirements.txt
    environment=$1/.venv
    if cmp -s "$versions" "$environment/requirements.txt" &&
        "$environment/bin/python" -c "import $2" 2>/dev/null; then
        return
    fi
    /usr/bin/python3 -m venv --clear "$environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check --requirement "$versions"
    cp "$versions" "$environment/"
}

prepare_all() {
    prepare clients/modern thriftpy2
    [ "$extras" = --all ] || return 0
    prepare tests/console playwright
    if ! command -v cargo-deb >/dev/null; then
        cargo install --quiet --locked --version 3.8.0 cargo-deb
    fi
    if command -v rustup >/dev/null; then
        rustup --quiet target add "$(uname -m)-unknown-linux-musl"
    fi
}

if ! command -v cargo >/dev/null; then
    echo "There is no Rust here, and Debian's is too old: install 1.95 or newer with rustup." >&2
    exit 1
fi
packages=$(missing | tr '\n' ' ')
if [ -z "$packages" ]; then
    prepare_all
    echo "Nothing to install: the compilers, Python, Ruby and their libraries are here."
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "There is no apt-get here. Please install by other means: $packages" >&2
    exit 1
fi

as_root=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "There is no sudo here. Please run as root: apt-get install $packages" >&2
        exit 1
    fi
    as_root=sudo
fi
echo "Installing with apt-get: $packages"
$as_root apt-get update
$as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install --yes --no-install-recommends $packages

packages=$(missing | tr '\n' ' ')
if [ -n "$packages" ]; then
    echo "Still missing after the installation: $packages" >&2
    exit 1
fi
prepare_all
echo "Done."
