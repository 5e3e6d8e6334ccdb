#!/bin/sh
# Soak tests: run.sh CYCLES WIDTH EXECS LIVE BYTES TERMINALS STARTS
#
# - makes and removes many containers, one after another and many alive at once, and reports what they leave behind
# - sends many bytes through one terminal, and through many at once
# - starts STARTS containers on volumes that change meanwhile, in four tests
# - starts as many beside a neighbour on the host that looks for the runtime's memory
# - makes each verb fail, kills it and stops it, at each of its system calls
#
# RUNTIME_UNDER_TEST names another runtime to test.
set -eu
cd "$(dirname "$0")/../.."
live=$4 bytes=$5 terminals=$6 starts=$7

target=$(packaging/target.sh)
cargo build --quiet --release --target "$target" --bin husk --examples
# The duration depends on the arguments, so the tests have no time limit.
export HUSK_TEST_LIMIT=0
cargo run --quiet --release --target "$target" --example soak -- "$1" "$2" "$3" "$live"
TERMINAL_BYTES=$bytes TERMINALS=$terminals cargo test --quiet --release --target "$target" --test tests terminal::bytes:: -- --nocapture --test-threads 1
HOSTILE_STARTS=$((starts / 4)) cargo test --quiet --release --target "$target" --test tests hostile::races:: -- --nocapture --test-threads 1
# The test starts nine kinds of processes, beside each of two neighbours.
SCANS=$((starts / 18)) cargo test --quiet --release --target "$target" --test tests hostile::outside::weaker_process_on_the_host_cannot_open -- --nocapture
# The skipped test waits for ten seconds at each call, so it runs separately and stops at some calls only.
HOSTILE_FAULTS=all cargo test --quiet --release --target "$target" --test tests -- hostile::faults:: hostile::concurrent:: --test-threads 1 \
    --skip delete_during_create_spares_the_successor
cargo test --quiet --release --target "$target" --test tests delete_during_create_spares_the_successor
