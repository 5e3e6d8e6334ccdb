#!/bin/bash
# Measures checkpoint and restore by husk and runc, in turns, with the same CRIU. The containers have 1 to 256 processes,
# or 1 GiB of memory, and 20 are restored at once. The pauses of a container that writes 100 MB/s are measured with and
# without copies of its memory ahead of time. Writes tables, a plot and every single time to integration/bench/results.
#
#     run.sh            20 rounds, or ROUNDS; about ten minutes
#     run.sh --smoke    1 round, to check that it works; the report is only printed
#     run.sh --pauses   only the pauses; the report is only printed. A kernel that tracks which pages are written, as
#                       Debian's does, is in the guest (integration/guest), which has no tools to build with: set
#                       HUSK and WORKLOAD, the program of workload.c. RATE and MEMORY are what the container writes
#                       (100 MB/s) and has (512 MiB); an emulated machine does not write so fast
#
# HUSK, RUNC and CRIU name other binaries. Without runc only husk is measured. Without HUSK, husk is built. Needs root, a
# CRIU that works with this kernel, a C compiler ($CC, or cc), jq, util-linux and 4 GiB of memory.
#
# Everything happens in a mount and a process namespace of its own. There, /run is a tmpfs that holds the images and root
# file systems, and a private mount of cgroup version 2 covers the machine's cgroups.
set -eu
shopt -s inherit_errexit

here=$(readlink -f "$(dirname "$0")")
root=$(readlink -f "$here/../../..")
export BENCH_DAY=${BENCH_DAY-$(date -u +%Y-%m-%d)}
results=$root/integration/bench/results/restore-$BENCH_DAY
smoke=
memory=${MEMORY:-512}
rate=${RATE:-100}
pauses=
case ${1-} in
--smoke) smoke=yes ;;
--pauses) pauses=yes ;;
esac
rounds=${ROUNDS:-$([ -n "$smoke" ] && echo 1 || echo 20)}

# --- Outside the namespaces: build, and run this script again inside. -----------------------------------------------

if [ -z "${BENCH_WORK-}" ]; then
    [ "$(id -u)" = 0 ] || { echo "restore: needs root" >&2; exit 1; }
    for tool in ${WORKLOAD-"${CC:-cc}"} "${CRIU:-criu}" jq unshare; do
        command -v "$tool" >/dev/null || { echo "restore: needs $tool" >&2; exit 1; }
    done
    if [ -z "${HUSK-}" ]; then
        target=$("$root/packaging/target.sh")
        (cd "$root" && cargo build --quiet --release --target "$target" --bin husk) >&2
        HUSK=${CARGO_TARGET_DIR:-$root/target}/$target/release/husk
    fi
    BENCH_WORK=$(mktemp -d /var/tmp/husk-XXXXXX)
    export HUSK BENCH_WORK
    inside=
    leave() {
        trap - EXIT
        [ -z "$inside" ] || { kill -KILL "$inside" && wait "$inside"; } 2>/dev/null || true
        unshare --mount bash -c 'mount -t cgroup2 cgroup2 "$0" && rmdir "$0"/husk-bench-restore/* "$0/husk-bench-restore"' "$BENCH_WORK" 2>/dev/null || true
        rm -rf --one-file-system "$BENCH_WORK"
    }
    trap leave EXIT
    trap 'exit 1' INT TERM
    if [ -n "${WORKLOAD-}" ]; then
        cp "$WORKLOAD" "$BENCH_WORK/workload"
    else
        "${CC:-cc}" -O2 -Wall -Wextra -static -o "$BENCH_WORK/workload" "$here/workload.c"
    fi
    # This shell waits for a job and not for a command, so that a signal ends it at once.
    unshare --mount --pid --fork --kill-child --mount-proc bash "$here/run.sh" "$@" &
    inside=$!
    wait "$inside" || { inside=; exit 1; }
    inside=
    if [ -z "$smoke$pauses" ]; then
        for kind in md csv svg; do cp "$BENCH_WORK/report.$kind" "$results.$kind"; done
    fi
    exit
fi

# --- Inside the namespaces. -----------------------------------------------------------------------------------------

trap 'exit 1' INT TERM
load_before=$(cut -d " " -f 1-3 /proc/loadavg)
declare -A binary=([husk]=$(readlink -f "$HUSK"))
runtimes=(husk)
if found=$(command -v "${RUNC:-runc}"); then
    binary[runc]=$(readlink -f "$found")
    runtimes+=(runc)
fi
# Both find CRIU by its name.
criu=$(readlink -f "$(command -v "${CRIU:-criu}")")
PATH=$(dirname "$criu"):$PATH

mount --make-rprivate /
mount -t tmpfs -o mode=755,size=12g tmpfs /run
umount --recursive --lazy /sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 cgroup2 /sys/fs/cgroup
work=/run/bench
rootfs=$work/rootfs
mkdir -p $work/images $rootfs/{dev,proc,sys}
cp "$BENCH_WORK/workload" $rootfs
mkfifo $rootfs/ready
"${binary[husk]}" spec --file template.json --bundle $work
times=$BENCH_WORK/report.csv
errors=$BENCH_WORK/errors
echo 'what,who,round,microseconds' >"$times"

fail() {
    echo "restore: $* failed:" >&2
    tail -n 30 "$errors" >&2
    exit 1
}

bundle() { # PROCESSES MIB MB_PER_SECOND
    jq --arg rootfs "$rootfs" --args '.process.args = ["/workload"] + $ARGS.positional | .process.terminal = false
        | .root = {path: $rootfs} | .linux.resources = {}' "$@" <$work/template.json >$work/config.json
}

# Runs a verb of a runtime. The streams of a container are all /dev/null.
perform() { # WHO VERB...
    local who=$1
    shift
    "${binary[$who]}" --root "$work/state-$who" "$@" </dev/null >/dev/null 2>"$errors" || fail "$who" "$@"
}

# The same, and records how long it took.
measure() { # WHAT ROUND WHO VERB...
    local what=$1 round=$2 begun=$EPOCHREALTIME ended
    shift 2
    perform "$@"
    ended=$EPOCHREALTIME
    echo "$what,$1,$round,$((${ended/./} - ${begun/./}))" >>"$times"
}

# Starts a container and waits until its memory is filled.
start() { # WHO
    # One descriptor reads and writes, so that opening it does not wait.
    exec 9<>$rootfs/ready
    # CRIU does not save streams that are files outside of the container.
    "${binary[$1]}" --root "$work/state-$1" run --bundle $work --detach bench </dev/null >/dev/null 2>&1 || fail "$1" run
    read -r -u 9
    exec 9<&-
}

# The runtimes, another one first in each round.
turns() { # ROUND
    if [ $(($1 % 2)) = 0 ]; then echo "${runtimes[@]}"; else printf '%s\n' "${runtimes[@]}" | tac; fi
}

# A container is saved and continued in every round. Each time, the images of the last save are used.
scale() { # ROUNDS PROCESSES MIB
    local round who what="$2 $3"
    bundle "$2" "$3" 0
    for who in "${runtimes[@]}"; do
        start "$who"
        perform "$who" checkpoint --image-path "$work/images/$who" bench
    done
    for ((round = 0; round < $1; round++)); do
        for who in $(turns "$round"); do
            measure "restore $what" "$round" "$who" restore --bundle $work --image-path "$work/images/$who" --detach bench
            rm -rf "$work/images/$who"
            measure "checkpoint $what" "$round" "$who" checkpoint --image-path "$work/images/$who" bench
        done
    done
    rm -rf $work/images/*
}

# Restores the same images to 20 containers at once.
at_once() { # ROUNDS
    local round who index begun ended jobs
    bundle 1 1 0
    for who in "${runtimes[@]}"; do
        start "$who"
        perform "$who" checkpoint --image-path "$work/images/$who" bench
    done
    for ((round = 0; round < $1; round++)); do
        for who in $(turns "$round"); do
            jobs=()
            begun=$EPOCHREALTIME
            for index in {1..20}; do
                perform "$who" restore --bundle $work --image-path "$work/images/$who" --work-path "$work/images/log-$index" \
                    --detach "bench-$index" &
                jobs+=($!)
            done
            for index in "${jobs[@]}"; do wait "$index" || exit 1; done
            ended=$EPOCHREALTIME
            echo "at-once 20,$who,$round,$((${ended/./} - ${begun/./}))" >>"$times"
            for index in {1..20}; do perform "$who" delete --force "bench-$index"; done
        done
    done
    rm -rf $work/images/*
}

# Saves and continues a container that writes 100 MB/s, after so many copies ahead of time, and adds up its pauses.
ahead() { # ROUND WHO COPIES
    local round=$1 who=$2 index begun last parent=()
    rm -f $rootfs/pauses
    start "$who"
    begun=$EPOCHREALTIME
    for ((index = 1; index <= $3; index++)); do
        perform "$who" checkpoint --pre-dump "${parent[@]}" --image-path "$work/images/$index" bench
        parent=(--parent-path "../$index")
    done
    last=$EPOCHREALTIME
    perform "$who" checkpoint "${parent[@]}" --image-path "$work/images/last" bench
    perform "$who" restore --bundle $work --image-path "$work/images/last" --detach bench
    # The container writes a line once it continues.
    until awk -v last="${last/./}" '$2 > last { found = 1 } END { exit !found }' $rootfs/pauses 2>/dev/null; do sleep 0.05; done
    awk -v begun="${begun/./}" -v last="${last/./}" -v what="$3,$who,$round" '
        $2 > begun { sum += $2 - $1 } $2 > last && !final { final = $2 - $1 }
        END { print "pause-all " what "," sum; print "pause-last " what "," final }' $rootfs/pauses >>"$times"
    du -sk $work/images/last | awk -v what="$3,$who,$round" '{ print "image-kib " what "," $1 }' >>"$times"
    perform "$who" delete --force bench
    rm -rf $work/images/*
}

fewer() { if [ "$rounds" -gt "$1" ]; then echo "$1"; else echo "$rounds"; fi; }

if [ -z "$pauses" ]; then
    for processes in 1 2 4 8; do scale "$rounds" $processes 1; done
    scale "$(fewer 10)" 64 1
    scale "$(fewer 5)" 256 1
    scale "$(fewer 5)" 1 1024
    at_once "$(fewer 5)"
fi
bundle 1 "$memory" "$rate"
numbers=(0 1 3)
notes=
if ! "$criu" check --feature mem_dirty_track >/dev/null 2>&1; then
    numbers=(0)
    notes='- This kernel does not track which pages are written (CONFIG_MEM_SOFT_DIRTY), so memory cannot be copied ahead of time.'
fi
for ((round = 0; round < $(fewer 5); round++)); do
    for copies in "${numbers[@]}"; do
        for who in $(turns "$round"); do ahead "$round" "$who" $copies; done
    done
done

facts() {
    local who
    echo "# Checkpoint and restore, $BENCH_DAY"
    echo
    echo "- commit: $(git -C "$root" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)$([ -z "$(git -C "$root" status --porcelain --untracked-files=no 2>/dev/null)" ] || echo ' with changes')"
    echo "- machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) processors"
    echo "- kernel: $(uname -r)"
    echo "- load: $load_before before, $(cut -d ' ' -f 1-3 /proc/loadavg) after"
    for who in "${runtimes[@]}"; do echo "- $who: $("${binary[$who]}" --version | head -n 1)"; done
    echo "- CRIU: $("$criu" --version | sed -n 's/^Version: //p')"
    echo "- $rounds rounds; at most 10 with 64 processes, and 5 with 256, with 1 GiB, at once, and of pauses"
    [ -z "$notes" ] || echo "$notes"
}
{
    facts
    awk -v memory="$memory" -v rate="$rate" -f "$here/report.awk" "$times"
    printf '\n![Medians as bars](restore-%s.svg)\n' "$BENCH_DAY"
} | tee "$BENCH_WORK/report.md"
awk -v plot="Checkpoint and restore, $BENCH_DAY, Linux $(uname -r)" -f "$here/report.awk" "$times" >"$BENCH_WORK/report.svg"
