#!/bin/bash
# Measures what a sandbox for each test costs. Runs a binary of 500 empty tests under nextest, which starts a process
# for each test, and under husk, with and without a network namespace. Each runs once in every round. The times are
# those that the runners report for the tests, so their own start-up does not count.
#
#   integration/bench/hermetic/suite.sh [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/../../.."

rounds=${1:-10} tests=500
husk=$(realpath "${HUSK:-$(ls -t target/*/release/husk | head -n 1)}")
command -v cargo-nextest >/dev/null || PATH=$PWD/target/integration/hermetic/bin:$PATH
command -v cargo-nextest >/dev/null || { echo "cargo-nextest is missing: integration/hermetic/run.sh nextest gets it"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$work/src"
printf '[package]\nname = "suite"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n' >"$work/Cargo.toml"
for ((test = 0; test < tests; test++)); do echo "#[test] fn test_$test() {}"; done >"$work/src/lib.rs"
cd "$work"
cargo test --quiet --offline --no-run
binary=$(ls target/debug/deps/suite-* | grep -v '\.d$')

seconds_of_husk() { sed -n 's/.*500 passed.*finished in \([0-9.]*\)s/\1/p'; }
for ((round = 0; round < rounds; round++)); do
    cargo nextest run --offline --no-input-handler --status-level none --final-status-level none 2>&1 |
        sed -n 's/.*Summary \[ *\([0-9.]*\)s\].*500 passed.*/\1/p' >>nextest
    /usr/bin/env time -a -o processor -f '%e %U %S' "$husk" test --runner -- "$binary" -q | seconds_of_husk >>husk
    "$husk" test --net host --runner -- "$binary" -q | seconds_of_husk >>husk-net-host
done

echo "$tests tests, $rounds rounds; $(uname -sr), $(nproc) processors"
printf '%-16s %10s %10s %22s\n' '' 'least, s' 'median, s' 'more for each test, ms'
declare -A median
for name in nextest husk-net-host husk; do
    least=$(sort -g $name | head -n 1)
    median[$name]=$(sort -g $name | sed -n "$(((rounds + 1) / 2))p")
    more=$(awk -v a="${median[$name]}" -v b="${median[nextest]}" -v n=$tests 'BEGIN { printf "%.2f", (a - b) * 1000 / n }')
    printf '%-16s %10s %10s %22s\n' $name "$least" "${median[$name]}" "$more"
done
awk '{ printf "%.2f\n", ($2 + $3) / $1 }' processor | sort -g | sed -n "$(((rounds + 1) / 2))p" | sed 's/^/processors that husk kept busy: /'
