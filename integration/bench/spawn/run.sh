#!/bin/sh
# The spawn benchmark: measures how long husk-spawn, std, C and other libraries take to start a process.
#
#     run.sh            everything, in twenty minutes; results go to
#                       integration/bench/results
#     run.sh --smoke    a little of everything in a few seconds, to check that it works; results go to
#                       a new temporary directory
#     run.sh --pids     only the ways to choose pids, in about ten minutes: a spin through all pids is slow
#     run.sh --results DIR   results go to DIR
#
# Needs cargo and a C compiler ($CC, or cc) that can link statically. Works best on a quiet machine with
# 10 GiB of free memory; sizes that do not fit are skipped. Replaces results of the same day.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../../.." && pwd)
cc=${CC:-cc}
results=
smoke=
only_pids=

while [ $# -gt 0 ]; do
    case $1 in
    --smoke) smoke=--smoke ;;
    --pids) only_pids=yes ;;
    --results)
        results=${2:?--results needs a directory}
        shift
        ;;
    *)
        echo "usage: run.sh [--smoke] [--pids] [--results DIR]" >&2
        exit 2
        ;;
    esac
    shift
done
if [ -z "$results" ]; then
    if [ -n "$smoke" ]; then
        results=$(mktemp -d)
    else
        results=$root/integration/bench/results
    fi
fi
mkdir -p -- "$results"
results=$(CDPATH='' cd -- "$results" && pwd)

commit=$(git -C "$root" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
if [ -n "$(git -C "$root" status --porcelain --untracked-files=no 2>/dev/null)" ]; then
    commit="$commit with changes"
fi

# Cargo reads its configuration from the working directory.
cd -- "$root"
build=${CARGO_TARGET_DIR:-target}/bench-spawn
mkdir -p -- "$build"

echo "building the contenders in C" >&2
"$cc" -O2 -Wall -Wextra -static -pthread -o "$build/competitors" "$here/competitors.c"
"$cc" -O2 -Wall -Wextra -static -o "$build/pids" "$here/pids.c"
"$cc" -O2 -Wall -Wextra -nostdlib -static -o "$build/tiny" "$here/tiny.c"
echo "building the contenders in Rust" >&2
cargo build --release --package husk-bench-spawn
bench=$(find "${CARGO_TARGET_DIR:-target}" -maxdepth 3 -type f -name husk-bench-spawn -path '*/release/*' | head -n 1)

# Pids can be chosen without root in a namespace of one's own, so root becomes another user.
date=$(date -u +%Y-%m-%d)
public=$(mktemp -d)
trap 'rm -rf -- "$public"' EXIT
chmod 755 "$public"
cp -- "$bench" "$build/pids" "$build/tiny" "$public"
unprivileged() {
    if [ "$(id -u)" = 0 ]; then setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; else "$@"; fi
}
echo "measuring the ways to choose pids" >&2
{
    echo "# date: $date"
    echo "# commit: $commit"
    echo "# load before: $(cut -d ' ' -f 1-3 /proc/loadavg)"
    # shellcheck disable=SC2086 # Empty, or one word.
    unprivileged "$public/husk-bench-spawn" pids measure "$public/pids" "$public/tiny" $smoke
} >"$results/spawn-pids-$date.csv"
"$bench" pids report "$results/spawn-pids-$date.csv"
[ -z "$only_pids" ] || exit 0

# Other libraries are not dependencies of this tree, so their program is a workspace of its own.
CARGO_TARGET_DIR="$build/peers" cargo build --quiet --release --locked --manifest-path "$here/peers/Cargo.toml"
peers=$(find "$build/peers" -type f -name husk-bench-peers -path '*/release/*' | head -n 1)

echo "measuring; results go to $results" >&2
{
    echo "# husk-spawn and other libraries"
    echo
    echo "$date, Linux $(uname -r), $(nproc) CPUs, load $(cut -d ' ' -f 1-3 /proc/loadavg), commit $commit."
    echo "The versions of the libraries are in integration/bench/spawn/peers/Cargo.lock."
    for mib in 0 1024; do
        echo
        if [ -n "$smoke" ]; then "$peers" "$build/tiny" $((mib / 64)) 1 3; else "$peers" "$build/tiny" "$mib" 15 100; fi
    done
} >"$results/spawn-peers-$date.md"
cargo run --quiet --release --package husk-bench-spawn -- measure \
    --competitors "$build/competitors" --tiny "$build/tiny" \
    --results "$results" --date "$date" \
    --fact "commit=$commit" --fact "Rust=$(rustc --version)" $smoke
