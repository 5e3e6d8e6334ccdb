#!/bin/sh
# Makes and removes many containers and compares what there was with what is left, sends many bytes through a
# terminal, and starts many containers on volumes that change meanwhile, in four tests:
# run.sh CYCLES WIDTH EXECS BYTES STARTS. RUNTIME_UNDER_TEST names another runtime to be looked at.
set -eu
cd "$(dirname "$0")/../.."
bytes=$4 starts=$5

cargo build --quiet --release --bin husk --examples
cargo run --quiet --release --example soak -- "$1" "$2" "$3"
TERMINAL_BYTES=$bytes cargo test --quiet --release --test tests terminal::bytes:: -- --nocapture --test-threads 1
HOSTILE_STARTS=$((starts / 4)) cargo test --quiet --release --test tests hostile::races:: -- --nocapture --test-threads 1
