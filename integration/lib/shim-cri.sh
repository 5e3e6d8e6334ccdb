# shellcheck shell=bash
# Checks of rooms that run husk's own shim below Kubernetes' interface, for the functions of cri/run.sh. They hold for
# containerd's shim for runc too.

task_pids() { ctr --namespace k8s.io tasks ls | awk 'NR > 1 { print $2 }'; }
parents() {
    local pid
    for pid in $(task_pids); do awk '/^PPid:/ { print $2 }' "/proc/$pid/status"; done
}

check_a_pod_of_ten_has_one_shim() {
    local i
    make_pod '{"pid": "CONTAINER"}'
    for i in $(seq 10); do
        make_container "{\"metadata\": {\"name\": \"c$i\"}}" sleep 1000
        cri StartContainer "{\"container_id\": \"$container\"}"
    done
    # The pod has a container too.
    same 11 "$(task_pids | wc -l)"
    same 1 "$(parents | sort -u | wc -l)"
}

start_containerd_again() {
    trap - EXIT
    containerd >>"$logs/containerd.log" 2>&1 </dev/null &
    echo $! >"$work/containerd.pid"
    eventually cri Version
}

check_pods_outlive_containerd() {
    local pid pids
    make_both '{}' sh -c 'until [ -e /end ]; do sleep 0.1; done; exit 7'
    pids=$(task_pids)
    pid=$(cat "$work/containerd.pid")
    # The checks that follow need containerd even if this one fails.
    trap start_containerd_again EXIT
    kill -KILL "$pid"
    eventually sh -c "! grep -qs '^State:.[^ZX]' /proc/$pid/status"
    # The root of the pod's own container is read-only.
    for pid in $pids; do touch "/proc/$pid/root/end" || true; done
    start_containerd_again
    eventually is_in_state EXITED
    # containerd 2 deletes a task that ended while containerd was dead, without asking (core/runtime/v2/shim_load.go).
    ! is_version_1 || same 7 "$(status exit_code)"
    make_container '{}' sleep 1000
    cri StartContainer "{\"container_id\": \"$container\"}"
    same hello "$(cri exec "$container" echo hello)"
}
