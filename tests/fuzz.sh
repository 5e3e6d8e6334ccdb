#!/bin/sh
# Runs each fuzz target, or those that are named, for a minute or for SECONDS.
#
#     fuzz.sh [SECONDS [TARGET...]]
set -eu
cd "$(dirname "$0")/../fuzz"
seconds=${1:-60}
[ $# = 0 ] || shift
[ $# -gt 0 ] || set -- $(basename -s .rs fuzz_targets/*.rs)

if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    echo "skipped: fuzzing needs a nightly toolchain and cargo-fuzz (cargo install cargo-fuzz)"
    exit 0
fi
# The targets that read files create them here.
mkdir -p target/tmp
TMPDIR=$PWD/target/tmp
# A child that shares its parent's memory can end while it holds a sanitizer lock. A leak check would wait for the lock.
ASAN_OPTIONS=detect_leaks=0
export TMPDIR ASAN_OPTIONS
trap 'rm -r target/tmp' EXIT
for target; do
    # New inputs stay out of the tree. A crash is written to artifacts/ and ends the script.
    mkdir -p "target/corpus/$target"
    set -- "target/corpus/$target"
    [ ! -d "corpus/$target" ] || set -- "$@" "corpus/$target"
    cargo +nightly fuzz run "$target" "$@" -- \
        -max_total_time="$seconds" -max_len=16384 -rss_limit_mb=4096 >"target/$target.log" 2>&1 ||
        { tail -n 60 "target/$target.log"; exit 1; }
    echo "fuzz $target ... ok, $(sed -n 's/^Done \([0-9]*\) runs.*/\1 runs/p' "target/$target.log")"
done
