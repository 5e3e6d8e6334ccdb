#!/bin/bash
# Tests docker with husk as an additional runtime, and as the default runtime. A room that sets `shim` runs husk's own
# shim.
packages='docker.io runc tini busybox-static iptables iproute2 jq util-linux'
. "$(dirname "$0")/../lib/criu.sh"
. "$(dirname "$0")/../lib/errors.sh"
. "$(dirname "$0")/../lib/room.sh"

before_checks() {
    mkdir -p /etc/docker
    # To try the checks, containerd's own shim takes the place of husk's.
    sed "s/io.containerd.husk.v1/${shim-}/" "$examples/docker/daemon${shim:+-shim}.json" >/etc/docker/daemon.json
    start_docker
    docker load --quiet --input "$work/image.tar"
}

# The host may have neither systemd to make cgroups, nor the kernel modules that docker asks for. Only an experimental
# docker has checkpoints.
start_docker() { # OPTION...
    local driver=cgroupfs
    if systemd_runs; then driver=systemd; fi
    start dockerd dockerd --exec-opt "native.cgroupdriver=$driver" --storage-driver overlay2 --experimental "$@"
    eventually docker version
}

after_check() {
    docker ps --all --quiet | xargs --no-run-if-empty docker rm --force --volumes
    docker network prune --force
}

after_checks() {
    remove_cgroups docker
}

run() { docker run --rm --runtime husk "$@"; }
background() {
    docker run --detach --runtime husk --name box "$@" "$image" \
        sh -c 'trap "exit 0" TERM; touch /tmp/ready; while :; do sleep 0.1; done'
    eventually docker exec box test -e /tmp/ready
}
inspect() { docker inspect --format "$1" "${2-box}"; }

check_info_names_husk() {
    docker info --format '{{json .Runtimes}}' | jq -e .husk
}

check_run_passes_output_and_exit_code_on() {
    same 'to stdout' "$(run "$image" echo 'to stdout')"
    same 'to stderr' "$(run "$image" sh -c 'echo to stderr >&2' 2>&1)"
    exits 3 run "$image" sh -c 'exit 3'
    same abc "$(echo abc | run --interactive "$image" cat)"
}

check_run_with_a_terminal() {
    contains '^/dev/(pts/0|console)' "$(with_terminal docker run --rm --runtime husk -t "$image" tty)"
}

check_exec() {
    background --env A=1
    same 'guest 1 2 /tmp' "$(docker exec --user guest --env B=2 --workdir /tmp box sh -c 'echo $(id -un) $A $B $PWD')"
    exits 5 docker exec box sh -c 'exit 5'
    same abc "$(echo abc | docker exec --interactive box cat)"
    contains '^/dev/pts/' "$(with_terminal docker exec -t box tty)"
    docker exec --detach box touch /tmp/detached
    eventually docker exec box test -e /tmp/detached
    exits 137 docker exec box sh -c 'kill -9 $$'
    docker exec --privileged box true || contains 'not permitted' "$(docker exec --privileged box true 2>&1)"
}

check_attach_and_logs() {
    docker run --detach --interactive --runtime husk --name box "$image" sh -c 'while read line; do echo "heard $line"; done'
    contains 'heard one' "$({ echo one; sleep $((${PATIENCE:-30} / 15)); } | timeout $((${PATIENCE:-30} / 10)) docker attach --sig-proxy=false box || true)"
    same 'heard one' "$(docker logs box)"
}

check_stop_and_kill() {
    background
    docker stop --time 10 box
    same 'exited 0' "$(inspect '{{.State.Status}} {{.State.ExitCode}}')"
    docker start box
    docker kill box
    eventually sh -c '[ "$(docker inspect --format "{{.State.Status}} {{.State.ExitCode}}" box)" = "exited 137" ]'
    docker run --detach --runtime husk --name deaf "$image" sh -c 'trap "" TERM; while :; do sleep 0.1; done'
    docker stop --time 1 deaf
    same 137 "$(inspect '{{.State.ExitCode}}' deaf)"
    docker run --detach --runtime husk --name own --stop-signal USR1 "$image" sh -c 'trap "exit 9" USR1; touch /tmp/ready; while :; do sleep 0.1; done'
    eventually docker exec own test -e /tmp/ready
    docker stop --time 10 own
    same 9 "$(inspect '{{.State.ExitCode}}' own)"
}

check_pause_and_unpause() {
    background
    docker pause box
    same paused "$(inspect '{{.State.Status}}')"
    exits 1 docker exec box true
    docker unpause box
    docker exec box true
}

check_restart_policies() {
    docker run --detach --runtime husk --name again --restart on-failure:2 "$image" sh -c 'echo again; exit 1'
    eventually sh -c '[ "$(docker inspect --format "{{.State.Status}} {{.RestartCount}}" again)" = "exited 2" ]'
    same 3 "$(docker logs again | grep -c again)"
    background
    local before
    before=$(inspect '{{.State.Pid}}')
    docker restart --time 5 box
    [ "$(inspect '{{.State.Pid}}')" != "$before" ]
    docker exec box true
}

check_healthcheck() {
    background --health-cmd 'test -e /tmp/healthy' --health-interval 1s --health-retries 1
    eventually sh -c '[ "$(docker inspect --format "{{.State.Health.Status}}" box)" = unhealthy ]'
    docker exec box touch /tmp/healthy
    eventually sh -c '[ "$(docker inspect --format "{{.State.Health.Status}}" box)" = healthy ]'
}

check_init_reaps() {
    contains 'docker-init|tini' "$(run --init "$image" cat /proc/1/cmdline | tr '\0' ' ')"
    exits 7 run --init "$image" sh -c 'exit 7'
}

check_update() {
    background --memory 64m
    docker update --memory 128m --memory-swap 128m --cpus 0.25 --pids-limit 30 box
    if cgroup_is_v2; then
        same '134217728 30' "$(docker exec box cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/pids.max | xargs)"
        same '25000 100000' "$(docker exec box cat /sys/fs/cgroup/cpu.max)"
    else
        same '134217728 30' "$(docker exec box cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/pids/pids.max | xargs)"
        same 25000 "$(docker exec box cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us)"
    fi
}

check_limits() {
    contains "can't fork" "$(run --pids-limit 3 "$image" sh -c 'for i in 1 2 3 4 5; do sleep 1 & done' 2>&1 || true)"
    run --pids-limit -1 "$image" sh -c 'for i in 1 2 3 4 5; do true & done; wait'
    same 1 "$(run --cpuset-cpus 0 "$image" nproc)"
    same '99' "$(run --ulimit nofile=99:99 "$image" sh -c 'ulimit -n')"
    exits 137 docker run --runtime husk --name box --memory 16m --memory-swap 16m "$image" sh -c 'tail /dev/zero; sleep 0.5; exit 137'
    same true "$(inspect '{{.State.OOMKilled}}')"
}

check_stats_and_top() {
    background
    contains '^box [0-9.]+' "$(docker stats --no-stream --format '{{.Name}} {{.MemUsage}} {{.PIDs}}' box)"
    [ "$(docker stats --no-stream --format '{{.PIDs}}' box)" -ge 1 ]
    contains 'sleep 0.1' "$(docker top box)"
    contains 'sleep 0.1' "$(docker top box -o pid,args)"
}

check_capabilities_and_seccomp() {
    status() { run "$@" "$image" awk '/^(CapEff|Seccomp|NoNewPrivs):/ { print $2 }' /proc/self/status | xargs; }
    same '00000000a80425fb 0 2' "$(status)"
    same '0000000000000000 0 2' "$(status --cap-drop all)"
    same '0000000000001000 1 0' "$(status --cap-drop all --cap-add net_admin --security-opt no-new-privileges --security-opt seccomp=unconfined)"
    exits 1 run "$image" sh -c 'unshare -U true 2>/dev/null'
    cat >"$work/profile.json" <<END
{"defaultAction": "SCMP_ACT_ALLOW",
 "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 28}]}
END
    contains 'No space left' "$(run --security-opt "seccomp=$work/profile.json" "$image" mkdir /x 2>&1 || true)"
}

check_privileged() {
    need 'not every capability is ours to give' can_do_everything
    run --privileged "$image" mount -t tmpfs none /tmp
    run --privileged "$image" test -e /dev/kmsg
}

check_read_only() {
    exits 1 run --read-only "$image" touch /here
    run --read-only --tmpfs /tmp "$image" touch /tmp/there
    contains 'size=1024k' "$(run --tmpfs /t:size=1m "$image" grep ' /t ' /proc/self/mounts)"
}

check_volumes() {
    mkdir -p "$work/volume"
    echo hello >"$work/volume/file"
    same hello "$(run --volume "$work/volume:/v:ro" "$image" cat /v/file)"
    exits 1 run --volume "$work/volume:/v:ro" "$image" touch /v/new
    run --volume "$work/volume:/v" "$image" touch /v/new
    [ -e "$work/volume/new" ]
    contains ' shared:' "$(run --volume "$work/volume:/v:shared" "$image" grep ' /v ' /proc/self/mountinfo)"
    contains ' master:' "$(run --volume "$work/volume:/v:slave" "$image" grep ' /v ' /proc/self/mountinfo)"
    run --volume data:/etc "$image" touch /etc/new
    run --volume data:/v "$image" test -e /v/new -a -e /v/passwd
    docker volume rm data
}

check_devices() {
    same 'character special file' "$(run --device /dev/kmsg "$image" stat -c %F /dev/kmsg)"
    exits 1 run --device /dev/kmsg:/dev/other:r "$image" sh -c 'echo 2>/dev/null >/dev/other'
    exits 1 run "$image" sh -c 'mknod /tmp/d c 1 11 && echo 2>/dev/null >/tmp/d'
    run --device-cgroup-rule 'c 1:11 rwm' "$image" sh -c 'mknod /tmp/d c 1 11 && echo >/tmp/d'
}

check_users_sysctls_and_names() {
    same 'guest 1000' "$(run --user guest "$image" sh -c 'echo $(id -un) $(id -g)')"
    contains 4000 "$(run --group-add 4000 "$image" id -G)"
    same /new/place "$(run --workdir /new/place "$image" pwd)"
    same 7 "$(run --sysctl kernel.msgmni=7 "$image" cat /proc/sys/kernel/msgmni)"
    same box "$(run --hostname box "$image" hostname)"
    same 500 "$(run --oom-score-adj 500 "$image" cat /proc/self/oom_score_adj)"
}

check_namespaces_of_the_host_and_of_others() {
    same "$(readlink /proc/self/ns/pid)" "$(run --pid host "$image" readlink /proc/self/ns/pid)"
    same "$(readlink /proc/self/ns/ipc)" "$(run --ipc host "$image" readlink /proc/self/ns/ipc)"
    same "$(readlink /proc/self/ns/uts)" "$(run --uts host "$image" readlink /proc/self/ns/uts)"
    same "$(readlink /proc/self/ns/net)" "$(run --network host "$image" readlink /proc/self/ns/net)"
    same lo "$(run --network none "$image" ls /sys/class/net)"
    background --ipc shareable
    local name
    for name in pid net ipc; do
        same "$(docker exec box readlink /proc/self/ns/$name)" \
            "$(run --pid container:box --network container:box --ipc container:box "$image" readlink /proc/self/ns/$name)"
    done
}

check_published_ports() {
    background --publish 18081:80
    docker exec --detach box sh -c 'echo served >/index.html; httpd -f -h /'
    eventually docker exec box wget -q -O - http://127.0.0.1/
    same served "$(busybox wget -q -O - http://127.0.0.1:18081/)"
}

# Starts the containers that a compose file with three services describes.
check_three_containers_on_a_network() {
    docker network create --subnet 10.98.0.0/24 ours
    docker volume create pages
    docker run --detach --runtime husk --network ours --name store --volume pages:/pages "$image" \
        sh -c 'echo from the store >/pages/index.html; sleep 1000'
    docker run --detach --runtime husk --network ours --name web --volumes-from store "$image" httpd -f -h /pages
    docker run --detach --runtime husk --network ours --name reader "$image" \
        sh -c 'while :; do wget -q -O - http://web/; sleep 0.2; done'
    eventually sh -c 'docker logs reader | grep -q "from the store"'
    docker restart --time 0 web
    docker rm --force reader web store
    docker network rm ours
    docker volume rm pages
}

check_cp_diff_commit_and_export() {
    background
    echo copied >"$work/copied"
    docker cp "$work/copied" box:/copied
    same copied "$(docker exec box cat /copied)"
    contains '/copied' "$(docker diff box)"
    docker commit box committed
    same copied "$(run committed cat /copied)"
    docker export box | tar -t | grep -qx copied
    docker rmi --force committed
}

check_build() {
    local output
    output=$(docker build --network none --quiet --tag built - <<END
FROM $image
RUN mkdir /made && echo built >/made/file
USER guest
RUN id -un >/tmp/who
CMD ["cat", "/made/file", "/tmp/who"]
END
)
    contains sha256 "$output"
    same 'built guest' "$(run built | xargs)"
    docker rmi --force built
}

check_twenty_containers_at_once() {
    local i pids=()
    for i in $(seq 20); do
        docker run --detach --runtime husk --network none --name "many$i" "$image" sleep 1000 >/dev/null &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i"; done
    same 20 "$(docker ps --quiet | wc -l)"
}

# Starts a container `box` that counts.
# docker 28 restores no container with a network of its own: it asks for the network of a process that is not there yet
# (daemon/start_linux.go).
count_in_box() {
    docker run --detach --runtime husk --name box --network "${checkpoint_network:-none}" "$image" sh -c "$counting"
    eventually docker exec box test -s /data/n
}
count_of() { docker exec "$1" cat /data/n; }

# Fails if docker could not start a container because containerd has not yet removed its copy of the checkpoint
# (moby#42900).
has_an_answer() { # COMMAND...
    "$@" >"$work/said" 2>&1 || ! grep -q 'upload checkpoint to containerd: .*already exists' "$work/said"
}

check_checkpoint_and_start() {
    local count
    needs_criu
    count_in_box
    count=$(count_of box)
    docker checkpoint create box first
    # docker tells no shim that is configured by its name that the container is to end (libcontainerd/remote/client.go).
    [ -z "${shim-}" ] || docker kill box
    eventually sh -c '[ "$(docker inspect --format "{{.State.Status}}" box)" = exited ]'
    contains '^first' "$(docker checkpoint ls box)"
    eventually has_an_answer docker start --checkpoint first box
    cat "$work/said"
    counts_from box "$count"
    docker checkpoint rm box first
    same '' "$(docker checkpoint ls box | grep first || true)"
}

check_checkpoint_leaves_the_container_running() {
    local count
    needs_criu
    count_in_box
    count=$(count_of box)
    docker checkpoint create --leave-running box first
    same running "$(inspect '{{.State.Status}}')"
    counts_from box "$count"
}

# --- Failures. `runtime` is set when these functions are called. ----------------------------------------------------

failing() { docker run --rm --name box --runtime "$runtime" "$@"; }
running() { docker run --detach --name box --runtime "$runtime" "$@" "$image" sleep 1000 >/dev/null; }
in_running() { running && docker exec "$@"; }

check_error_programs_that_cannot_be_run() { programs_that_cannot_be_run 127; }

check_error_exec_of_what_cannot_be_run() { execs_of_what_cannot_be_run; }

check_error_mounts_and_settings() {
    mounts_that_cannot_be_made
    settings_that_are_none
}

check_error_of_memory_that_runs_out() {
    as_with_runc 'memory runs out' failing --memory 16m --memory-swap 16m "$image" sh -c 'exec tail /dev/zero'
}

check_error_of_containers_that_are_not_running() {
    dead() { docker run --name box --runtime "$runtime" "$image" true && "$@"; }
    paused() { running && docker pause box && "$@"; }
    as_with_runc 'kill of one that is dead' dead docker kill box
    as_with_runc 'exec in one that is dead' dead docker exec box true
    as_with_runc 'exec in one that is paused' paused docker exec box true
    keep_errors
}

check_the_readme_is_right() {
    local line
    while read -r line; do
        (cd "$root" && sh -c "$line")
    done < <(sed -n 's/^\$ \(docker .*\)/\1/p' "$root/README.md")
}

check_nothing_is_left() {
    after_check
    same '' "$(find /run/docker/runtime-runc/moby /run/containerd/runc/moby -mindepth 1 -maxdepth 1 2>/dev/null)"
    # dockerd 28 keeps the cgroup that its builds have in common.
    same '' "$(find /sys/fs/cgroup/*/docker /sys/fs/cgroup/docker -mindepth 1 -type d ! -name buildkit 2>/dev/null)"
}

check_everything_may_run_on_husk() {
    need 'only husk registers itself' husk register --help
    need 'the shim is not husk' test "${shim-}" != io.containerd.runc.v2
    husk register docker --default ${shim:+--shim}
    pkill -HUP --pidfile /var/run/docker.pid
    eventually sh -c '[ "$(docker info --format "{{.DefaultRuntime}}")" = husk ]'
    same hi "$(docker run --rm "$image" echo hi)"
    docker build --network none --quiet - <<END
FROM $image
RUN id -u
END
}

run_checks "$@"
