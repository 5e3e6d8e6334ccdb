# shellcheck shell=bash
# Makes containerd the engine of run.sh's node: version 1, or version 2 if `configuration` names its example. A room that
# sets `shim` runs husk's own shim.

configuration=${configuration:-config${shim:+-shim}.toml}
is_version_1() { case $configuration in *-v3*) false ;; esac; }
node_socket=/run/containerd/containerd.sock
node_parent=k8s.io
no_such_runtime='no runtime for "other" is configured'
exec_timed_out=DEADLINE_EXCEEDED
# With containerd, the pod itself has a container too.
containers_of_a_pod_of_one=2
if [ -n "${shim-}" ]; then
    # containerd 2 starts a shim for the pod only, containerd 1 for each of its containers.
    registered=containerd-shim-husk-v1 registered_call=' start$' containers_of_a_pod_of_one='[12]'
fi

# Prints the settings of the pods' image and of the directory of the network plugins.
node_settings() {
    local runtime=io.containerd.cri.v1.runtime
    if is_version_1; then
        runtime=io.containerd.grpc.v1.cri
        echo "[plugins.\"$runtime\"]"
        echo 'sandbox_image = "docker.io/library/pause:1"'
    else
        echo '[plugins."io.containerd.cri.v1.images".pinned_images]'
        echo 'sandbox = "docker.io/library/pause:1"'
        echo "[plugins.\"$runtime\"]"
    fi
    can_do_everything || echo 'restrict_oom_score_adj = true'
    echo "[plugins.\"$runtime\".cni]"
    if is_version_1; then echo 'bin_dir = "/usr/lib/cni"'; else echo 'bin_dirs = ["/usr/lib/cni"]'; fi
}

import() { # IMAGE...
    local image
    for image in "$@"; do ctr --address "$CRI_SOCKET" --namespace k8s.io images import "$image"; done
}

start_node() { # IMAGE...
    mkdir -p /etc/containerd
    # To try the checks, containerd's own shim takes the place of husk's.
    local trial=
    [ "${shim-}" != io.containerd.runc.v2 ] || trial='/^runtime_path = /d'
    { sed "$trial" "$examples/containerd/$configuration"; node_settings; } >/etc/containerd/config.toml
    start containerd containerd
    echo $! >"$work/containerd.pid"
    eventually ctr version
    import "$@"
}

# Starts a second containerd, where husk has registered itself. Sets `pid` to its process.
register_at_another_node() { # IMAGE...
    mkdir -p "$work/other/containerd"
    { grep '^version = ' "$examples/containerd/$configuration"; node_settings; } >"$work/other/containerd/config.toml"
    husk register containerd ${shim:+--shim} --program "$work/other/$registered" --etc "$work/other"
    containerd --config "$work/other/containerd/config.toml" --root "$work/other/root" --state "$work/other/state" \
        --address "$CRI_SOCKET" &
    pid=$!
    eventually cri Version
    import "$@"
}

runs_on_husk() { # POD CONTAINER
    same husk "$(cri PodSandboxStatus "{\"pod_sandbox_id\": \"$1\"}" | jq -r .status.runtime_handler)"
}

# containerd 2 pulls the image of the saved container before it restores it, and refuses one that it knows only as a file
# (containerd#12876). So this puts the image into a registry.
prepare_restore() {
    local digest image=docker.io/library/busybox:latest registry=127.0.0.1:15000
    mkdir -p "$work/registry/v2/busybox/manifests"
    ln -sfn manifests "$work/registry/v2/busybox/blobs"
    for digest in $(ctr --namespace k8s.io content ls --quiet); do
        ctr --namespace k8s.io content get "$digest" >"$work/registry/v2/busybox/manifests/$digest"
    done
    digest=$(ctr --namespace k8s.io images ls | awk -v image=$image '$1 == image { print $3 }')
    (cd "$work/registry" && exec /usr/bin/python3 "$root/integration/cri/registry.py" ${registry#*:}) &
    eventually busybox wget -q -O /dev/null "http://$registry/v2/busybox/manifests/$digest"
    ctr --namespace k8s.io images tag --force $image "$registry/busybox@$digest"
}

more_cgroups() { :; }

nothing_is_left() {
    same '' "$(ls -A /run/containerd/runc/k8s.io 2>/dev/null)"
}
