#!/bin/sh
# Makes and removes many containers and compares what there was with what is left, and sends many bytes through a
# terminal: run.sh CYCLES WIDTH EXECS BYTES. RUNTIME_UNDER_TEST names another runtime to be looked at.
set -eu
cd "$(dirname "$0")/../.."
bytes=$4

cargo build --quiet --release --bin husk --examples
cargo run --quiet --release --example soak -- "$1" "$2" "$3"
TERMINAL_BYTES=$bytes cargo test --quiet --release --test tests terminal::bytes:: -- --nocapture --test-threads 1
