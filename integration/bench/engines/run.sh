#!/bin/bash
# Measures containers started by podman and by containerd, with husk, crun and runc, and a sandbox of 'husk test'. Under
# containerd, husk runs below its own shim too, and the memory of both shims is compared. Each round starts each of them
# once, so that load on the machine affects all alike. Writes the medians and ratios, and every single time, to
# integration/bench/results. containerd 2 is measured too if the rooms have built it.
#
#     run.sh             50 rounds, or ROUNDS
#     run.sh --smoke     3 rounds, to check that it works; results are only printed
#     run.sh --crowd     1,000 containers at once, or CROWD, each with a shim of its own, instead of rounds. Prints how
#                        many there were when the first failed, and the memory of the machine that each of them takes.
packages='podman conmon containerd crun runc netavark busybox-static iproute2 jq util-linux'
shim=io.containerd.husk.v1
. "$(dirname "$0")/../../lib/engines.sh"
. "$(dirname "$0")/../../lib/room.sh"

rounds=${ROUNDS:-50}
[ "${1-}" != --smoke ] || rounds=${ROUNDS:-3}
crowd=${CROWD:-1000}
results=$root/integration/bench/results/engines-$(date -u +%Y-%m-%d)
times=$work/times.csv
memory=$work/memory.md
runtimes=(husk crun runc)
# husk below its own shim, and the others below containerd's.
below_shims=(shim husk crun runc)
# The versions of containerd. Version 2 has its own ctr and shim for runc, and a namespace of its own, because the
# directories and cgroups of containers are named after it.
versions=(1)
second=${CARGO_TARGET_DIR:-$root/target}/engines/$(tr / - <<<"${containerd_2%% *}")
[ ! -x "$second/containerd" ] || versions+=(2)

# The runtimes that a version of containerd can start: Debian's crun rejects the configurations of containerd 2.
declare -A started

ctr_of() { # VERSION ARGUMENT...
    local version=$1
    shift
    if [ "$version" = 1 ]; then ctr "$@"; else "$second/ctr" --address /run/containerd-2/containerd.sock --namespace second "$@"; fi
}

remove() { # VERSION ID...
    local version=$1 id
    shift
    for id in "$@"; do ctr_of "$version" tasks delete --force "$id" >/dev/null 2>&1 || true; done
    [ $# = 0 ] || ctr_of "$version" containers delete "$@"
}

after_check() {
    local version
    podman rm --all --force --time 0
    for version in "${versions[@]}"; do
        # shellcheck disable=SC2046 # Split into words on purpose.
        remove "$version" $(ctr_of "$version" containers ls --quiet)
    done
}

after_checks() { remove_cgroups libpod_parent default second; }

binary() { if [ "$1" = husk ]; then echo /usr/local/bin/husk; else command -v "$1"; fi; }
# Sets `selected` to the options of `ctr run` for a runtime.
select_runtime() { # RUNTIME
    case $1:$shim in
    shim:io.containerd.runc.v2) selected=(--runc-binary "$(binary husk)") ;;
    shim:*) selected=(--runtime "$shim") ;;
    *) selected=(--runc-binary "$(binary "$1")") ;;
    esac
}

by_podman() { podman --runtime "$(binary "$1")" run --rm --network none "$image" true; }
by_test() { "$(binary "$1")" test -- busybox true; }
run_by_ctr() { # VERSION RUNTIME
    select_runtime "$2"
    ctr_of "$1" run --rm "${selected[@]}" "$image" c true
}
# A call that finds one record, for the time of `ctr` itself.
ctr_alone() { ctr_of "$1" containers info running-husk; }
exec_by_ctr() { ctr_of "$1" tasks exec --exec-id e "running-$2" true; }
# Fifty containers at once, each with a shim of its own.
many_by_ctr() { # VERSION RUNTIME
    local i pids=()
    select_runtime "$2"
    for i in $(seq 50); do
        ctr_of "$1" run --detach --null-io "${selected[@]}" "$image" "many-$i" sleep 1000 &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i"; done
}

available() { awk '/^MemAvailable:/ { print $2 }' /proc/meminfo; }
# Starts containers one after the other until there are enough or one fails.
gather() { # VERSION RUNTIME
    local number=0 before began=$EPOCHREALTIME
    before=$(available)
    select_runtime "$2"
    while [ "$number" -lt "$crowd" ] &&
        ctr_of "$1" run --detach --null-io "${selected[@]}" "$image" "crowd-$number" sleep 100000 2>"$work/failure"; do
        number=$((number + 1))
    done
    awk -v version="$1" -v shim="$([ "$2" = shim ] && echo "$shim" || echo io.containerd.runc.v2)" -v number="$number" \
        -v kib=$((before - $(available))) -v a="$began" -v b="$EPOCHREALTIME" \
        'BEGIN { printf "containerd %s, %s: %d containers in %.0f s, %.2f MiB each\n", version, shim, number, b - a, kib / 1024 / number }'
    if [ "$number" -lt "$crowd" ]; then cat "$work/failure"; fi
    # shellcheck disable=SC2046 # Split into words on purpose.
    remove "$1" $(seq --format 'crowd-%.0f' 0 "$number") 2>/dev/null || true
}

measure() { # WHAT RUNTIME COMMAND...
    local what=$1 runtime=$2 began=$EPOCHREALTIME
    shift 2
    "$@"
    echo "$what,$runtime,$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", (b - a) * 1000 }')" >>"$times"
}

# Prints a title and the time of a shim as a multiple of the other's, both without the time of `ctr` itself.
without_ctr() { # TITLE WHAT VERSION
    awk -v title="$1" -v t="$(median "$2-$3" shim)" -v husk="$(median "$2-$3" husk)" -v alone="$(median "alone-$3" ctr)" \
        'BEGIN { printf "| %s, without the %.1f of `ctr` itself | %.1f (%.2f) | %.1f (1.00) | | |\n",
            title, alone, t - alone, (t - alone) / (husk - alone), husk - alone }'
}

median() { # WHAT RUNTIME
    grep "^$1,$2," "$times" | cut -d , -f 3 | sort -n | awk '{ t[NR] = $1 } END { print (t[int((NR + 1) / 2)] + t[int(NR / 2) + 1]) / 2 }'
}

# Adds the memory of a shim with this many containers to the table, in KiB.
weigh() { # VERSION RUNTIME CONTAINERS
    local i pid ids=()
    select_runtime "$2"
    for i in $(seq "$3"); do
        ids+=("weighed-$i")
        ctr_of "$1" run --detach --null-io "${selected[@]}" --annotation io.containerd.runc.v2.group=weighed-1 \
            "$image" "weighed-$i" sleep 1000
    done
    for i in "${ids[@]}"; do ctr_of "$1" tasks exec --exec-id e "$i" true; done
    pid=$(ctr_of "$1" tasks ls | awk '$1 == "weighed-1" { print $2 }')
    pid=$(awk '/^PPid:/ { print $2 }' "/proc/$pid/status")
    awk -v version="$1" -v shim="$([ "$2" = shim ] && echo "$shim" || echo io.containerd.runc.v2)" -v containers="$3" \
        '{ is[$1] = $2 } END { printf "| containerd %s, %s | %s | %d | %d | %d | %d | %d |\n", version,
            shim, containers, is["Private_Dirty:"],
            is["Private_Dirty:"] + is["Private_Clean:"], is["Pss:"], is["Rss:"], is["Threads:"] }' \
        "/proc/$pid/smaps_rollup" "/proc/$pid/status" >>"$memory"
    remove "$1" "${ids[@]}"
}

row() { # TITLE WHAT RUNTIME...
    local what=$2 runtime
    printf '| %s ' "$1"
    shift 2
    for runtime in "$@"; do
        grep -q "^$what,$runtime," "$times" || { printf '| '; continue; }
        awk -v t="$(median "$what" "$runtime")" -v husk="$(median "$what" husk)" \
            'BEGIN { printf "| %.1f (%.2f) ", t, t / husk }'
    done
    echo '|'
}

report() {
    local version
    echo "# Containers by engines, $(date -u +%Y-%m-%d)"
    echo
    echo "$rounds rounds; medians in ms, and how many times husk's below the shim for runc. A container of busybox that runs \`true\`, without a network."
    echo
    echo "| | husk ($shim) | husk | crun | runc |"
    echo '| - | - | - | - | - |'
    row '`podman run --rm`' podman - "${runtimes[@]}"
    for version in "${versions[@]}"; do
        row "containerd $version: \`ctr run --rm\`" "run-$version" "${below_shims[@]}"
        without_ctr "containerd $version: \`ctr run --rm\`" run "$version"
        row "containerd $version: \`ctr task exec\`" "exec-$version" "${below_shims[@]}"
        without_ctr "containerd $version: \`ctr task exec\`" exec "$version"
        row "containerd $version: 50 \`ctr run --detach\` at once" "many-$version" shim husk - -
    done
    awk -v t="$(median test husk)" -v podman="$(median podman crun)" \
        'BEGIN { printf "\nThe same in a sandbox of `husk test`: %.1f; `podman run --rm` with crun takes %.0f times as long.\n\n", t, podman / t }'
    echo 'Memory of one shim in KiB, after an exec in each of its containers:'
    echo
    echo '| | containers | private dirty | private | proportional | resident | threads |'
    echo '| - | - | - | - | - | - | - |'
    cat "$memory"
    echo
    echo "- commit: $(git -C "$root" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)"
    echo "- machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) processors, load $(cut -d ' ' -f 1-3 /proc/loadavg) at the end"
    echo "- kernel: $(uname -r)"
    for version in "${versions[@]}"; do echo "- $(ctr_of "$version" --version | sed 's/ github.com[^ ]*//')"; done
    echo "- $(podman --version); $(crun --version | head -n 1); $(runc --version | head -n 1)"
    [ ! -e /usr/local/bin/containerd-shim-husk-v1 ] ||
        echo "- size of husk's shim: $(stat --format %s /usr/local/bin/containerd-shim-husk-v1) bytes"
}

trap leave EXIT
trap 'exit 1' INT TERM
mkdir -p /etc/containers/containers.conf.d
printf '[containers]\ndefault_ulimits = []\nlog_driver = "k8s-file"\n[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n' \
    >/etc/containers/containers.conf.d/machine.conf
# crun rejects a machine with controllers of both cgroup versions. This unmounts version 2 in the script's own mount
# namespace only.
if [ -z "${MACHINE_IS_OURS-}" ] && mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi
start containerd containerd
if [ ${#versions[@]} = 2 ]; then
    mkdir -p /etc/containerd-2
    printf 'version = 3\nroot = "/var/lib/containerd-2"\nstate = "/run/containerd-2"\n[grpc]\naddress = "/run/containerd-2/containerd.sock"\n' \
        >/etc/containerd-2/config.toml
    start containerd-2 env PATH="$second:$PATH" containerd --config /etc/containerd-2/config.toml
fi
begun=yes
for version in "${versions[@]}"; do
    eventually ctr_of "$version" version >/dev/null
    ctr_of "$version" images import "$work/image.tar" >/dev/null
    for runtime in "${below_shims[@]}"; do
        select_runtime "$runtime"
        if ctr_of "$version" run --detach --null-io "${selected[@]}" "$image" "running-$runtime" sleep 100000; then
            started[$version]+=" $runtime"
        else
            ctr_of "$version" containers delete "running-$runtime" || true
        fi
    done
done
podman load --quiet --input "$work/image.tar" >/dev/null

if [ "${1-}" = --crowd ]; then
    for version in "${versions[@]}"; do
        for runtime in shim husk; do gather "$version" "$runtime"; done
    done
    exit
fi
for round in $(seq "$rounds"); do
    for runtime in "${runtimes[@]}"; do measure podman "$runtime" by_podman "$runtime"; done
    for version in "${versions[@]}"; do
        measure "alone-$version" ctr ctr_alone "$version" >/dev/null
        for runtime in ${started[$version]}; do
            measure "run-$version" "$runtime" run_by_ctr "$version" "$runtime"
            measure "exec-$version" "$runtime" exec_by_ctr "$version" "$runtime"
        done
        # Fewer of these, because each starts fifty.
        [ $((round % 10)) = 1 ] || continue
        for runtime in shim husk; do
            measure "many-$version" "$runtime" many_by_ctr "$version" "$runtime"
            # shellcheck disable=SC2046 # Split into words on purpose.
            remove "$version" $(seq --format 'many-%.0f' 50)
        done
    done
    measure test husk by_test husk
done
for version in "${versions[@]}"; do
    for runtime in shim husk; do
        for containers in 1 10; do weigh "$version" "$runtime" "$containers"; done
    done
done
report | tee "$work/report"
if [ "${1-}" != --smoke ]; then
    cp "$work/report" "$results.md"
    { echo 'engine,runtime,milliseconds'; cat "$times"; } >"$results.csv"
fi
