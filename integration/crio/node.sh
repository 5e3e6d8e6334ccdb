# shellcheck shell=bash
# Makes CRI-O the engine of cri/run.sh's node.

node_socket=/run/crio/crio.sock
node_parent=crio.pods
no_such_runtime='failed to find runtime handler other'
exec_timed_out='"exit_code": -1'
# No container for the pod itself: CRI-O keeps the pod's namespaces.
containers_of_a_pod_of_one=1

# Prints the node's settings: its cgroups, the pods' image and the directory of the network plugins.
node_settings() {
    local manager=cgroupfs monitor=pod
    if systemd_runs; then manager=systemd monitor=system.slice; fi
    # The room and check_husk_registers_itself each run a CRI-O, on the same storage. Neither may clean it.
    cat <<END
[crio]
internal_wipe = false
internal_repair = false
clean_shutdown_file = ""
[crio.api]
listen = "$CRI_SOCKET"
[crio.runtime]
cgroup_manager = "$manager"
default_runtime = "runc"
pinns_path = "$root/integration/crio/pinns"
[crio.runtime.runtimes.runc]
runtime_path = "/usr/sbin/runc"
monitor_path = "/usr/bin/conmon"
monitor_cgroup = "$monitor"
[crio.image]
pause_image = "docker.io/library/pause:1"
pause_command = ""
[crio.network]
plugin_dirs = ["/usr/lib/cni"]
END
}

call_runtimes_without_oom_score_adj() {
    local runtime program
    for runtime in runc husk; do
        program=$work/bin/$runtime-for-crio
        printf '#!/bin/sh\nexec %s/integration/crio/without-oom-score-adj %s "$@"\n' "$root" "$(command -v $runtime)" >"$program"
        chmod 755 "$program"
        printf '[crio.runtime.runtimes.%s]\nruntime_path = "%s"\nruntime_root = "/run/%s"\n' $runtime "$program" $runtime
    done >/etc/crio/crio.conf.d/90-room.conf
}

# Loads images with podman, which uses the same storage: CRI-O itself can only pull images.
import() { # IMAGE...
    local image
    for image in "$@"; do podman load --quiet --input "$image"; done
}

start_node() { # IMAGE...
    mkdir -p /etc/crio/crio.conf.d
    node_settings >/etc/crio/crio.conf
    cp "$examples/cri-o/50-husk.conf" /etc/crio/crio.conf.d/
    can_do_everything || call_runtimes_without_oom_score_adj
    import "$@"
    start crio crio
}

# Starts a second CRI-O, where husk has registered itself. Sets `pid` to its process.
register_at_another_node() { # IMAGE...
    mkdir -p "$work/other/crio/crio.conf.d"
    node_settings >"$work/other/crio/crio.conf"
    husk register cri-o --program "$work/other/husk" --etc "$work/other"
    crio --config "$work/other/crio/crio.conf" --config-dir "$work/other/crio/crio.conf.d" &
    pid=$!
    eventually cri Version
}

# Looks for husk's state directory, because CRI-O does not report the handler of a pod.
runs_on_husk() { # POD CONTAINER
    [ -d "/run/husk/$2" ]
}

prepare_restore() { :; }

# Prints the cgroups of pods that name no parent.
more_cgroups() {
    echo crio
    find /sys/fs/cgroup -mindepth 1 -maxdepth 2 -name 'crio-conmon-*' -printf '%f\n' 2>/dev/null | sort -u
}

nothing_is_left() {
    same '' "$(find /run/husk /run/runc -mindepth 1 2>/dev/null)"
    same '' "$(pgrep --ns $$ --nslist mnt -f '^/usr/bin/conmon ')"
}
