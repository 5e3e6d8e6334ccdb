#!/bin/sh
# What takes longer than anybody waits for: each fuzz target for a minute, or for as many seconds as are said.
set -eu
cd "$(dirname "$0")/../fuzz"
seconds=${1:-60}

if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    echo "skipped: fuzzing needs a nightly toolchain and cargo-fuzz (cargo install cargo-fuzz)"
    exit 0
fi
for target in fuzz_targets/*.rs; do
    target=$(basename "$target" .rs)
    # What is found is kept out of the tree; a crash is written to artifacts/ and ends this.
    mkdir -p "target/corpus/$target"
    cargo +nightly fuzz run "$target" "target/corpus/$target" "corpus/$target" -- \
        -max_total_time="$seconds" -max_len=16384 -rss_limit_mb=4096 -verbosity=0
    echo "fuzz $target ... ok"
done
