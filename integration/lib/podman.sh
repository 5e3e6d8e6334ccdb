# shellcheck shell=bash
# What rooms of podman share.

# Configures podman of the room: husk as its runtime, and what is the machine's.
configure_podman() {
    mkdir -p /etc/containers/containers.conf.d
    cp "$examples/podman/husk.conf" /etc/containers/containers.conf.d/
    # No systemd to make cgroups, and limits below what podman asks for, which lowers its own processes to what pids
    # there are.
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
    # Ids for --userns=auto.
    echo 'containers:200000:1000000' | tee -a /etc/subuid >>/etc/subgid
}
