#!/bin/bash
# Does what a node of Kubernetes does through CRI, with husk as the handler of a RuntimeClass. The node's engine is
# containerd, unless `node` names a file that defines the functions of containerd.sh for another engine.
packages="${node_packages:-containerd} containernetworking-plugins iptables busybox-static iproute2 jq python3-grpcio python3-protobuf python3-yaml protobuf-compiler"
. "$(dirname "$0")/../lib/criu.sh"
. "$(dirname "$0")/../lib/errors.sh"
. "$(dirname "$0")/../lib/room.sh"
. "${node:-$root/integration/cri/containerd.sh}"

cri() { /usr/bin/python3 "$root/integration/cri/cri.py" "$@"; }

before_checks() {
    mkdir -p /etc/cni/net.d
    cat >/etc/cni/net.d/10-pods.conflist <<END
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "pods0", "isGateway": true, "ipMasq": false,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
END
    protoc --proto_path "$root/integration/cri" --python_out "$work" cri.proto
    export CRI_DIRECTORY=$work CRI_SOCKET=$node_socket CRI_PARENT=/$node_parent
    if systemd_runs; then CRI_PARENT=system.slice; fi
    # The image of pods' own containers, under its name in the node's settings. Waits for signals, as Kubernetes' does.
    mkdir -p "$work/pause"
    tar -C "$work/pause" -xf "$work/image.tar"
    sed -i 's|"Cmd": \["sh"\]|"Entrypoint": ["sh", "-c", "trap \\"exit 0\\" TERM INT; tail -f /dev/null \& wait"]|' "$work/pause/config.json"
    sed -i 's|"RepoTags": \[[^]]*\]|"RepoTags": ["docker.io/library/pause:1"]|' "$work/pause/manifest.json"
    tar -C "$work/pause" -cf "$work/pause.tar" manifest.json config.json layer.tar
    start_node "$work/image.tar" "$work/pause.tar"
    eventually cri Version
}

after_check() {
    local id
    # Stops the containers first: to stop a pod, an engine may wait for its processes.
    for id in $(cri ListContainers | jq -r '.containers[].id'); do
        cri StopContainer "{\"container_id\": \"$id\", \"timeout\": 0}"
    done
    for id in $(cri ListPodSandbox | jq -r '.items[].id'); do
        cri StopPodSandbox "{\"pod_sandbox_id\": \"$id\"}"
        cri RemovePodSandbox "{\"pod_sandbox_id\": \"$id\"}"
    done
}

after_checks() {
    # shellcheck disable=SC2046 # Split into words on purpose.
    remove_cgroups "$node_parent" $(more_cgroups)
}

# --- A pod of one container, each with its own settings. Sets `pod` and `container`. --------------------------------

runtime=husk
# The binary that registers itself, and what the engine says to it for each container.
registered=${registered:-husk} registered_call=${registered_call:-'(^| )create '}

pod_config() { # NAMESPACES
    jq -n --arg logs "$work/pods" --arg parent "$CRI_PARENT" --argjson namespaces "$1" \
        '{metadata: {name: "p", uid: "p1", namespace: "default"}, hostname: "podhost", log_directory: $logs,
          linux: {cgroup_parent: $parent, sysctls: {"kernel.msgmni": "7"}, security_context: {namespace_options: $namespaces}}}
         # A pod in the network namespace of the node has the hostname and sysctls of the node.
         | if $namespaces.network == "NODE" then del(.hostname, .linux.sysctls) else . end'
}

make_pod() { # NAMESPACES [MORE]
    mkdir -p "$work/pods"
    sandbox=$(pod_config "$1" | jq --argjson more "${2-null}" '. * ($more // {})')
    pod=$(cri RunPodSandbox "$(jq -n --argjson config "$sandbox" --arg runtime "$runtime" '{config: $config, runtime_handler: $runtime}')") || return
    pod=$(jq -r .pod_sandbox_id <<<"$pod")
}

make_container() { # CONFIG COMMAND...
    local config=$1
    shift
    container=$(cri CreateContainer "$(jq -n --arg pod "$pod" --argjson sandbox "$sandbox" --argjson config "$config" \
        '{pod_sandbox_id: $pod, sandbox_config: $sandbox,
          # As the kubelet requests it: containers of a pod share a pid namespace only if the pod asks for it.
          config: ({metadata: {name: ("c" + (now | tostring))}, image: {image: "docker.io/library/busybox:latest"},
                    command: $ARGS.positional, log_path: "c.log",
                    linux: {security_context: {namespace_options: {pid: "CONTAINER"}}}} * $config)}' --args -- "$@")") || return
    container=$(jq -r .container_id <<<"$container")
}

make_both() { # CONFIG COMMAND...
    make_pod '{"pid": "CONTAINER"}' || return
    make_container "$@" || return
    cri StartContainer "{\"container_id\": \"$container\"}"
}

status() { cri ContainerStatus "{\"container_id\": \"$container\"}" | jq -r ".status.$1"; }
is_in_state() { [ "$(status state)" = "CONTAINER_$1" ]; }

check_the_manifest_of_examples() {
    local ids server client
    grep -q '^handler: husk$' "$examples/kubernetes/runtimeclass.yaml"
    mkdir -p "$work/hello"
    ids=$(cri apply "$examples/kubernetes/pod.yaml" "$work/hello")
    server=$(jq -r .server <<<"$ids")
    client=$(jq -r .client <<<"$ids")
    runs_on_husk "$(jq -r .pod <<<"$ids")" "$server"
    # Runs the liveness probe, as the kubelet does.
    eventually cri exec "$server" wget -q -O - http://127.0.0.1:8080/
    same hello "$(cri exec "$server" wget -q -O - http://127.0.0.1:8080/)"
    eventually grep -q 'stdout F hello$' "$work/hello/client.log"
    same hello "$(cri exec "$client" hostname)"
    same 0000000000000000 "$(cri exec "$server" awk '/^CapEff/ { print $2 }' /proc/1/status)"
    same 1000 "$(cri exec "$server" cat /proc/self/oom_score_adj)"
    exits 1 cri exec "$server" touch /here
    if cgroup_is_v2; then
        same '67108864 50000 100000' "$(cri exec "$server" cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/cpu.max | xargs)"
    else
        same 67108864 "$(cri exec "$server" cat /sys/fs/cgroup/memory/memory.limit_in_bytes)"
        same 50000 "$(cri exec "$server" cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us)"
    fi
}

# Makes a pod with two containers. Sets `first` and `container`.
two_in_a_pod() { # NAMESPACES
    local options="{\"linux\": {\"security_context\": {\"namespace_options\": $1}}}"
    make_pod "$1"
    make_container "$options" sleep 1000
    cri StartContainer "{\"container_id\": \"$container\"}"
    first=$container
    make_container "$options" sleep 1001
    cri StartContainer "{\"container_id\": \"$container\"}"
}

check_namespaces_of_a_pod() {
    two_in_a_pod '{"pid": "CONTAINER"}'
    local name
    for name in net ipc uts; do
        same "$(cri exec "$first" readlink /proc/self/ns/$name)" "$(cri exec "$container" readlink /proc/self/ns/$name)"
    done
    same podhost "$(cri exec "$first" hostname)"
    same 7 "$(cri exec "$first" cat /proc/sys/kernel/msgmni)"
    [ "$(cri exec "$first" readlink /proc/self/ns/pid)" != "$(cri exec "$container" readlink /proc/self/ns/pid)" ]
}

check_the_pid_namespace_of_a_pod() {
    two_in_a_pod '{"pid": "POD"}'
    same "$(cri exec "$first" readlink /proc/self/ns/pid)" "$(cri exec "$container" readlink /proc/self/ns/pid)"
    contains 'sleep 1001' "$(cri exec "$first" ps)"
}

check_the_pid_namespace_of_another_container() {
    make_both '{}' sleep 1000
    local options="{\"pid\": \"TARGET\", \"target_id\": \"$container\"}"
    make_container "{\"linux\": {\"security_context\": {\"namespace_options\": $options}}}" sleep 1001
    cri StartContainer "{\"container_id\": \"$container\"}"
    contains 'sleep 1000' "$(cri exec "$container" ps)"
}

check_namespaces_of_the_node() {
    local all='{"network": "NODE", "pid": "NODE", "ipc": "NODE"}' name
    make_pod "$all"
    make_container "{\"linux\": {\"security_context\": {\"namespace_options\": $all}}}" sleep 1000
    cri StartContainer "{\"container_id\": \"$container\"}"
    for name in net pid ipc; do
        same "$(readlink /proc/self/ns/$name)" "$(cri exec "$container" readlink /proc/self/ns/$name)"
    done
}

check_the_network_of_a_pod() {
    make_both '{}' sh -c 'echo served >/index.html; exec httpd -f -h /'
    contains '10\.99\.0\.' "$(cri exec "$container" ip -4 addr show eth0)"
    local address
    address=$(cri exec "$container" ip -4 addr show eth0 | sed -n 's|.*inet \([0-9.]*\)/.*|\1|p')
    eventually busybox wget -q -O - "http://$address/"
}

check_exec_and_its_code() {
    make_both '{"envs": [{"key": "A", "value": "1"}], "working_dir": "/tmp"}' sleep 1000
    same '1 /tmp' "$(cri exec "$container" sh -c 'echo $A $PWD')"
    exits 5 cri exec "$container" sh -c 'exit 5'
    contains 'to stderr' "$(cri exec "$container" sh -c 'echo to stderr >&2' 2>&1 >/dev/null)"
    contains "$exec_timed_out" "$(cri ExecSync "{\"container_id\": \"$container\", \"cmd\": [\"sleep\", \"60\"], \"timeout\": 1}" 2>&1 || true)"
}

check_logs() {
    make_both '{}' sh -c 'echo one; echo two >&2; sleep 1000'
    eventually grep -q ' stdout F one$' "$work/pods/c.log"
    eventually grep -q ' stderr F two$' "$work/pods/c.log"
}

check_a_terminal() {
    make_both '{"tty": true}' sh -c 'tty; sleep 1000'
    eventually grep -qE ' stdout F /dev/(pts/0|console)' "$work/pods/c.log"
}

check_how_a_container_ends() {
    make_both '{}' sh -c 'exit 6'
    eventually is_in_state EXITED
    same 6 "$(status exit_code)"
    make_container '{}' sh -c 'trap "exit 3" TERM; while :; do sleep 0.1; done'
    cri StartContainer "{\"container_id\": \"$container\"}"
    sleep 1
    cri StopContainer "{\"container_id\": \"$container\", \"timeout\": 10}"
    same 3 "$(status exit_code)"
    make_container '{}' sh -c 'trap "" TERM; while :; do sleep 0.1; done'
    cri StartContainer "{\"container_id\": \"$container\"}"
    cri StopContainer "{\"container_id\": \"$container\", \"timeout\": 1}"
    same 137 "$(status exit_code)"
    cri RemoveContainer "{\"container_id\": \"$container\"}"
}

check_memory_that_runs_out() {
    make_both '{"linux": {"resources": {"memory_limit_in_bytes": 16777216}}}' sh -c 'tail /dev/zero; sleep 1; exit 137'
    eventually is_in_state EXITED
    same 137 "$(status exit_code)"
    same OOMKilled "$(status reason)"
}

check_stats_and_update() {
    make_both '{"linux": {"resources": {"memory_limit_in_bytes": 67108864, "cpu_shares": 512}}}' sh -c 'while :; do :; done'
    eventually sh -c "[ \"\$(/usr/bin/python3 '$root/integration/cri/cri.py' ContainerStats '{\"container_id\": \"$container\"}' |
        jq -r '.stats.cpu.usage_core_nano_seconds.value | tonumber > 0')\" = true ]"
    [ "$(cri ContainerStats "{\"container_id\": \"$container\"}" | jq -r '.stats.memory.working_set_bytes.value')" -gt 0 ]
    cri UpdateContainerResources "{\"container_id\": \"$container\", \"linux\": {\"memory_limit_in_bytes\": 134217728, \"cpu_quota\": 20000, \"cpu_period\": 100000}}"
    if cgroup_is_v2; then
        same '134217728 20000 100000' "$(cri exec "$container" cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/cpu.max | xargs)"
    else
        same '134217728 20000' "$(cri exec "$container" cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/cpu/cpu.cfs_quota_us | xargs)"
    fi
}

check_security() {
    made_with() { make_both "{\"linux\": {\"security_context\": $1}}" sleep 1000; }
    made_with '{"run_as_user": {"value": 1000}, "run_as_group": {"value": 2000}, "supplemental_groups": [3000], "no_new_privs": true, "readonly_rootfs": true}'
    same '1000 2000 2000 3000' "$(cri exec "$container" sh -c 'echo $(id -u) $(id -g) $(id -G)')"
    same 1 "$(cri exec "$container" awk '/^NoNewPrivs/ { print $2 }' /proc/self/status)"
    exits 1 cri exec "$container" touch /here
    after_check
    made_with '{"run_as_username": "guest", "seccomp": {"profile_type": "RuntimeDefault"}, "capabilities": {"add_capabilities": ["NET_ADMIN"]}}'
    same guest "$(cri exec "$container" id -un)"
    same 2 "$(cri exec "$container" awk '/^Seccomp:/ { print $2 }' /proc/self/status)"
    after_check
    made_with '{"seccomp": {"profile_type": "Unconfined"}, "masked_paths": ["/etc/passwd"], "readonly_paths": ["/tmp"]}'
    same 0 "$(cri exec "$container" awk '/^Seccomp:/ { print $2 }' /proc/self/status)"
    same '' "$(cri exec "$container" cat /etc/passwd)"
    exits 1 cri exec "$container" touch /tmp/here
}

check_mounts_of_the_node() {
    mkdir -p "$work/node"
    mount -t tmpfs tmpfs "$work/node"
    mount --make-shared "$work/node"
    echo below >"$work/node/file"
    make_both "{\"mounts\": [{\"host_path\": \"$work/node\", \"container_path\": \"/ro\", \"readonly\": true},
        {\"host_path\": \"$work/node\", \"container_path\": \"/slave\", \"propagation\": \"PROPAGATION_HOST_TO_CONTAINER\"},
        {\"host_path\": \"$work/node\", \"container_path\": \"/shared\", \"propagation\": \"PROPAGATION_BIDIRECTIONAL\"}]}" sleep 1000
    same below "$(cri exec "$container" cat /ro/file)"
    exits 1 cri exec "$container" touch /ro/new
    cri exec "$container" touch /slave/new
    mkdir "$work/node/later"
    mount -t tmpfs later "$work/node/later"
    contains ' /slave/later ' "$(cri exec "$container" cat /proc/self/mounts)"
    contains ' shared:' "$(cri exec "$container" grep ' /shared ' /proc/self/mountinfo)"
    after_check
    umount -R "$work/node"
}

check_a_privileged_pod() {
    need 'not every capability is ours to give' can_do_everything
    local privileged='{"linux": {"security_context": {"privileged": true}}}'
    make_pod '{"pid": "CONTAINER"}' "$privileged"
    make_container "$privileged" sleep 1000
    cri StartContainer "{\"container_id\": \"$container\"}"
    cri exec "$container" mount -t tmpfs none /tmp
}

check_a_runtime_class_that_is_not_there() {
    contains "$no_such_runtime" "$(cri RunPodSandbox "$(jq -n --argjson config "$(pod_config '{}')" \
        '{config: $config, runtime_handler: "other"}')" 2>&1 || true)"
}

check_ten_pods_at_once() {
    local i pids=()
    for i in $(seq 10); do
        cri RunPodSandbox "$(jq -n --argjson config "$(pod_config '{"pid": "CONTAINER"}')" --arg i "$i" \
            '{config: ($config * {metadata: {name: $i, uid: $i}}), runtime_handler: "husk"}')" &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i"; done
    same 10 "$(cri ListPodSandbox | jq '.items | length')"
}

count_of() { cri exec "$1" cat /data/n; }
has_checkpoints() { ! cri CheckpointContainer '{"container_id": "none"}' 2>&1 | grep -qi 'unimplemented\|not implemented'; }

# An engine restores a container whose image is the archive of a checkpoint.
check_checkpoint_is_restored_in_another_pod() {
    local count
    needs_criu
    need 'this engine has no CheckpointContainer' has_checkpoints
    prepare_restore
    make_both '{}' sh -c "$counting"
    eventually cri exec "$container" test -s /data/n
    count=$(count_of "$container")
    cri CheckpointContainer "{\"container_id\": \"$container\", \"location\": \"$work/saved.tar\", \"timeout\": 60}"
    counts_from "$container" "$count"
    after_check
    make_pod '{"pid": "CONTAINER"}'
    make_container "{\"image\": {\"image\": \"$work/saved.tar\"}}"
    cri StartContainer "{\"container_id\": \"$container\"}"
    counts_from "$container" "$count"
}

# --- Failures. ------------------------------------------------------------------------------------------------------

# Runs a container. Fails if it cannot start; otherwise prints how it ended and returns its exit code.
failing() { # CONFIG COMMAND...
    make_both "$@" || return
    eventually is_in_state EXITED
    echo "$(status reason): $(status message)"
    return "$(status exit_code)"
}

in_running() { # COMMAND...
    make_both '{}' sleep 1000
    cri exec "$container" "$@"
}

in_dead() { # METHOD [MORE OF THE REQUEST]
    make_both '{}' true
    eventually is_in_state EXITED
    local more=${2-'{}'}
    cri "$1" "$(jq -n --arg id "$container" --argjson more "$more" '{container_id: $id} + $more')"
}

check_error_programs_that_cannot_be_run() {
    as_with_runc 'a program that is nowhere in PATH' failing '{}' nowhere
    as_with_runc 'a program that is not there' failing '{}' /not/there
    as_with_runc 'a file that is no program' failing '{}' /usr/bin/not-executable
    as_with_runc 'a working directory that is a file' failing '{"working_dir": "/etc/passwd"}' true
    as_with_runc 'a script whose interpreter is missing' failing '{}' /usr/bin/no-interpreter
    as_with_runc 'exec of a program that is nowhere in PATH' in_running nowhere
    as_with_runc 'exec of a program that is not there' in_running /not/there
    as_with_runc 'exec of a file that is no program' in_running /usr/bin/not-executable
}

check_error_mounts_and_settings() {
    as_with_runc 'a file mounted on a directory' failing '{"mounts": [{"host_path": "/etc/passwd", "container_path": "/tmp"}]}' true
    as_with_runc 'a directory mounted on a file' failing '{"mounts": [{"host_path": "/etc", "container_path": "/etc/passwd"}]}' true
    as_with_runc 'a mount over /proc' failing '{"mounts": [{"host_path": "/etc", "container_path": "/proc/sys"}]}' true
    as_with_runc 'processors that are not there' failing '{"linux": {"resources": {"cpuset_cpus": "999"}}}' true
    as_with_runc 'a quota of the processor that is none' failing '{"linux": {"resources": {"cpu_quota": 1, "cpu_period": 100000}}}' true
    as_with_runc 'a profile of seccomp that is not there' failing \
        '{"linux": {"security_context": {"seccomp": {"profile_type": "Localhost", "localhost_ref": "/not/there"}}}}' true
    with_a_sysctl() { make_pod '{"pid": "CONTAINER"}' "{\"linux\": {\"sysctls\": {\"$1\": \"$2\"}}}"; }
    as_with_runc 'a sysctl that is not there' with_a_sysctl net.not.there 1
    as_with_runc 'a sysctl with a value that is none' with_a_sysctl kernel.msgmni many
}

check_error_of_memory_that_runs_out() {
    as_with_runc 'memory runs out' failing '{"linux": {"resources": {"memory_limit_in_bytes": 16777216}}}' sh -c 'exec tail /dev/zero'
    less_than_used() {
        make_both '{}' sh -c 'tail -c 30000000 /dev/zero | { touch /ready; sleep 1000; }'
        eventually cri exec "$container" test -e /ready
        cri UpdateContainerResources "{\"container_id\": \"$container\", \"linux\": {\"memory_limit_in_bytes\": 4096}}"
    }
    as_with_runc 'an update to less memory than is used' less_than_used
}

check_error_of_containers_that_are_not_running() {
    as_with_runc 'stop of one that is dead' in_dead StopContainer
    as_with_runc 'exec in one that is dead' in_dead ExecSync '{"cmd": ["true"]}'
    as_with_runc 'start of one that is dead' in_dead StartContainer
    as_with_runc 'update of one that is dead' in_dead UpdateContainerResources '{"linux": {"memory_limit_in_bytes": 16777216}}'
    keep_errors
}

# Starts a second engine, which knows husk only through `husk register`.
check_husk_registers_itself() {
    need 'only husk does' husk register --help
    need 'the shim is not husk' command -v "$registered"
    mkdir -p "$work/other"
    # A wrapper that records its calls, to show that the engine ran this program.
    printf '#!/bin/sh\necho "$*" >>%s\nexec /usr/local/bin/%s "$@"\n' "$work/other/calls" "$registered" >"$work/other/$registered"
    chmod 755 "$work/other/$registered"
    export CRI_SOCKET=$work/other/socket
    local pid
    register_at_another_node "$work/image.tar" "$work/pause.tar" 2>"$logs/other.log"
    make_both '{}' sh -c 'exit 3'
    eventually is_in_state EXITED
    same 3 "$(status exit_code)"
    contains "^$containers_of_a_pod_of_one\$" "$(grep -cE "$registered_call" "$work/other/calls")"
    after_check
    kill "$pid"
    wait "$pid" || true
}

check_nothing_is_left() {
    nothing_is_left
    # CRI-O leaves empty cgroups of conmon processes that have ended.
    same '' "$(find "/sys/fs/cgroup/$node_parent" /sys/fs/cgroup/*/"$node_parent" -mindepth 1 -type d ! -name 'crio-conmon-*' 2>/dev/null)"
}

run_checks "$@"
