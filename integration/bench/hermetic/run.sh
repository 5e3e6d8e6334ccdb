#!/bin/sh
# Measures husk's sandbox, those of bubblewrap and unshare with the same isolation, and a program without a sandbox.
# Each runs once in every round, so that other load on the machine affects all alike. If perf is installed, each runs once
# more under it: perf counts the processor time of all descendants, even of those that their parent does not wait for.
#
#   integration/bench/hermetic/run.sh [ROUNDS]
set -eu
cd "$(dirname "$0")/../../.."

rounds=${1:-300}
husk=$(realpath "${HUSK:-$(ls -t target/*/release/husk | head -n 1)}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for tool in hyperfine bwrap unshare; do
    command -v "$tool" >/dev/null || { echo "$tool is missing"; exit 1; }
done

# In this directory, the sandbox has to show only the root file system.
cd /
bwrap="bwrap --unshare-all --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --tmpfs /var/tmp --tmpfs /run --tmpfs $HOME
    --hostname localhost --die-with-parent --new-session --clearenv /bin/true"
measure() {
    hyperfine -N --style none --warmup 0 --runs 1 --export-json "$work/one" "$2" >/dev/null 2>&1
    sed -n 's/^ *"mean": \([0-9.e-]*\).*/\1/p' "$work/one" >>"$work/$1"
    if command -v perf >/dev/null; then
        # shellcheck disable=SC2086 # Split into words on purpose.
        perf stat -x , -o "$work/one" -e task-clock -- $2 && sed -n 's/^\([0-9.]*\),msec,.*/\1/p' "$work/one" >>"$work/$1.busy"
    fi
}
round=0
while [ "$round" -lt "$rounds" ]; do
    measure husk "$husk test -- /bin/true"
    measure husk-net-host "$husk test --net host -- /bin/true"
    # shellcheck disable=SC2086 # Split into words on purpose.
    measure bubblewrap "$(echo $bwrap)"
    measure unshare "unshare --user --map-root-user --mount --pid --fork --net --ipc --uts --cgroup --mount-proc /bin/true"
    measure nothing "/bin/true"
    round=$((round + 1))
done

echo "milliseconds over $rounds rounds; $(uname -sr), $(nproc) processors"
printf '%-16s %8s %8s %8s %20s\n' '' least median '9 of 10' 'processors, median'
for name in husk husk-net-host bubblewrap unshare nothing; do
    busy=$(sort -g "$work/$name.busy" 2>/dev/null | sed -n "$(((rounds + 1) / 2))p")
    sort -g "$work/$name" | awk -v name="$name" -v busy="${busy:--}" '{ n[NR] = $1 * 1000 } END {
        printf "%-16s %8.2f %8.2f %8.2f %20s\n", name, n[1], n[int((NR + 1) / 2)], n[int(NR * 0.9 + 0.5)], busy }'
done
