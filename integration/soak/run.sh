#!/bin/sh
# Makes and removes many containers, some one after the other and some alive together, and compares what there was with
# what is left, sends many bytes through a terminal and through many at once, and starts many containers on volumes that
# change meanwhile, in four tests, and as many beside a neighbour on the host that looks for the runtime's memory; at last each verb fails, is killed and is stopped at each of its system calls:
# run.sh CYCLES WIDTH EXECS LIVE BYTES TERMINALS STARTS. RUNTIME_UNDER_TEST names another runtime to be looked at.
set -eu
cd "$(dirname "$0")/../.."
live=$4 bytes=$5 terminals=$6 starts=$7

cargo build --quiet --release --bin husk --examples
# As many as are asked for take as long as they take.
export HUSK_TEST_LIMIT=0
cargo run --quiet --release --example soak -- "$1" "$2" "$3" "$live"
TERMINAL_BYTES=$bytes TERMINALS=$terminals cargo test --quiet --release --test tests terminal::bytes:: -- --nocapture --test-threads 1
HOSTILE_STARTS=$((starts / 4)) cargo test --quiet --release --test tests hostile::races:: -- --nocapture --test-threads 1
# Nine kinds of starts beside two neighbours.
PROWLED=$((starts / 18)) cargo test --quiet --release --test tests hostile::outside::a_neighbour -- --nocapture
# Where it waits for ten seconds at each call, it is stopped at some.
HOSTILE_FAULTS=all cargo test --quiet --release --test tests -- hostile::faults:: hostile::meanwhile:: --test-threads 1 \
    --skip one_that_is_deleted_while_it_is_created
cargo test --quiet --release --test tests one_that_is_deleted_while_it_is_created
