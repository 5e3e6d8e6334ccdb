#!/bin/sh
# Divides tests among three machines twice: evenly, and by the durations of the first run. Each time the reports are
# joined. The machines are processes here; 'husk test --job' prints the same for an engine with many machines.
set -eu
cd "$(dirname "$0")/../.."

target=$(packaging/target.sh)
cargo build --quiet --release --target "$target" --package husk --bin husk
husk=$PWD/target/$target/release/husk
cp -r examples/shards/t "${work:=$(mktemp -d)}"
trap 'rm -rf "$work"' EXIT
cd "$work"

shards() {
    for part in 1 2 3; do
        HUSK_TEST_SHARD=$part/3 HUSK_TEST_JSON=$work/$1-$part.json "$husk" test --tap --each -- t/*.t >"$1-$part.txt"
    done
    "$husk" test --merge --junit "$1.xml" --html "$1.html" --json "$1.json" "$1"-[123].json
}

echo "\$ husk test --shard PART/3 --json even-PART.json --tap --each -- t/*.t"
echo "\$ husk test --merge --junit even.xml --html even.html --json even.json even-*.json"
shards even
echo "\$ husk test --shard PART/3 --durations even.json --json divided-PART.json --tap --each -- t/*.t"
HUSK_TEST_DURATIONS=$work/even.json
export HUSK_TEST_DURATIONS
shards divided

echo "\$ husk test --merge divided-1.json divided-3.json      # a shard is missing"
if "$husk" test --merge divided-1.json divided-3.json >incomplete.txt; then
    echo "husk joined reports that are not complete" >&2
    exit 1
fi
