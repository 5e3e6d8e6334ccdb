#!/bin/bash
# Tests containerd through ctr, with husk as the binary that its shim calls, or with husk's own shim.
packages='containerd runc busybox-static iproute2 jq util-linux'
. "$(dirname "$0")/../lib/criu.sh"
. "$(dirname "$0")/../lib/errors.sh"
. "$(dirname "$0")/../lib/room.sh"

before_checks() {
    mkdir -p /etc/containerd
    cp "$examples/containerd/${configuration:-config.toml}" /etc/containerd/config.toml
    start containerd containerd
    echo $! >"$work/containerd.pid"
    eventually ctr version
    ctr images import "$work/image.tar"
}

after_check() {
    local id
    ctr tasks ls --quiet | while read -r id; do
        ctr tasks kill --all --signal KILL "$id"
        ctr tasks delete --force "$id"
    done
    ctr containers ls --quiet | xargs --no-run-if-empty ctr containers delete
}

after_checks() {
    # The one that a check has started.
    kill "$(cat "$work/containerd.pid")" || true
    remove_cgroups default
}

# Sets `selected` to the options of `ctr run` that select a runtime: runc or husk.
select_runtime() { # RUNTIME
    case $1:${shim:-io.containerd.runc.v2} in
    runc:*) selected=(--runc-binary "$(command -v runc)") ;;
    *:io.containerd.runc.v2) selected=(--runc-binary /usr/local/bin/husk) ;;
    *) selected=(--runtime "$shim") ;;
    esac
}
select_runtime husk

# Runs a container: `ctr run` expects its options before the image.
run() { # OPTION... -- ID COMMAND...
    local options=()
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    ctr run "${selected[@]}" "${options[@]}" "$image" "$@"
}

# Starts a container 'c' that runs until SIGTERM.
background() {
    run --detach "$@" -- c sh -c 'trap "exit 0" TERM; touch /ready; while :; do sleep 0.1; done'
    eventually ctr tasks exec --exec-id "is-it-$RANDOM" c test -e /ready
}
status_of() { ctr tasks ls | awk -v id="$1" '$1 == id { print $3 }'; }
pid_of() { ctr tasks ls | awk -v id="$1" '$1 == id { print $2 }'; }

check_run_passes_output_and_exit_code_on() {
    same 'to stdout' "$(run --rm -- c echo 'to stdout')"
    same 'to stderr' "$(run --rm -- c sh -c 'echo to stderr >&2' 2>&1)"
    exits 3 run --rm -- c sh -c 'exit 3'
    same abc "$(echo abc | run --rm -- c head -n 1)"
}

check_run_with_a_terminal() {
    contains '^/dev/(pts/0|console)' "$(with_terminal ctr run --rm --tty "${selected[@]}" "$image" c tty)"
}

check_exec() {
    background --env A=1
    same '1 /tmp' "$(ctr tasks exec --exec-id e1 --cwd /tmp c sh -c 'echo $A $PWD')"
    same '1000 1000' "$(ctr tasks exec --exec-id e2 --user 1000:1000 c sh -c 'echo $(id -u) $(id -g)')"
    exits 5 ctr tasks exec --exec-id e3 c sh -c 'exit 5'
    exits 137 ctr tasks exec --exec-id e4 c sh -c 'kill -9 $$'
    contains '^/dev/pts/' "$(with_terminal ctr tasks exec --exec-id e5 --tty c tty)"
    contains 'e6' "$(ctr tasks exec --detach --exec-id e6 c sleep 1000; ctr tasks ps c)"
}

check_tasks() {
    background
    same RUNNING "$(status_of c)"
    contains "^$(pid_of c) " "$(ctr tasks ps c)"
    ctr tasks pause c
    same PAUSED "$(status_of c)"
    ctr tasks resume c
    same RUNNING "$(status_of c)"
    ctr tasks kill --signal TERM c
    eventually sh -c 'ctr tasks ls | grep -q STOPPED'
    exits 0 ctr tasks delete c
    exits 1 ctr tasks kill c
}

check_attach() {
    ctr run --detach "${selected[@]}" "$image" c sh -c 'sleep 2; exit 6'
    exits 6 timeout 20 ctr tasks attach c
}

check_signals() {
    run --detach -- c sh -c 'trap "exit 9" USR1; touch /ready; while :; do sleep 0.1; done'
    eventually ctr tasks exec --exec-id e c test -e /ready
    ctr tasks kill --signal USR1 c
    eventually sh -c 'ctr tasks ls | grep -q STOPPED'
    contains 'non-zero exit code 9' "$(ctr tasks delete c 2>&1)"
    run --detach -- c2 sh -c 'sleep 54322 & sleep 54322'
    ctr tasks kill --all --signal KILL c2
    eventually sh -c '! pgrep -f "^sleep 54322"'
    contains 'non-zero exit code 137' "$(ctr tasks delete c2 2>&1)"
}

check_metrics() {
    background --memory-limit 67108864
    local metrics
    metrics=$(ctr tasks metrics --format json c)
    if cgroup_is_v2; then
        same 67108864 "$(jq -r .memory.usage_limit <<<"$metrics")"
    else
        same 67108864 "$(jq -r .memory.usage.limit <<<"$metrics")"
    fi
    [ "$(jq -r .pids.current <<<"$metrics")" -ge 1 ]
}

check_events() {
    ctr events >"$work/events" &
    local listener=$!
    run --rm --memory-limit 16777216 -- c sh -c 'tail /dev/zero; sleep 0.5'
    background
    ctr tasks exec --exec-id e1 c true
    ctr tasks pause c
    ctr tasks resume c
    ctr tasks kill --signal KILL c
    eventually grep -q '/tasks/exit.*"exit_status":137' "$work/events"
    ctr tasks delete c || true
    local topic
    for topic in create start oom exec-added exec-started paused resumed exit delete; do
        eventually grep -q "/tasks/$topic " "$work/events"
    done
    kill "$listener"
}

check_options_of_run() {
    same /tmp "$(run --rm --cwd /tmp -- c pwd)"
    exits 1 run --rm --read-only -- c touch /here
    same 00000000a80035fb "$(run --rm --cap-add CAP_NET_ADMIN --cap-drop CAP_SYS_CHROOT -- c awk '/^CapEff/ { print $2 }' /proc/self/status)"
    same 1 "$(run --rm -- c awk '/^NoNewPrivs/ { print $2 }' /proc/self/status)"
    same 0 "$(run --rm --allow-new-privs -- c awk '/^NoNewPrivs/ { print $2 }' /proc/self/status)"
    same 2 "$(run --rm --seccomp -- c awk '/^Seccomp:/ { print $2 }' /proc/self/status)"
    echo below >"$work/file"
    same below "$(run --rm --mount "type=bind,src=$work/file,dst=/etc/file,options=rbind:ro" -- c cat /etc/file)"
    same "$(readlink /proc/self/ns/net)" "$(run --rm --net-host -- c readlink /proc/self/ns/net)"
    same lo "$(run --rm -- c ls /sys/class/net)"
    run --rm --pid-file "$work/pid" -- c true
    contains '^[0-9]+$' "$(cat "$work/pid")"
    contains '^ +0 +300000 +5000$' "$(run --rm --uidmap 0:300000:5000 --gidmap 0:300000:5000 -- c cat /proc/self/uid_map)"
}

check_namespaces_of_another() {
    background
    local name
    for name in ipc network pid; do
        same "$(readlink "/proc/$(pid_of c)/ns/${name/network/net}")" \
            "$(run --rm --with-ns "$name:/proc/$(pid_of c)/ns/${name/network/net}" -- d readlink "/proc/self/ns/${name/network/net}")"
    done
}

check_limits() {
    if cgroup_is_v2; then
        background --cpus 0.5
        same '50000 100000' "$(cat "/sys/fs/cgroup$(sed -n 's/^0:://p' "/proc/$(pid_of c)/cgroup")/cpu.max")"
    else
        background --cpu-quota 50000 --cpu-period 100000
        same 50000 "$(cat "/sys/fs/cgroup/cpu$(sed -n 's/.*:cpu://p' "/proc/$(pid_of c)/cgroup")/cpu.cfs_quota_us")"
    fi
    exits 137 run --rm --memory-limit 16777216 -- d sh -c 'exec tail /dev/zero'
}

check_a_cgroup_of_ones_choice() {
    background --cgroup /default/chosen
    contains '/default/chosen' "$(cat "/proc/$(pid_of c)/cgroup")"
}

check_privileged() {
    need 'not every capability is ours to give' can_do_everything
    run --rm --privileged -- c mount -t tmpfs none /tmp
}

check_a_container_of_the_shim_that_died() {
    background
    local pid
    pid=$(pid_of c)
    kill -KILL "$(awk '/^PPid:/ { print $2 }' "/proc/$pid/status")"
    eventually sh -c '! ctr tasks ls | grep -q RUNNING'
    eventually sh -c "[ ! -d /proc/$pid ] || grep -q '^State:.Z' /proc/$pid/status"
}

check_thirty_containers_at_once() {
    local i pids=()
    for i in $(seq 30); do
        run --detach --null-io -- "many$i" sleep 1000 &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i"; done
    same 30 "$(ctr tasks ls --quiet | wc -l)"
}

# Starts a container that counts.
count_in() { # NAME
    run --detach -- "$1" sh -c "$counting"
    eventually ctr tasks exec --exec-id "is-it-$RANDOM" "$1" test -s /data/n
}
count_of() { ctr tasks exec --exec-id "count-$RANDOM" "$1" cat /data/n; }

# Restores a container of the same or of another name. ctr waits for it to end.
restore() { # NAME
    ctr containers restore --rw --live "$1" saved &
    eventually ctr tasks exec --exec-id "is-it-$RANDOM" "$1" true
}

# Fails with husk's own shim under containerd 1.6.
ctr_knows_the_shim() { [ "${shim-}" != io.containerd.husk.v1 ] || [ "${configuration-}" = config-v3.toml ]; }

check_checkpoint_of_a_task() {
    local count
    needs_criu
    need 'ctr of containerd 1.6 gives options of a checkpoint only to the shim for runc' \
        ctr_knows_the_shim
    count_in c
    count=$(count_of c)
    ctr tasks checkpoint --image-path "$work/first" c
    test -s "$work/first/inventory.img"
    same RUNNING "$(status_of c)"
    counts_from c "$count"
    # ctr makes an image for shims that are not for runc, and names it by the second.
    ctr images ls --quiet | grep checkpoint | xargs --no-run-if-empty ctr images rm
    ctr tasks checkpoint --exit --image-path "$work/second" c
    test -s "$work/second/inventory.img"
    eventually sh -c 'ctr tasks ls | grep -q STOPPED'
}

check_checkpoint_is_restored() {
    local count
    needs_criu
    need 'ctr of containerd 1.6 restores only containers whose runtime has options' \
        ctr_knows_the_shim
    count_in c
    count=$(count_of c)
    ctr containers checkpoint --image --rw --task c saved
    counts_from c "$count"
    ctr tasks kill --signal KILL c
    eventually sh -c 'ctr tasks ls | grep -q STOPPED'
    ctr tasks delete c || true
    ctr containers delete c
    restore d
    counts_from d "$count"
}

# --- Failures. `runtime` is set when these functions are called. ----------------------------------------------------

failing() { # OPTION... -- COMMAND...
    local options=()
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    select_runtime "$runtime"
    ctr run --rm "${selected[@]}" "${options[@]}" "$image" c "$@"
}
in_running() {
    select_runtime "$runtime"
    ctr run --detach "${selected[@]}" "$image" c sleep 1000
    ctr tasks "$@"
}

check_error_programs_that_cannot_be_run() {
    as_with_runc 'a program that is nowhere in PATH' failing -- nowhere
    as_with_runc 'a program that is not there' failing -- /not/there
    as_with_runc 'a file that is no program' failing -- /usr/bin/not-executable
    as_with_runc 'a script whose interpreter is missing' failing -- /usr/bin/no-interpreter
    as_with_runc 'exec of a program that is not there' in_running exec --exec-id e c /not/there
    as_with_runc 'exec of a file that is no program' in_running exec --exec-id e c /usr/bin/not-executable
    as_with_runc 'exec in a directory that is not there' in_running exec --cwd /not/there --exec-id e c true
}

check_error_mounts_and_limits() {
    as_with_runc 'a source of a mount that is not there' failing --mount type=bind,src=/not/there,dst=/tmp,options=rbind -- true
    as_with_runc 'a file mounted on a directory' failing --mount type=bind,src=/etc/passwd,dst=/tmp,options=rbind -- true
    as_with_runc 'a file system that is not there' failing --mount type=nothing,src=none,dst=/tmp -- true
    as_with_runc 'an option that is none' failing --mount type=tmpfs,src=tmpfs,dst=/tmp,options=size=nonsense -- true
    as_with_runc 'a namespace that is not there' failing --with-ns network:/not/there -- true
    as_with_runc 'memory runs out' failing --memory-limit 16777216 -- sh -c 'exec tail /dev/zero'
}

check_error_of_containers_that_are_not_running() {
    dead() {
        select_runtime "$runtime"
        ctr run --detach "${selected[@]}" "$image" c true
        eventually sh -c 'ctr tasks ls | grep -q STOPPED'
        ctr tasks "$@"
    }
    paused() { in_running pause c && ctr tasks "$@"; }
    as_with_runc 'kill of one that is dead' dead kill c
    as_with_runc 'exec in one that is dead' dead exec --exec-id e c true
    as_with_runc 'pause of one that is dead' dead pause c
    as_with_runc 'exec in one that is paused' paused exec --exec-id e c true
    as_with_runc 'resume of one that is not paused' in_running resume c
    as_with_runc 'delete of one that runs' in_running delete c
    keep_errors
}

check_the_readme_is_right() {
    local line
    while read -r line; do
        (cd "$root" && sh -c "$line")
    done < <(sed -n 's/^\$ \(ctr .*\)/\1/p' "$root/README.md")
}

check_nothing_is_left() {
    same '' "$(ls -A /run/containerd/runc/default 2>/dev/null)"
    same '' "$(pgrep -f 'containerd-shim.* -namespace default')"
    same '' "$(find /sys/fs/cgroup/*/default /sys/fs/cgroup/default -mindepth 1 -type d 2>/dev/null)"
}

run_checks "$@"
