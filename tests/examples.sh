#!/bin/sh
# Runs every example, because readers copy them.
set -eu
cd "$(dirname "$0")/.."

target=$(packaging/target.sh)
run() {
    package=$1 example=$2
    shift 2
    if cargo run --quiet --target "$target" --package "$package" --example "$example" -- "$@" >/dev/null; then
        echo "example $package/$example ... ok"
    else
        echo "example $package/$example ... FAILED"
        exit 1
    fi
}

run husk container
for script in hello images shards cache services; do
    if examples/$script/run.sh >/dev/null; then
        echo "example $script/run.sh ... ok"
    else
        echo "example $script/run.sh ... FAILED"
        exit 1
    fi
done
run husk-spawn per_test_namespaces 2 true
run husk-spawn popen
run husk-spawn event_loop
run husk-spawn many_small 200 4
run husk-spawn restore_pids
