#!/bin/sh
# Makes and removes many containers and compares what there was with what is left: run.sh CYCLES WIDTH EXECS.
# RUNTIME_UNDER_TEST names another runtime to be looked at.
set -eu
cd "$(dirname "$0")/../.."

cargo build --quiet --release --bin husk --example guest
exec cargo run --quiet --release --example soak -- "$@"
