#!/bin/sh
# Measures how evenly 4 shards of 200 tests end: divided evenly, and by the durations of an earlier run. The tests sleep, so
# they need no processors of their own. The shards run one after the other, as if each had a machine.
#
#   shards.sh HUSK      the binary to measure
set -eu
husk=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir t

# The times are log-normal with a median of 60 ms, as those of many suites: most tests are short and some are very long.
awk 'BEGIN {
    srand(1)
    for (test = 1; test <= 200; test++) {
        normal = sqrt(-2 * log(1 - rand())) * cos(6.283185307 * rand())
        printf "%03d %.3f\n", test, 0.06 * exp(1.2 * normal)
    }
}' >times
while read -r test time; do
    printf '#!/bin/sh\nsleep %s\necho ok\necho 1..1\n' "$time" >"t/$test.t"
done <times
chmod +x t/*.t

measure() {
    rm -f ./*-report.json
    for part in 1 2 3 4; do
        "$husk" test --shard "$part/4" "$@" --json "$part-report.json" --tap --each -- t/*.t >/dev/null
    done
    "$husk" test --merge --json all.json ./*-report.json | grep -e '^shard' -e finished
}
awk '{ sum += $2; if ($2 > most) most = $2 } END { printf "200 tests, %.1f s together, longest %.2f s\n", sum, most }' times
for round in 1 2 3; do
    echo "round $round, even:"
    measure
    cp all.json durations.json
    echo "round $round, by durations:"
    measure --durations durations.json
done
