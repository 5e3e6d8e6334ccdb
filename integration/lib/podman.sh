# shellcheck shell=bash
# Functions that the podman rooms share.

# Configures the room's podman: husk as its runtime, and settings that depend on the machine.
configure_podman() {
    mkdir -p /etc/containers/containers.conf.d
    cp "$examples/podman/husk.conf" /etc/containers/containers.conf.d/
    # There may be no systemd to make cgroups, and the limits may be lower than those that podman requests. podman
    # itself caps its limit of processes at pid_max.
    local files processes pids
    files=$(ulimit -Hn) processes=$(ulimit -Hu) pids=$(cat /proc/sys/kernel/pid_max)
    [ "$processes" != unlimited ] && [ "$processes" -le "$pids" ] || processes=$pids
    {
        echo '[containers]'
        [ "$files" != unlimited ] && [ "$files" -ge 1048576 ] ||
            echo "default_ulimits = [\"nofile=$files:$files\", \"nproc=$processes:$processes\"]"
        systemd_runs || echo 'log_driver = "k8s-file"'
        echo '[engine]'
        systemd_runs || printf 'cgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        echo '[network]'
        echo 'network_backend = "netavark"'
    } >/etc/containers/containers.conf.d/machine.conf
    echo 'unqualified-search-registries = ["docker.io"]' >/etc/containers/registries.conf
    # The ids that --userns=auto allocates.
    echo 'containers:200000:1000000' | tee -a /etc/subuid >>/etc/subgid
}
