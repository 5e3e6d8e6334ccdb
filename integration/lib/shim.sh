# shellcheck shell=bash
# Checks of rooms that run husk's own shim, for the functions of containerd/run.sh. They hold for containerd's shim for
# runc too, except where a check says otherwise: SHIM_UNDER_TEST=io.containerd.runc.v2 tries them on it.

parent_of() { awk '/^PPid:/ { print $2 }' "/proc/$1/status"; }
# A process whose parent has not waited for it yet has ended too.
has_ended() { ! grep -qs '^State:.[^ZX]' "/proc/$1/status"; }
has_stopped() { [ "$(status_of "$1")" = STOPPED ]; }
is_gone() { [ -z "$(status_of "$1")" ]; }
open_files() { find "/proc/$1/fd" -mindepth 1 | wc -l; }
private_memory() { awk '/^Private_(Dirty|Clean):/ { kb += $2 } END { print kb }' "/proc/$1/smaps_rollup"; }

shims() {
    local pid
    for pid in $(others_in_this_room); do
        if tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q '^[^ ]*containerd-shim'; then echo "$pid"; fi
    done
}

# Prints what containers of this room have left: processes, mounts, cgroups, sockets, and directories of their state.
traces() {
    shims
    grep -o ' /run/containerd/io.containerd.runtime[^ ]*' /proc/self/mountinfo || true
    find /sys/fs/cgroup/*/default /sys/fs/cgroup/default -mindepth 1 -type d 2>/dev/null || true
    find /run/containerd/s /run/containerd/runc/default /run/containerd/io.containerd.runtime.v2.task/default \
        -mindepth 1 2>/dev/null || true
}
nothing_is_left() { [ -z "$(traces)" ]; }
# containerd's shim for runc leaves its socket if it is killed.
forgive_a_socket() { if [ "$shim" = io.containerd.runc.v2 ]; then rm -f /run/containerd/s/*; fi; }
leaves_nothing() { eventually nothing_is_left || { traces; return 1; }; }

kill_containerd() {
    local pid
    pid=$(cat "$work/containerd.pid")
    # The checks that follow need it even if this one fails.
    trap start_containerd_again EXIT
    kill -KILL "$pid"
    eventually has_ended "$pid"
}
start_containerd_again() {
    trap - EXIT
    containerd >>"$logs/containerd.log" 2>&1 </dev/null &
    echo $! >"$work/containerd.pid"
    eventually ctr version >/dev/null
}

# Ends and deletes a container.
remove() { # ID
    ctr tasks kill --signal KILL "$1"
    eventually has_stopped "$1"
    # Its exit code is that of the task.
    ctr tasks delete "$1" || true
    ctr containers delete "$1"
}

# Starts a container in the pod of this name: a shim starts one process for all containers with the same value.
run_in_pod() { # ANNOTATION POD ID [OPTION...]
    local annotation=$1 pod=$2 id=$3
    shift 3
    run --detach --annotation "$annotation=$pod" "$@" -- "$id" sleep 1000
}
group=io.containerd.runc.v2.group

check_containers_outlive_containerd() {
    background
    run --detach -- ending sh -c 'until [ -e /end ]; do sleep 0.1; done; exit 7'
    local pid ending parent
    pid=$(pid_of c)
    ending=$(pid_of ending)
    parent=$(parent_of "$pid")
    kill_containerd
    touch "/proc/$ending/root/end"
    eventually has_ended "$ending"
    start_containerd_again
    same "RUNNING $pid" "$(status_of c) $(pid_of c)"
    same "$parent" "$(parent_of "$pid")"
    same hello "$(ctr tasks exec --exec-id e c echo hello)"
    # The shim knows how a container ended while containerd was dead. containerd 2 deletes such a task without asking
    # (core/runtime/v2/shim_load.go).
    if [ "${configuration-}" = config-v3.toml ]; then
        eventually is_gone ending
    else
        eventually has_stopped ending
        contains 'non-zero exit code 7' "$(ctr tasks delete ending 2>&1)"
    fi
    ctr containers delete ending
    ctr tasks pause c
    ctr tasks resume c
    remove c
    leaves_nothing
}

check_containerd_is_killed_while_containers_start() {
    local i pids=()
    for i in $(seq 10); do
        run --detach --null-io -- "early$i" sleep 1000 &
        pids+=($!)
    done
    eventually sh -c '[ -n "$(ctr tasks ls --quiet)" ]'
    kill_containerd
    for i in "${pids[@]}"; do wait "$i" || true; done
    start_containerd_again
    # Containers that were created still run and can be removed. The others leave nothing.
    after_check
    leaves_nothing
}

check_a_shim_that_was_killed() {
    background
    local pid
    pid=$(pid_of c)
    kill -KILL "$(parent_of "$pid")"
    eventually has_ended "$pid"
    eventually sh -c '! ctr tasks ls | grep -q RUNNING'
    ctr tasks delete c || true
    ctr containers delete c
    forgive_a_socket
    leaves_nothing
}

check_a_shim_that_was_killed_while_containerd_was_dead() {
    background
    local pid
    pid=$(pid_of c)
    kill_containerd
    kill -KILL "$(parent_of "$pid")"
    start_containerd_again
    eventually has_ended "$pid"
    eventually is_gone c
    ctr containers delete c
    forgive_a_socket
    leaves_nothing
}

check_a_container_that_was_killed() {
    background
    ctr tasks exec --detach --exec-id e c sleep 1000
    kill -KILL "$(pid_of c)"
    eventually has_stopped c
    contains 'non-zero exit code 137' "$(ctr tasks delete c 2>&1)"
    ctr containers delete c
    leaves_nothing
}

check_a_pod_has_one_shim() {
    local name first second
    for name in "$group" io.kubernetes.cri.sandbox-id; do
        run_in_pod "$name" first first
        run_in_pod "$name" first second
        run_in_pod "$name" third third
        first=$(parent_of "$(pid_of first)")
        second=$(parent_of "$(pid_of second)")
        same "$first" "$second"
        [ "$first" != "$(parent_of "$(pid_of third)")" ]
        same 2 "$(shims | wc -l)"
        remove first
        same hello "$(ctr tasks exec --exec-id e second echo hello)"
        remove second
        remove third
        leaves_nothing
    done
}

# Prints the topics of the events of a container, in their order.
topics() { # ID
    grep "\"container_id\":\"$1\"" "$work/events" | sed -n 's|.* /tasks/\([a-z-]*\) .*|\1|p' | xargs
}
# Prints whether the events of a container are these so far.
has_topics() { [ "$(topics "$1")" = "$2" ]; }
events_are() { # ID TOPICS
    eventually has_topics "$1" "$2" || { same "$2" "$(topics "$1")"; return 1; }
}

check_events_come_in_order() {
    ctr events >"$work/events" &
    local listener=$! i
    # The listener is ready when it hears of something.
    eventually sh -c "ctr containers create '$image' heard true; ctr containers delete heard; [ -s '$work/events' ]"
    run --detach -- c sleep 1000
    ctr tasks exec --exec-id e c true
    ctr tasks pause c
    ctr tasks resume c
    remove c
    events_are c 'create start exec-added exec-started exit paused resumed exit delete'
    # Short containers: their end is not reported before their start.
    for i in $(seq 20); do run --rm --null-io -- "short$i" true; done
    for i in $(seq 20); do events_are "short$i" 'create start exit delete'; done
    run --detach -- executing sleep 1000
    for i in $(seq 10); do ctr tasks exec --exec-id "e$i" executing true; done
    events_are executing "create start$(for i in $(seq 10); do printf ' exec-added exec-started exit'; done)"
    kill "$listener"
}

check_an_event_of_memory_that_runs_out() {
    ctr events >"$work/events" &
    local listener=$!
    eventually sh -c "ctr containers create '$image' heard true; ctr containers delete heard; [ -s '$work/events' ]"
    run --detach --memory-limit 16777216 -- c sh -c 'tail /dev/zero; sleep 1000'
    eventually grep -q '/tasks/oom {"container_id":"c"' "$work/events"
    same RUNNING "$(status_of c)"
    # A container that joins the pod of another.
    run_in_pod "$group" keeper keeper
    run --detach --annotation "$group=keeper" --memory-limit 16777216 -- joined sh -c 'tail /dev/zero; sleep 1000'
    eventually grep -q '/tasks/oom {"container_id":"joined"' "$work/events"
    kill "$listener"
}

check_many_cycles_leave_nothing() {
    local i parent files=
    run_in_pod "$group" keeper keeper
    parent=$(parent_of "$(pid_of keeper)")
    for i in $(seq "${CYCLES:-100}"); do
        # In the shim of the pod, and in a shim of its own.
        run_in_pod "$group" keeper "joined$i" --null-io
        same "$parent" "$(parent_of "$(pid_of "joined$i")")"
        ctr tasks exec --exec-id e "joined$i" true
        ctr tasks exec --exec-id "e$i" keeper true
        remove "joined$i"
        run --rm -- c true
        # The first cycles open what the shim keeps open.
        [ "$i" != 10 ] || files=$(open_files "$parent")
    done 2>&1
    eventually sh -c "[ \$(find /proc/$parent/fd -mindepth 1 | wc -l) -le $files ]"
    remove keeper
    leaves_nothing
}

check_husk_sees_the_containers() {
    background
    contains "^c +$(pid_of c) +running " "$(husk --root /run/containerd/runc/default list)"
    same hello "$(husk --root /run/containerd/runc/default exec c echo hello)"
    contains 'sleep 0.1' "$(husk --root /run/containerd/runc/default ps c)"
}

check_a_log_in_a_file() {
    run --detach --log-uri "file://$work/log" -- c sh -c 'echo to stdout; echo to stderr >&2; sleep 1000'
    eventually grep -qx 'to stdout' "$work/log"
    eventually grep -qx 'to stderr' "$work/log"
    # A second container adds to the file.
    run --detach --log-uri "file://$work/log" -- d sh -c 'echo more; sleep 1000'
    eventually grep -qx more "$work/log"
    grep -qx 'to stdout' "$work/log"
    remove c
    remove d
    leaves_nothing
}

check_a_log_plugin() {
    # A plugin reads the container's streams from descriptors 3 and 4, and closes descriptor 5 when it is ready.
    cat >"$work/plugin" <<END
#!/bin/sh
echo "\$CONTAINER_NAMESPACE \$CONTAINER_ID \$*" >$work/plugged
cat <&3 >$work/plugged.out 5>&- &
cat <&4 >$work/plugged.err 5>&- &
exec 5>&-
wait
END
    chmod 755 "$work/plugin"
    run --detach --log-uri "binary://$work/plugin?name=value" -- c \
        sh -c 'echo to stdout; echo to stderr >&2; sleep 1000'
    eventually grep -qx 'to stdout' "$work/plugged.out"
    eventually grep -qx 'to stderr' "$work/plugged.err"
    same 'default c name value' "$(head -n 1 "$work/plugged")"
    remove c
    eventually sh -c "! pgrep -f '^/bin/sh $work/plugin'"
    leaves_nothing
}

check_a_log_plugin_that_dies() {
    printf '#!/bin/sh\nexec 5>&-\n' >"$work/plugin"
    chmod 755 "$work/plugin"
    run --detach --log-uri "binary://$work/plugin" -- c sh -c 'trap "" PIPE; while :; do echo lost; sleep 0.1; done'
    ctr tasks exec --exec-id e c true
    remove c
    leaves_nothing
}

check_a_log_plugin_that_is_not_there() {
    exits 1 run --detach --log-uri "binary://$work/no-plugin" -- c sleep 1000
    after_check
    leaves_nothing
}

check_a_terminal_is_resized() {
    contains '^33 77$' "$(with_terminal sh -c "stty rows 33 cols 77; ctr run --rm --tty ${selected[*]} $image c \
        sh -c 'until [ \"\$(stty size)\" = \"33 77\" ]; do sleep 0.1; done; stty size'")"
    background
    contains '^44 88$' "$(with_terminal sh -c "stty rows 44 cols 88; ctr tasks exec --tty --exec-id e c \
        sh -c 'until [ \"\$(stty size)\" = \"44 88\" ]; do sleep 0.1; done; stty size'")"
}

check_a_client_that_reads_nothing() {
    mkfifo "$work/unread"
    # Open for both, so that opening it and writing to it wait for no reader.
    exec 7<>"$work/unread"
    run -- c sh -c 'head -c 3000000 /dev/zero; touch /written; sleep 1000' >"$work/unread" &
    local client=$!
    eventually ctr tasks exec --exec-id "is-it-$RANDOM" c true
    ctr tasks pause c
    ctr tasks resume c
    exits 1 ctr tasks exec --exec-id e c test -e /written
    same 3000000 "$(head -c 3000000 <&7 | wc -c)"
    eventually ctr tasks exec --exec-id "is-it-$RANDOM" c test -e /written
    ctr tasks kill --signal KILL c
    exits 137 wait "$client"
}

check_input_ends() {
    same 10000000 "$(head -c 10000000 /dev/zero | run --rm -- c wc -c)"
    background
    same 10000000 "$(head -c 10000000 /dev/zero | ctr tasks exec --exec-id e c wc -c)"
}

check_many_bytes_do_not_grow_the_shim() {
    background
    local parent before
    parent=$(parent_of "$(pid_of c)")
    ctr tasks exec --exec-id first c head -c 10000000 /dev/zero >/dev/null
    before=$(private_memory "$parent")
    same 300000000 "$(ctr tasks exec --exec-id e c head -c 300000000 /dev/zero | wc -c)"
    [ "$(private_memory "$parent")" -lt $((before + 2048)) ]
}
