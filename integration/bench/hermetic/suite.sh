#!/bin/bash
# Measures what a sandbox for each test costs. Runs a binary of 500 empty tests under nextest, which starts a process
# for each test, and under husk, with and without a network namespace. Each runs once in every round, and root also runs
# each as a user. The times are those that the runners report for the tests, so their own start-up does not count.
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

# A user may not see the checkout or the toolchain, so everything is in one directory, and neither runner starts cargo.
mkdir "$work/src" "$work/bin" "$work/home" "$work/results"
cp "$(command -v cargo-nextest)" "$work/bin/cargo-nextest"
cp "$husk" "$work/bin/husk"
cd "$work"
printf '[package]\nname = "suite"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n' >Cargo.toml
for ((test = 0; test < tests; test++)); do echo "#[test] fn test_$test() {}"; done >src/lib.rs
cargo test --quiet --offline --no-run
binary=$(ls target/debug/deps/suite-* | grep -v '\.d$')
cargo metadata --offline --format-version 1 >metadata
cargo nextest list --offline --list-type binaries-only --message-format json >binaries 2>/dev/null
chmod 755 . bin/*

users=(caller)
if [ "$(id -u)" = 0 ]; then
    users=(root nobody)
    mkdir -p target/nextest
    chown 65534:65534 home target/nextest
fi
as() { # USER COMMAND...
    if [ "$1" = nobody ]; then
        set -- nobody setpriv --reuid 65534 --regid 65534 --clear-groups env -i HOME="$work/home" PATH=/usr/bin:/bin \
            TERM="${TERM:-dumb}" "${@:2}"
    fi
    "${@:2}"
}

run_nextest() { # USER
    as "$1" bin/cargo-nextest nextest run --cargo-metadata metadata --binaries-metadata binaries --no-input-handler \
        --status-level none --final-status-level none 2>&1 |
        sed -n 's/.*Summary \[ *\([0-9.]*\)s\].*500 passed.*/\1/p'
}
run_husk() { # USER NETWORK
    as "$1" bin/husk test --net "$2" --runner -- "$binary" -q | sed -n 's/.*500 passed.*finished in \([0-9.]*\)s/\1/p'
}
for ((round = 0; round < rounds; round++)); do
    for user in "${users[@]}"; do
        run_nextest "$user" >>"results/$user-nextest"
        run_husk "$user" loopback >>"results/$user-husk"
        run_husk "$user" host >>"results/$user-husk-net-host"
    done
done

echo "$tests tests, $rounds rounds; $(uname -sr), $(nproc) processors"
printf '%-8s %-14s %10s %10s %10s %22s\n' '' '' 'least, s' 'median, s' 'nextest' 'more for each test, ms'
for user in "${users[@]}"; do
    for name in nextest husk husk-net-host; do
        sort -g "results/$user-$name" | awk -v user="$user" -v name="$name" -v tests=$tests \
            -v nextest="$(sort -g "results/$user-nextest" | sed -n "$(((rounds + 1) / 2))p")" '{ time[NR] = $1 } END {
                median = time[int((NR + 1) / 2)]
                printf "%-8s %-14s %10s %10s %10.2f %22.2f\n", user, name, time[1], median, median / nextest,
                    (median - nextest) * 1000 / tests }'
    done
done
