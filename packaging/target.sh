#!/bin/sh
# Prints the target to build husk for: with musl, because husk then starts faster (docs/decisions/056-musl.md), if this
# compiler has a standard library for it. Otherwise with the C library of this machine.
#
#     packaging/target.sh [ARCH]          for another architecture
#     packaging/target.sh --add [ARCH]    tries to install the standard library first, with rustup
set -eu
add=
if [ "${1-}" = --add ]; then
    add=yes
    shift
fi
if [ -n "${CARGO_BUILD_TARGET-}" ]; then
    echo "$CARGO_BUILD_TARGET"
    exit
fi
host=$(rustc -vV | sed -n 's/^host: //p')
arch=${1:-${host%%-*}}

has() {
    set -- "$(rustc --print target-libdir --target "$arch-unknown-linux-musl")"/libstd-*.rlib
    # rustc links with this linker, which compilers of distributions may lack.
    [ -e "$1" ] && [ -x "$(rustc --print sysroot)/lib/rustlib/$host/bin/rust-lld" ]
}
if [ -n "$add" ] && ! has && command -v rustup >/dev/null; then
    timeout 300 rustup --quiet target add "$arch-unknown-linux-musl" >/dev/null 2>&1 || true
fi
case $arch in
"${host%%-*}") other=$host ;;
*) other=$arch-unknown-linux-gnu ;;
esac
if has; then echo "$arch-unknown-linux-musl"; else echo "$other"; fi
