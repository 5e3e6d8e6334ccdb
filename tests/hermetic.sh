#!/bin/sh
# Runs tests of husk's own by 'husk test --runner', which $runner is: those that need nothing of the machine, for they
# are to pass without it.
set -eu
cd "$(dirname "$0")/.."

host=$(rustc -vV | sed -n 's/^host: //p')
variable="CARGO_TARGET_$(echo "$host" | tr 'a-z-' 'A-Z_')_RUNNER"
for package in husk-bundle husk-plan husk-listing husk-hermetic; do
    env "$variable=$(pwd)/$runner" cargo test --quiet --package "$package" --lib --tests
done
