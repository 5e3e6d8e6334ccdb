#!/bin/bash
# Measures containers started by podman and by containerd, with husk, crun and runc, and a sandbox of 'husk test'. Each
# round starts each of them once, so that load on the machine affects all alike. Writes the medians and ratios, and
# every single time, to integration/bench/results.
#
#     run.sh             50 rounds
#     run.sh --smoke     3 rounds, to check that it works; results are only printed
packages='podman conmon containerd crun runc netavark busybox-static iproute2 jq util-linux'
. "$(dirname "$0")/../../lib/room.sh"

rounds=50
[ "${1-}" != --smoke ] || rounds=3
results=$root/integration/bench/results/engines-$(date -u +%Y-%m-%d)
times=$work/times.csv
runtimes=(husk crun runc)

after_check() {
    podman rm --all --force --time 0
    ctr tasks ls --quiet | xargs --no-run-if-empty ctr tasks delete --force
    ctr containers ls --quiet | xargs --no-run-if-empty ctr containers delete
}

after_checks() { remove_cgroups libpod_parent default; }

binary() { if [ "$1" = husk ]; then echo /usr/local/bin/husk; else command -v "$1"; fi; }
by_podman() { podman --runtime "$(binary "$1")" run --rm --network none "$image" true; }
by_test() { "$(binary "$1")" test -- busybox true; }
by_ctr() { ctr run --rm --runc-binary "$(binary "$1")" "$image" c true; }

measure() { # ENGINE RUNTIME
    local began=$EPOCHREALTIME
    "by_$1" "$2"
    echo "$1,$2,$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", (b - a) * 1000 }')" >>"$times"
}

median() { # ENGINE RUNTIME
    grep "^$1,$2," "$times" | cut -d , -f 3 | sort -n | awk '{ t[NR] = $1 } END { print (t[int((NR + 1) / 2)] + t[int(NR / 2) + 1]) / 2 }'
}

report() {
    local engine runtime
    echo "# Containers by engines, $(date -u +%Y-%m-%d)"
    echo
    echo "$rounds rounds; medians in ms, and how many times husk's. A container of busybox that runs \`true\`, without a network."
    echo
    echo '| | husk | crun | runc |'
    echo '| - | - | - | - |'
    for engine in podman ctr; do
        printf '| `%s run --rm` ' "$engine"
        for runtime in "${runtimes[@]}"; do
            awk -v t="$(median "$engine" "$runtime")" -v husk="$(median "$engine" husk)" \
                'BEGIN { printf "| %.1f (%.2f) ", t, t / husk }'
        done
        echo '|'
    done
    awk -v t="$(median test husk)" -v podman="$(median podman crun)" \
        'BEGIN { printf "\nThe same in a sandbox of `husk test`: %.1f; `podman run --rm` with crun takes %.0f times as long.\n\n", t, podman / t }'
    echo "- commit: $(git -C "$root" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)"
    echo "- machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) processors, load $(cut -d ' ' -f 1-3 /proc/loadavg) at the end"
    echo "- kernel: $(uname -r)"
    echo "- $(podman --version); $(ctr --version | sed 's/ github.com[^ ]*//')"
    echo "- $(crun --version | head -n 1); $(runc --version | head -n 1)"
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
begun=yes
eventually ctr version >/dev/null
ctr images import "$work/image.tar" >/dev/null
podman load --quiet --input "$work/image.tar" >/dev/null

for _ in $(seq "$rounds"); do
    for engine in podman ctr; do
        for runtime in "${runtimes[@]}"; do measure "$engine" "$runtime"; done
    done
    measure test husk
done
report | tee "$work/report"
if [ "${1-}" != --smoke ]; then
    cp "$work/report" "$results.md"
    { echo 'engine,runtime,milliseconds'; cat "$times"; } >"$results.csv"
fi
