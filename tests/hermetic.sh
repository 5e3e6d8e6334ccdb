#!/bin/sh
# Runs husk's own tests under $runner, a command line of 'husk test --runner'. Only crates whose tests need nothing of
# the machine take part, because a sandbox hides the machine.
set -eu
cd "$(dirname "$0")/.."

host=$(rustc -vV | sed -n 's/^host: //p')
variable="CARGO_TARGET_$(echo "$host" | tr 'a-z-' 'A-Z_')_RUNNER"
for package in husk-bundle husk-plan husk-listing husk-hermetic; do
    env "$variable=$(pwd)/$runner" cargo test --quiet --package "$package" --lib --tests
done
