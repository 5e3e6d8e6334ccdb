#!/bin/bash
# Measures every verb of a container's life, and a sandbox, side by side: a floor in C (floor.c), husk, crun, runc and
# youki. In each round every competitor runs once, and another one begins. Writes a report with the medians, a plot and
# every single time to integration/bench/results.
#
#     run.sh            200 rounds, or ROUNDS; at most a quarter of an hour on a quiet machine
#     run.sh --smoke    2 rounds and fewer containers, to check that it works; the report is only printed
#
# HUSK, CRUN, RUNC, YOUKI and BWRAP name other binaries. A competitor that is missing, or that fails, is left out and
# the report says so. Without HUSK, husk is built. Needs root, a C compiler ($CC, or cc), jq and util-linux.
#
# Everything happens in a mount and a process namespace of its own: /run is a tmpfs, and a private mount of cgroup
# version 2 covers the machine's cgroups. The containers' cgroups are below one directory, which is removed at the end.
set -eu
shopt -s inherit_errexit

here=$(readlink -f "$(dirname "$0")")
root=$(readlink -f "$here/../../..")
export BENCH_DAY=${BENCH_DAY-$(date -u +%Y-%m-%d)}
results=$root/integration/bench/results/lifecycle-$BENCH_DAY
load_before=$(cut -d " " -f 1-3 /proc/loadavg)
smoke=
[ "${1-}" != --smoke ] || smoke=yes
rounds=${ROUNDS:-$([ -n "$smoke" ] && echo 2 || echo 200)}
alive=$([ -n "$smoke" ] && echo 100 || echo 1000)

# --- Outside the namespaces: build, run this script again inside, and remove the cgroups. --------------------------

remove_cgroups() { # NAME
    local directory attempt
    # A machine need not mount version 2 where it can be seen.
    if ! mountpoint -q /sys/fs/cgroup || [ "$(stat --file-system --format %T /sys/fs/cgroup)" != cgroup2fs ]; then
        mkdir "$BENCH_WORK/cgroup"
        mount -t cgroup2 cgroup2 "$BENCH_WORK/cgroup"
    fi
    for directory in "$BENCH_WORK/cgroup/$1" /sys/fs/cgroup/"$1" /sys/fs/cgroup/*/"$1"; do
        [ -d "$directory" ] || continue
        # The kernel ends the processes of a namespace, and their cgroups become empty, in its own time.
        for ((attempt = 0; attempt < 50; attempt++)); do
            ! find "$directory" -depth -type d -exec rmdir {} + 2>/dev/null || continue 2
            sleep 0.1
        done
        echo "lifecycle: $directory could not be removed" >&2
    done
}

if [ "${1-}" = --remove-cgroups ]; then
    remove_cgroups "$2"
    exit
fi

build() { # NAME OPTION...
    local name=$1
    shift
    "${CC:-cc}" -O2 -Wall -Wextra "$@" -o "$BENCH_WORK/$name"
}

leave() {
    trap - EXIT
    # The processes inside end with the namespace.
    [ -z "$inside" ] || { kill -KILL "$inside" && wait "$inside"; } 2>/dev/null || true
    unshare --mount bash "$here/run.sh" --remove-cgroups "$BENCH_CGROUP" || true
    rm -rf --one-file-system "$BENCH_WORK"
}

if [ -z "${BENCH_WORK-}" ]; then
    [ "$(id -u)" = 0 ] || { echo "lifecycle: needs root" >&2; exit 1; }
    for tool in "${CC:-cc}" jq unshare setpriv; do
        command -v "$tool" >/dev/null || { echo "lifecycle: needs $tool" >&2; exit 1; }
    done
    if [ -z "${HUSK-}" ]; then
        target=$("$root/packaging/target.sh")
        (cd "$root" && cargo build --quiet --release --target "$target" --bin husk) >&2
        HUSK=${CARGO_TARGET_DIR:-$root/target}/$target/release/husk
    fi
    command -v "$HUSK" >/dev/null || { echo "lifecycle: $HUSK is not a program" >&2; exit 1; }
    BENCH_WORK=$(mktemp -d /var/tmp/husk-XXXXXX)
    BENCH_CGROUP=husk-bench-$$
    export HUSK BENCH_WORK BENCH_CGROUP
    inside=
    trap leave EXIT
    trap 'exit 1' INT TERM
    build true -nostdlib -static "$here/../spawn/tiny.c"
    build park -static -x c - <<<'#include <unistd.h>
int main(void) { for (;;) pause(); }'
    build floor -static "$here/floor.c"
    build drive -static "$here/drive.c"
    build memlock.so -shared -fPIC "$here/memlock.c"
    # This shell waits for a job and not for a command, so that a signal ends it at once.
    unshare --mount --pid --fork --kill-child --mount-proc bash "$here/run.sh" "$@" &
    inside=$!
    wait "$inside" || { inside=; exit 1; }
    inside=
    if [ -z "$smoke" ]; then
        for kind in md csv svg; do cp "$BENCH_WORK/report.$kind" "$results.$kind"; done
    fi
    exit
fi

# --- Inside the namespaces. -----------------------------------------------------------------------------------------

trap 'exit 1' INT TERM
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /run
work=/run/lifecycle
user=65534
mkdir -p $work/{bin,bundles,roots,home,user/roots} $work/rootfs/{dev,proc,sys}
cp "$BENCH_WORK"/{drive,floor,memlock.so} $work/bin
cp "$BENCH_WORK"/{true,park} $work/rootfs
# A runtime without root creates no mount points in somebody else's directory.
cp -r $work/rootfs $work/user/rootfs
chown -R $user:$user $work/user $work/home
times=$BENCH_WORK/report.csv
notes=$BENCH_WORK/notes
errors=$BENCH_WORK/errors
echo 'section,what,who,round,nanoseconds,resident KiB' >"$times"
: >"$notes"

declare -A binary
for who in husk crun runc youki bwrap; do
    name=${who^^}
    if found=$(command -v "${!name:-$who}"); then
        binary[$who]=$(readlink -f "$found")
    else
        echo "$who is not installed." >>"$notes"
    fi
done
runtimes=()
for who in husk crun runc youki; do [ -z "${binary[$who]-}" ] || runtimes+=("$who"); done
floors=(floor floor-remap floor-reexec floor-seal floor-devices floor-all)
preload=
if ! (ulimit -l unlimited) 2>/dev/null; then
    preload=$work/bin/memlock.so
    echo 'Root may not raise the limit of locked memory here, which crun does. A preloaded library (memlock.c) makes this seem to succeed for programs that are linked dynamically.' >>"$notes"
else
    ulimit -l unlimited
fi

# Makes a bundle with a cgroup of its name, from a configuration and a change to it in jq's language.
bundle() { # NAME CONFIGURATION FILTER
    mkdir -p "$work/bundles/$1"
    jq --arg cgroup "/$parent/$1" --arg rootfs "$rootfs" '.linux.cgroupsPath = $cgroup | .root.path = $rootfs | '"$3" "$work/$2" >"$work/bundles/$1/config.json"
}

emit() {
    local IFS=$'\t'
    echo "$*"
}

# Sets `command` to the words of a command.
command_of() { # WHO VERB...
    local who=$1 options=()
    shift
    case $who in
    floor-remap) options=(--remap) ;;
    floor-reexec) options=(--reexec) ;;
    floor-seal) options=(--seal) ;;
    floor-devices) options=(--devices) ;;
    floor-all) options=(--remap --devices) ;;
    esac
    case $who in
    # The floor has the arguments of `run --bundle BUNDLE ID`.
    floor*) command=("$work/bin/floor" "${options[@]}" "$roots/floor" "$3" "$rootfs" "$parent" "$4") ;;
    *) command=("${binary[$who]}" --root "$roots/$who" "$@") ;;
    esac
}

line() { # KIND WHAT WHO VERB...
    local kind=$1 what=$2 who=$3
    shift 3
    command_of "$who" "$@"
    emit "$kind" "$what" "$who" "${command[@]}"
}
unmeasured() { # WHO VERB...
    command_of "$@"
    emit unmeasured "${command[@]}"
}

# Prints the names, beginning with another one in each round.
in_turn() { # ROUND NAME...
    local round=$1 i
    shift
    for ((i = 0; i < $#; i++)); do echo "${@:$(((round + i) % $# + 1)):1}"; done
}

# Prints the lines that a function prints for each competitor, in every round.
in_rounds() { # ROUNDS FUNCTION NAME...
    local count=$1 function=$2 round who
    shift 2
    for ((round = 1; round <= count; round++)); do
        emit round "$round"
        for who in $(in_turn "$round" "$@"); do "$function" "$who"; done
    done
}

drive() ( # SECTION <SCRIPT
    as=()
    if [ -n "$rootless" ]; then
        echo 0 >"/sys/fs/cgroup/$parent/driver/cgroup.procs"
        as=(setpriv --reuid="$user" --regid="$user" --clear-groups)
    fi
    exec env -i PATH="$PATH" HOME=$work/home XDG_RUNTIME_DIR="$roots" ${preload:+LD_PRELOAD="$preload"} "${as[@]}" \
        $work/bin/drive "$1"
)

# Sets `able` to those competitors whose lines can be performed once.
select_able() { # SECTION FUNCTION NAME...
    local section=$1 function=$2 who
    shift 2
    able=()
    for who in "$@"; do
        if in_rounds 1 "$function" "$who" | drive "$section" >/dev/null 2>"$errors"; then
            able+=("$who")
        else
            echo "$who is left out of \"$section\": $(grep -v '^drive: ' "$errors" | tail -n 1 | sed "s|$work/||g")" >>"$notes"
        fi
    done
}

measure() { # SECTION ROUNDS FUNCTION NAME...
    local section=$1 count=$2 function=$3
    shift 3
    echo "lifecycle: $section" >&2
    select_able "$section" "$function" "$@"
    [ ${#able[@]} = 0 ] || in_rounds "$count" "$function" "${able[@]}" | drive "$section" >>"$times"
}

versions() { emit run version "$1" "${binary[$1]}" --version; }
run_one() { line run run "$1" run --bundle "$work/bundles/plain" c; }
# Later versions of crun keep what they compiled from a profile.
run_with_seccomp() {
    emit unmeasured "$(command -v rm)" -rf "$roots/$1/.cache"
    line run run "$1" run --bundle "$work/bundles/seccomp" c
}
lives() {
    line run create "$1" create --pid-file "$work/pid" --bundle "$work/bundles/plain" c
    line aside state "$1" state c
    line run start "$1" start c
    emit gone end "$1" "$work/pid"
    line run delete "$1" delete c
    emit total total "$1"
}
executes() { line run exec "$1" exec "running-$1" /true; }
at_once() { # WHO
    local count
    for count in 1 2 8; do
        command_of "$1" run --bundle "$work/bundles/many-%" many-%
        emit many "$count" "$1" "$count" "${command[@]}"
    done
}
runs_beside() { line run "$beside" "$1" run --bundle "$work/bundles/plain" c; }
sandboxes() {
    case $1 in
    husk) emit run "$identity" husk "${binary[husk]}" test -- /bin/true ;;
    bwrap) emit run "$identity" bwrap "${binary[bwrap]}" --unshare-all --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp \
        --tmpfs /var/tmp --tmpfs /run --hostname localhost --die-with-parent --new-session --clearenv /bin/true ;;
    unshare) emit run "$identity" unshare "$(command -v unshare)" --user --map-root-user --mount --pid --fork --net --ipc \
        --uts --cgroup --mount-proc /bin/true ;;
    nothing) emit run "$identity" nothing /bin/true ;;
    esac
}

# Creates the bundles of one kind of user.
make_bundles() { # CONFIGURATION
    local i who
    bundle plain "$1" '.'
    bundle seccomp "$1" ".linux.seccomp = $(cat "$root/crates/seccomp/tests/profiles/docker.json")"
    for i in $(seq 8); do bundle "many-$i" "$1" .; done
    for who in "${runtimes[@]}"; do
        bundle "running-$who" "$1" '.process.args = ["/park"]'
        bundle "parked-$who" "$1" .
    done
    bundle alive-NUMBER "$1" '.process.args = ["/park"]'
}

keeps_running() {
    unmeasured "$1" create --bundle "$work/bundles/running-$1" "running-$1"
    unmeasured "$1" start "running-$1"
}

# Measures exec in a container that each competitor keeps running.
measure_exec() {
    local who running=()
    for who in "$@"; do
        if keeps_running "$who" | drive exec 2>"$errors"; then running+=("$who"); fi
    done
    measure exec "$rounds" executes "${running[@]}"
    for who in "${running[@]}"; do unmeasured "$who" delete --force "running-$who" | drive exec; done
}

measure_alive() {
    local i text
    beside="alive-0"
    measure alive $((rounds / 2)) runs_beside "$@"
    text=$(cat $work/bundles/alive-NUMBER/config.json)
    for ((i = 1; i <= alive; i++)); do
        mkdir "$work/bundles/alive-$i"
        echo "${text/alive-NUMBER/alive-$i}" >"$work/bundles/alive-$i/config.json"
        unmeasured husk run --detach --bundle "$work/bundles/alive-$i" "alive-$i"
    done | drive alive
    beside=alive-$alive
    measure alive $((rounds / 2)) runs_beside "$@"
    for ((i = 1; i <= alive; i++)); do unmeasured husk delete --force "alive-$i"; done | drive alive
}

# Weighs what the processes of a created container have for themselves, in KiB.
weigh_parked() {
    local who pid
    for who in "$@"; do
        unmeasured "$who" create --bundle "$work/bundles/parked-$who" "parked-$who" | drive parked 2>"$errors" || continue
        while read -r pid; do cat "/proc/$pid/smaps_rollup"; done <"/sys/fs/cgroup/$parent/parked-$who/cgroup.procs" |
            awk -v who="$who" '$1 == "Private_Dirty:" { sum += $2 } END { print "parked,dirty," who ",1,0," sum }' >>"$times"
        unmeasured "$who" delete --force "parked-$who" | drive parked
    done
}

"${binary[husk]}" spec --bundle $work
mv $work/config.json $work/root.json
"${binary[husk]}" spec --rootless --bundle $work
mv $work/config.json $work/user.json
for config in root user; do
    # Debian's crun knows no later version of the specification.
    jq --argjson user $user '.ociVersion = "1.0.2" | .process.terminal = false | .process.args = ["/true"] |
        if .linux.uidMappings then .linux.uidMappings[0].hostID = $user | .linux.gidMappings[0].hostID = $user else . end' \
        $work/$config.json >$work/config.json
    mv $work/config.json $work/$config.json
done
mkdir $work/roots/floor

parent=$BENCH_CGROUP rootfs=$work/rootfs roots=$work/roots rootless=
make_bundles root.json
if [ -d /sys/fs/cgroup/devices ]; then
    # crun rejects a machine with controllers of both versions.
    ! mountpoint -q /sys/fs/cgroup/unified || umount /sys/fs/cgroup/unified
    measure v1 $((rounds / 2)) run_one "${runtimes[@]}"
else
    echo 'This machine has no cgroups of version 1.' >>"$notes"
fi

[ "$(stat --file-system --format %T /sys/fs/cgroup)" = cgroup2fs ] || mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir "/sys/fs/cgroup/$parent"
measure version "$rounds" versions "${runtimes[@]}"
measure run "$rounds" run_one "${floors[@]}" "${runtimes[@]}"
measure seccomp "$rounds" run_with_seccomp "${runtimes[@]}"
measure life "$rounds" lives "${runtimes[@]}"
measure_exec "${runtimes[@]}"
measure at-once $((rounds / 5 + 1)) at_once floor-all "${runtimes[@]}"
measure_alive "${runtimes[@]}"
weigh_parked "${runtimes[@]}"

identity=root
measure sandbox "$rounds" sandboxes husk ${binary[bwrap]+bwrap} unshare nothing

# The cgroup is delegated to the user, as by systemd. The driver must be below it too.
parent=$BENCH_CGROUP/user rootfs=$work/user/rootfs roots=$work/user/roots rootless=yes
mkdir -p "/sys/fs/cgroup/$parent/driver"
chown $user "/sys/fs/cgroup/$parent"{,/cgroup.procs,/cgroup.subtree_control,/driver,/driver/cgroup.procs}
make_bundles user.json
measure rootless $((rounds / 2)) run_one "${runtimes[@]}"
identity=user
measure sandbox "$rounds" sandboxes husk ${binary[bwrap]+bwrap} unshare nothing

. "$here/report.sh"
