#!/bin/bash
# Measures where the time of `husk run` goes: records every system call of the runtime and its child with perf. Writes a
# table and a plot of the medians to integration/bench/results.
#
#     where.sh          200 rounds, or ROUNDS
#
# HUSK names another binary; otherwise husk is built. Needs root, perf (Debian: linux-perf) and jq. As in run.sh, /run is
# a private tmpfs, and a private mount of cgroup version 2 covers the machine's cgroups.
set -eu
shopt -s inherit_errexit

here=$(readlink -f "$(dirname "$0")")
root=$(readlink -f "$here/../../..")
export BENCH_DAY=${BENCH_DAY-$(date -u +%Y-%m-%d)}
results=$root/integration/bench/results/where-$BENCH_DAY

if [ -z "${WHERE_WORK-}" ]; then
    if ! perf --version >/dev/null 2>&1; then
        echo "where: needs perf" >&2
        exit 1
    fi
    if [ -z "${HUSK-}" ]; then
        target=$("$root/packaging/target.sh")
        (cd "$root" && cargo build --quiet --release --target "$target" --bin husk)
        HUSK=${CARGO_TARGET_DIR:-$root/target}/$target/release/husk
    fi
    WHERE_WORK=$(mktemp -d)
    trap 'rm -rf "$WHERE_WORK"' EXIT
    export HUSK WHERE_WORK
    "${CC:-cc}" -O2 -Wall -Wextra -o "$WHERE_WORK/kernel" "$here/kernel.c"
    unshare --mount --propagation private "$0"
    cp "$WHERE_WORK/report.md" "$results.md"
    cp "$WHERE_WORK/report.svg" "$results.svg"
    echo "where: wrote $results.md and .svg" >&2
    exit
fi

mount -t tmpfs -o mode=755 tmpfs /run
umount --recursive --lazy /sys/fs/cgroup 2>/dev/null || true
mkdir -p /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup

bundle=/run/where
mkdir -p "$bundle/rootfs"
echo 'int main(void) { return 0; }' | "${CC:-cc}" -Os -static -x c -o "$bundle/rootfs/true" -
"$HUSK" spec --bundle "$bundle"
jq '.process.args = ["/true"] | .process.terminal = false' "$bundle/config.json" >"$bundle/new.json"
mv "$bundle/new.json" "$bundle/config.json"

rounds=${ROUNDS:-200}
for ((round = 0; round < rounds; round++)); do
    perf trace -T -o "$WHERE_WORK/calls" -- "$HUSK" run --bundle "$bundle" where
    sed "s/^/$round /" "$WHERE_WORK/calls" >>"$WHERE_WORK/all"
done

title="husk run, $BENCH_DAY, Linux $(uname -r)"
{
    echo "# Where the time of \`husk run\` goes, $BENCH_DAY"
    echo
    echo "- commit: $(git -C "$root" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)"
    echo "- machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) processors"
    echo "- kernel: $(uname -r)"
    echo "- $rounds rounds, load $(cut -d ' ' -f 1-3 /proc/loadavg)"
    echo
    awk -f "$here/where.awk" "$WHERE_WORK/all"
    printf '\nThe kernel alone, in microseconds, until the first call returns and until the end (kernel.c):\n\n'
    printf '| | begun | ended |\n| - | -: | -: |\n'
    "$WHERE_WORK/kernel" /sys/fs/cgroup
    echo
    echo "![Medians as bars](where-$BENCH_DAY.svg)"
} | tee "$WHERE_WORK/report.md"
awk -v plot="$title" -f "$here/where.awk" "$WHERE_WORK/all" >"$WHERE_WORK/report.svg"
