#!/bin/bash
# Tests podman and buildah with husk as their runtime.
packages='podman buildah conmon crun runc netavark aardvark-dns catatonit uidmap slirp4netns busybox-static iptables iproute2 jq util-linux'
. "$(dirname "$0")/../lib/criu.sh"
. "$(dirname "$0")/../lib/errors.sh"
. "$(dirname "$0")/../lib/podman.sh"
. "$(dirname "$0")/../lib/room.sh"

before_checks() {
    configure_podman
    # Adds an ordinary user, for rootless containers.
    echo 'husky:x:4321:4321::/home/husky:/bin/sh' >>/etc/passwd
    echo 'husky:x:4321:' >>/etc/group
    echo 'husky:*:20000::::::' >>/etc/shadow
    echo 'husky:2000000:65536' | tee -a /etc/subuid >>/etc/subgid
    podman load --quiet --input "$work/image.tar"
}

after_check() {
    podman pod rm --all --force --time 0
    podman rm --all --force --time 0
    podman volume prune --force
}

after_checks() {
    remove_cgroups libpod_parent
}

# Runs a container and removes it afterwards.
run() { podman run --rm "$@"; }

# Starts a container 'c' that runs until SIGTERM.
background() {
    podman run --detach --name c "$@" "$image" \
        sh -c 'trap "exit 0" TERM; touch /tmp/ready; while :; do sleep 0.1; done'
    eventually podman exec c test -e /tmp/ready
}

check_run_passes_output_and_exit_code_on() {
    same 'to stdout' "$(run "$image" echo 'to stdout')"
    same 'to stderr' "$(run "$image" sh -c 'echo to stderr >&2' 2>&1)"
    exits 3 run "$image" sh -c 'exit 3'
    same abc "$(echo abc | run --interactive "$image" cat)"
}

check_info_names_husk() {
    same husk "$(podman info --format '{{.Host.OCIRuntime.Name}}')"
    contains version "$(podman info --format '{{.Host.OCIRuntime.Version}}')"
}

check_run_with_a_terminal() {
    contains '^/dev/(pts/0|console)$' "$(with_terminal podman run --rm -it "$image" sh -c 'sleep 0.5; tty; sleep 0.5')"
    contains '^xterm$' "$(with_terminal podman run --rm -it "$image" sh -c 'sleep 0.5; echo $TERM; sleep 0.5')"
}

check_exec() {
    background --env A=1
    same 'guest 1 2 /tmp' "$(podman exec --user guest --env B=2 --workdir /tmp c sh -c 'echo $(id -un) $A $B $PWD')"
    exits 5 podman exec c sh -c 'exit 5'
    same abc "$(echo abc | podman exec --interactive c cat)"
    contains '^/dev/pts/' "$(with_terminal podman exec -it c sh -c 'sleep 0.5; tty; sleep 0.5')"
    podman exec --detach c touch /tmp/detached
    eventually podman exec c test -e /tmp/detached
    same 1000:2000 "$(podman exec --user 1000:2000 c sh -c 'echo $(id -u):$(id -g)')"
    contains plenty "$(podman exec --user guest c id -Gn)"
    exits 137 podman exec c sh -c 'kill -9 $$'
}

check_exec_privileged() {
    background --cap-drop all
    same 0000000000000000 "$(podman exec c awk '/^CapEff/ { print $2 }' /proc/self/status)"
    [ "$(podman exec --privileged c awk '/^CapEff/ { print $2 }' /proc/self/status)" != 0000000000000000 ]
}

check_attach_and_logs() {
    podman run --detach --interactive --name c "$image" sh -c 'while read line; do echo "heard $line"; done'
    { echo one; sleep 1; } | podman attach c | grep -q 'heard one'
    same 'heard one' "$(podman logs c)"
    contains 'heard one' "$(timeout 2 podman logs --follow c || true)"
}

check_stop_and_kill() {
    background
    podman stop --time 10 c
    same 'exited 0' "$(podman inspect --format '{{.State.Status}} {{.State.ExitCode}}' c)"
    podman start c
    podman kill --signal KILL c
    podman wait c
    same 'exited 137' "$(podman inspect --format '{{.State.Status}} {{.State.ExitCode}}' c)"
    podman run --detach --name deaf "$image" sh -c 'trap "" TERM; while :; do sleep 0.1; done'
    podman stop --time 1 deaf
    same 137 "$(podman inspect --format '{{.State.ExitCode}}' deaf)"
    podman run --detach --name own --stop-signal USR1 "$image" sh -c 'trap "exit 9" USR1; touch /tmp/ready; while :; do sleep 0.1; done'
    eventually podman exec own test -e /tmp/ready
    podman stop --time 10 own
    same 9 "$(podman inspect --format '{{.State.ExitCode}}' own)"
}

check_pause_and_unpause() {
    background
    podman pause c
    same paused "$(podman inspect --format '{{.State.Status}}' c)"
    exits 255 podman exec c true
    podman unpause c
    podman exec c true
}

check_restart() {
    background
    local before
    before=$(podman inspect --format '{{.State.Pid}}' c)
    podman restart --time 5 c
    [ "$(podman inspect --format '{{.State.Pid}}' c)" != "$before" ]
    podman exec c true
    podman run --detach --name again --restart on-failure:2 "$image" sh -c 'echo again; exit 1'
    eventually sh -c '[ "$(podman inspect --format "{{.State.Status}} {{.RestartCount}}" again)" = "exited 2" ]'
    same 3 "$(podman logs again | grep -c again)"
}

check_healthcheck() {
    background --health-cmd 'test -e /tmp/healthy' --health-interval disable
    exits 1 podman healthcheck run c
    podman exec c touch /tmp/healthy
    podman healthcheck run c
}

check_healthcheck_by_a_timer() {
    need 'systemd makes the timers' systemd_runs
    background --health-cmd 'test -e /tmp/healthy' --health-interval 1s
    podman exec c touch /tmp/healthy
    eventually sh -c '[ "$(podman inspect --format "{{.State.Health.Status}}" c)" = healthy ]'
}

check_init_reaps() {
    contains 'catatonit|podman-init' "$(run --init "$image" cat /proc/1/cmdline)"
    exits 7 run --init "$image" sh -c 'exit 7'
}

check_pods_share_namespaces() {
    podman pod create --name p --hostname together
    podman run --detach --pod p --name a "$image" sh -c 'trap "exit 0" TERM; while :; do sleep 0.1; done'
    podman run --detach --pod p --name b "$image" sh -c 'trap "exit 0" TERM; while :; do sleep 0.1; done'
    local name
    for name in net ipc uts; do
        same "$(podman exec a readlink /proc/self/ns/$name)" "$(podman exec b readlink /proc/self/ns/$name)"
    done
    for name in mnt pid; do
        [ "$(podman exec a readlink /proc/self/ns/$name)" != "$(podman exec b readlink /proc/self/ns/$name)" ]
    done
    same together "$(podman exec a hostname)"
    podman pod pause p
    same Paused "$(podman pod inspect --format '{{.State}}' p)"
    podman pod unpause p
    podman pod stop --time 5 p
    podman pod start p
    podman exec b true
}

check_pods_with_one_pid_namespace() {
    podman pod create --name p --share pid,net,uts,ipc
    podman run --detach --pod p --name a "$image" sleep 1000
    podman run --detach --pod p --name b "$image" sleep 1001
    contains 'sleep 1000' "$(podman exec b ps)"
    contains 'sleep 1001' "$(podman exec a ps)"
    podman kill --signal KILL a
    podman wait a
    podman exec b true
}

check_userns_auto() {
    contains '^ +0 +2[0-9]{5} +' "$(run --userns auto "$image" cat /proc/self/uid_map)"
    podman run --detach --userns auto --name c "$image" sleep 1000
    same root "$(podman exec c id -un)"
    exits 1 podman exec c sh -c 'mount -t tmpfs none /tmp 2>/dev/null || exit 1'
}

check_uid_maps() {
    contains '^ +0 +300000 +5000$' "$(run --uidmap 0:300000:5000 "$image" cat /proc/self/uid_map)"
    same 0:0 "$(run --uidmap 0:300000:5000 "$image" stat -c %u:%g /etc/passwd)"
    same guest "$(run --uidmap 0:300000:5000 --user guest "$image" id -un)"
}

check_read_only() {
    exits 1 run --read-only "$image" touch /here
    run --read-only "$image" touch /tmp/there
    exits 1 run --read-only --read-only-tmpfs=false "$image" touch /tmp/there
}

check_capabilities() {
    effective() { run "$@" "$image" awk '/^CapEff/ { print $2 }' /proc/self/status; }
    same 00000000800405fb "$(effective)"
    same 0000000000000000 "$(effective --cap-drop all)"
    same 0000000000001000 "$(effective --cap-drop all --cap-add net_admin)"
    same 0000000000000000 "$(effective --user guest)"
    same 0000000000001000 "$(effective --user guest --cap-drop all --cap-add net_admin)"
}

check_seccomp() {
    same 2 "$(run "$image" awk '/^Seccomp:/ { print $2 }' /proc/self/status)"
    same 0 "$(run --security-opt seccomp=unconfined "$image" awk '/^Seccomp:/ { print $2 }' /proc/self/status)"
    cat >"$work/profile.json" <<END
{"defaultAction": "SCMP_ACT_ALLOW",
 "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 28}]}
END
    contains 'No space left' "$(run --security-opt "seccomp=$work/profile.json" "$image" mkdir /x 2>&1 || true)"
}

check_no_new_privileges() {
    same 0 "$(run "$image" awk '/^NoNewPrivs/ { print $2 }' /proc/self/status)"
    same 1 "$(run --security-opt no-new-privileges "$image" awk '/^NoNewPrivs/ { print $2 }' /proc/self/status)"
}

check_masks() {
    same '' "$(run "$image" cat /proc/keys)"
    exits 1 run "$image" sh -c 'echo 1 2>/dev/null >/proc/sys/kernel/domainname'
    [ -n "$(run --security-opt unmask=/proc/timer_list:/proc/keys "$image" cat /proc/keys)" ]
    same '' "$(run --security-opt mask=/etc/passwd "$image" cat /etc/passwd)"
}

check_privileged() {
    run --privileged "$image" mount -t tmpfs none /tmp
    same 0 "$(run --privileged "$image" awk '/^Seccomp:/ { print $2 }' /proc/self/status)"
    run --privileged "$image" test -e /dev/kmsg
}

# Prints a file of the container's cgroup as the container sees it. V1 and V2 are its names in the two cgroup versions.
limit() { # V1 V2 [OPTION...]
    local v1=$1 v2=$2
    shift 2
    if cgroup_is_v2; then run "$@" "$image" cat "/sys/fs/cgroup/$v2"; else run "$@" "$image" cat "/sys/fs/cgroup/$v1"; fi
}

check_limits_of_memory() {
    same 67108864 "$(limit memory/memory.limit_in_bytes memory.max --memory 64m)"
    same 33554432 "$(limit memory/memory.soft_limit_in_bytes memory.low --memory 64m --memory-reservation 32m)"
    exits 137 run --memory 16m --memory-swap 16m "$image" sh -c 'exec tail /dev/zero'
}

check_memory_that_ran_out_is_told() {
    told_with() { # RUNTIME
        exits 137 podman --runtime "$1" run --name c --memory 16m --memory-swap 16m "$image" sh -c 'tail /dev/zero; sleep 0.5; exit 137'
        same true "$(podman inspect --format '{{.State.OOMKilled}}' c)"
    }
    # conmon watches for the event. An old conmon stops watching after the first event, which may be a different one.
    need 'conmon does not tell of it with runc either' told_with runc
    podman rm --force c
    told_with husk
}

check_limits_of_processors() {
    if cgroup_is_v2; then
        same '50000 100000' "$(run --cpus 0.5 "$image" cat /sys/fs/cgroup/cpu.max)"
    else
        same 50000 "$(run --cpus 0.5 "$image" cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us)"
        same 512 "$(run --cpu-shares 512 "$image" cat /sys/fs/cgroup/cpu/cpu.shares)"
    fi
    same 0 "$(limit cpuset/cpuset.cpus cpuset.cpus --cpuset-cpus 0)"
    same 1 "$(run --cpuset-cpus 0 "$image" nproc)"
}

check_limits_of_processes() {
    same 20 "$(limit pids/pids.max pids.max --pids-limit 20)"
    same max "$(limit pids/pids.max pids.max --pids-limit -1)"
    contains "can't fork" "$(run --pids-limit 3 "$image" sh -c 'for i in 1 2 3 4 5; do sleep 1 & done' 2>&1 || true)"
}

check_limits_hold() {
    local file=/sys/fs/cgroup/cpu.stat
    cgroup_is_v2 || file=/sys/fs/cgroup/cpu/cpu.stat
    contains '^nr_throttled [1-9]' "$(run --cpus 0.1 "$image" sh -c "timeout 2 sh -c 'while :; do :; done'; cat $file")"
    background --memory 64m
    contains '/ 67\.11MB$' "$(podman stats --no-stream --format '{{.MemUsage}}' c)"
}

check_cgroups_by_systemd() {
    need 'systemd does not run' systemd_runs
    background --memory 64m
    local unit
    unit=$(basename "$(podman inspect --format '{{.State.CgroupPath}}' c)")
    same "libpod-$(podman inspect --format '{{.Id}}' c).scope" "$unit"
    same '67108864 active machine.slice' "$(systemctl show --property MemoryMax,ActiveState,Slice --value "$unit" | sort | xargs)"
    contains "/machine.slice/$unit" "$(cat "/proc/$(podman inspect --format '{{.State.Pid}}' c)/cgroup")"
    podman update --memory 128m --cpu-shares 512 c
    contains '134217728' "$(podman exec c cat /sys/fs/cgroup/memory.max)"
    podman rm --force --time 0 c
    eventually sh -c "[ \"\$(systemctl show --property ActiveState --value '$unit')\" = inactive ]"
}

check_no_cgroup_at_all() {
    same "$(cat /proc/self/cgroup)" "$(run --cgroups disabled --cgroupns host "$image" cat /proc/self/cgroup)"
}

check_update() {
    background --memory 64m
    podman update --memory 128m --cpus 0.25 c
    if cgroup_is_v2; then
        same 134217728 "$(podman exec c cat /sys/fs/cgroup/memory.max)"
        same '25000 100000' "$(podman exec c cat /sys/fs/cgroup/cpu.max)"
    else
        same 134217728 "$(podman exec c cat /sys/fs/cgroup/memory/memory.limit_in_bytes)"
        same 25000 "$(podman exec c cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us)"
    fi
}

check_volumes() {
    mkdir -p "$work/volume"
    echo hello >"$work/volume/file"
    same hello "$(run --volume "$work/volume:/v:ro" "$image" cat /v/file)"
    exits 1 run --volume "$work/volume:/v:ro" "$image" touch /v/new
    run --volume "$work/volume:/v" "$image" touch /v/new
    [ -e "$work/volume/new" ]
    same hello "$(run --volume "$work/volume/file:/etc/one/file" "$image" cat /etc/one/file)"
    contains 'nosuid,nodev,noexec' "$(run --volume "$work/volume:/v:nosuid,nodev,noexec" "$image" grep ' /v ' /proc/self/mounts)"
    contains ' shared:' "$(run --volume "$work/volume:/v:shared" "$image" grep ' /v ' /proc/self/mountinfo)"
    contains ' master:' "$(run --volume "$work/volume:/v:slave" "$image" grep ' /v ' /proc/self/mountinfo)"
    run --volume "$work/volume:/v:O" "$image" touch /v/upper
    [ ! -e "$work/volume/upper" ]
    run --volume "$work/volume:/v:U" --user guest "$image" touch /v/mine
    same 1000 "$(stat -c %u "$work/volume/mine")"
    run --volume "$work/volume:/v:Z" "$image" cat /v/file
    same hello "$(run --mount "type=bind,source=$work/volume,target=/v,readonly,bind-nonrecursive" "$image" cat /v/file)"
}

check_volumes_of_mounts_in_mounts() {
    mkdir -p "$work/outer/inner"
    mount -t tmpfs tmpfs "$work/outer/inner"
    echo below >"$work/outer/inner/file"
    same below "$(run --volume "$work/outer:/v:rbind,ro" "$image" cat /v/inner/file)"
    exits 1 run --volume "$work/outer:/v:bind" "$image" test -e /v/inner/file
    umount "$work/outer/inner"
}

check_volumes_with_mapped_ids() {
    mkdir -p "$work/mapped"
    touch "$work/mapped/file"
    same 0 "$(run --uidmap 0:300000:5000 --volume "$work/mapped:/v:idmap" "$image" stat -c %u /v/file)"
    same 65534 "$(run --uidmap 0:300000:5000 --volume "$work/mapped:/v" "$image" stat -c %u /v/file)"
}

check_named_volumes() {
    run --volume data:/etc "$image" touch /etc/new
    same guest "$(run --volume data:/v "$image" sh -c 'test -e /v/new && tail -n 1 /v/passwd | cut -d : -f 1')"
    podman volume create --opt type=tmpfs --opt device=tmpfs --opt o=mode=700 small
    contains '^tmpfs .*mode=700' "$(run --volume small:/v "$image" grep ' /v ' /proc/self/mounts)"
    background --volume data:/v
    same new "$(run --volumes-from c "$image" ls /v/new | xargs basename)"
}

check_tmpfs() {
    contains 'noexec.*size=1024k,mode=750' "$(run --tmpfs /t:size=1m,mode=750,noexec "$image" grep ' /t ' /proc/self/mounts)"
    contains 'size=2048k' "$(run --mount type=tmpfs,destination=/t,tmpfs-size=2m "$image" grep ' /t ' /proc/self/mounts)"
    same passwd "$(run --tmpfs /etc:tmpcopyup "$image" ls /etc/passwd | xargs basename)"
    contains 'size=1024k' "$(run --shm-size 1m "$image" grep ' /dev/shm ' /proc/self/mounts)"
}

check_images_as_volumes() {
    same busybox "$(run --mount "type=image,source=$image,destination=/i" "$image" ls /i/bin/busybox | xargs basename)"
}

check_network() {
    same lo "$(run --network none "$image" ls /sys/class/net)"
    same "$(ip -brief link | cut -d ' ' -f 1 | cut -d @ -f 1 | sort)" "$(run --network host "$image" ls /sys/class/net | sort)"
    podman run --detach --name web --publish 18080:80 "$image" sh -c 'echo served >/index.html; httpd -f -h /'
    eventually podman exec web wget -q -O - http://127.0.0.1/
    same served "$(curl -s http://127.0.0.1:18080/ || busybox wget -q -O - http://127.0.0.1:18080/)"
    same served "$(run --network container:web "$image" wget -q -O - http://127.0.0.1/)"
}

check_network_of_its_own() {
    podman network create --subnet 10.97.0.0/24 ours
    podman run --detach --name web --network ours "$image" sh -c 'echo served >/index.html; httpd -f -h /'
    eventually podman exec web wget -q -O - http://127.0.0.1/
    same served "$(run --network ours "$image" wget -q -O - http://web/)"
    podman rm --force --time 0 web
    podman network rm ours
}

check_namespaces_of_the_host() {
    same "$(readlink /proc/self/ns/pid)" "$(run --pid host "$image" readlink /proc/self/ns/pid)"
    same "$(readlink /proc/self/ns/ipc)" "$(run --ipc host "$image" readlink /proc/self/ns/ipc)"
    same "$(readlink /proc/self/ns/uts)" "$(run --uts host "$image" readlink /proc/self/ns/uts)"
    same "$(readlink /proc/self/ns/cgroup)" "$(run --cgroupns host "$image" readlink /proc/self/ns/cgroup)"
    [ "$(readlink /proc/self/ns/cgroup)" != "$(run --cgroupns private "$image" readlink /proc/self/ns/cgroup)" ]
}

check_a_container_in_the_hosts_pid_namespace_is_killed_whole() {
    podman run --detach --pid host --name c "$image" sh -c 'sleep 54321 & sleep 54321'
    podman rm --force --time 0 c
    eventually sh -c '! pgrep -f "^sleep 54321"'
}

check_devices() {
    same 'character special file' "$(run --device /dev/kmsg "$image" stat -c %F /dev/kmsg)"
    same 'character special file' "$(run --device /dev/null:/dev/other "$image" stat -c %F /dev/other)"
    exits 1 run --device /dev/kmsg:/dev/other:r "$image" sh -c 'echo 2>/dev/null >/dev/other'
    exits 1 run --cap-add mknod "$image" sh -c 'mknod /tmp/d c 1 11 && echo 2>/dev/null >/tmp/d'
    run --cap-add mknod --device-cgroup-rule 'c 1:11 rwm' "$image" sh -c 'mknod /tmp/d c 1 11 && echo >/tmp/d'
}

check_sysctls_limits_and_names() {
    same 7 "$(run --sysctl net.ipv4.ip_default_ttl=33 --sysctl kernel.msgmni=7 "$image" cat /proc/sys/kernel/msgmni)"
    same 99 "$(run --ulimit nofile=99:99 --ulimit nproc=1000:1000 "$image" sh -c 'ulimit -n')"
    same box "$(run --hostname box "$image" hostname)"
    contains '^10.9.8.7[[:space:]]*there' "$(run --add-host there:10.9.8.7 "$image" cat /etc/hosts)"
    contains 'nameserver 10.9.8.7' "$(run --dns 10.9.8.7 "$image" cat /etc/resolv.conf)"
    same 500 "$(run --oom-score-adj 500 "$image" cat /proc/self/oom_score_adj)"
    same 0077 "$(run --umask 0077 "$image" sh -c umask)"
}

check_users_and_directories() {
    same 'guest 1000' "$(run --user guest "$image" sh -c 'echo $(id -un) $(id -g)')"
    same '77 88' "$(run --user 77:88 "$image" sh -c 'echo $(id -u) $(id -g)')"
    contains '4000' "$(run --group-add 4000 "$image" id -G)"
    same /home/guest "$(run --user guest "$image" sh -c 'echo $HOME')"
    same /new/place "$(run --workdir /new/place "$image" pwd || podman run --rm "$image" sh -c 'mkdir -p /new/place; cd /new/place; pwd')"
    same /tmp "$(run --workdir /tmp "$image" pwd)"
}

check_descriptors_are_passed_on() {
    echo passed >"$work/descriptor"
    same passed "$(podman run --rm --preserve-fds 1 "$image" cat /proc/self/fd/3 3<"$work/descriptor")"
    same '0 1 2 3' "$(run "$image" ls /proc/self/fd | xargs)"
}

check_oci_hooks() {
    mkdir -p "$work/hooks"
    cat >"$work/hooks/one.json" <<END
{"version": "1.0.0", "when": {"always": true}, "stages": ["prestart", "poststop"],
 "hook": {"path": "/bin/sh", "args": ["sh", "-c", "cat >>$work/hooks/heard; echo >>$work/hooks/heard"]}}
END
    podman --hooks-dir "$work/hooks" run --rm "$image" true
    eventually grep -q '"status": *"stopped"' "$work/hooks/heard"
    grep -qE '"status": *"creat(ing|ed)"' "$work/hooks/heard"
}

check_top_stats_and_ps() {
    background
    contains 'sleep 0.1' "$(podman top c pid args)"
    contains 'sleep 0.1' "$(podman top c -o args)"
    contains '^c .*' "$(podman stats --no-stream --format '{{.Name}} {{.MemUsage}} {{.PIDS}}' c)"
    [ "$(podman stats --no-stream --format json c | jq -r '.[0].pids')" -ge 1 ]
    contains '^c Up' "$(podman ps --format '{{.Names}} {{.Status}}')"
}

check_cp_diff_commit_and_export() {
    background
    echo copied >"$work/copied"
    podman cp "$work/copied" c:/copied
    same copied "$(podman exec c cat /copied)"
    podman cp c:/etc/passwd "$work/passwd"
    contains guest "$(cat "$work/passwd")"
    # `podman diff c` could take c for the beginning of an image id.
    contains '/copied' "$(podman container diff c)"
    podman commit --quiet c localhost/committed
    same copied "$(run localhost/committed cat /copied)"
    podman export c | tar -t | grep -qx copied
    podman rmi --force localhost/committed
}

check_run_of_a_root_file_system() {
    mkdir -p "$work/rootfs/bin"
    cp "$(command -v busybox)" "$work/rootfs/bin/sh"
    same here "$(run --rootfs "$work/rootfs" /bin/sh -c 'echo here')"
}

check_secrets() {
    printf secret | podman secret create s -
    same secret "$(run --secret s "$image" cat /run/secrets/s)"
    same secret "$(run --secret s,type=env,target=S "$image" sh -c 'echo $S')"
    podman secret rm s
}

check_play_kube() {
    grep -v '^  runtimeClassName' "$examples/kubernetes/pod.yaml" >"$work/pod.yaml"
    podman play kube "$work/pod.yaml"
    eventually podman exec hello-client wget -q -O - http://127.0.0.1:8080/
    eventually sh -c 'podman logs hello-client | grep -q hello'
    podman play kube --down "$work/pod.yaml" || echo 'podman may not wait for the end of conmon'
    eventually sh -c '[ -z "$(podman ps --quiet)" ]'
}

check_build() {
    mkdir -p "$work/build"
    cat >"$work/build/Containerfile" <<END
FROM $image
RUN mkdir /made && echo built >/made/file
RUN --mount=type=tmpfs,target=/scratch touch /scratch/x && id -u >>/made/file
USER guest
RUN id -un >/tmp/who
WORKDIR /made
CMD ["cat", "file", "/tmp/who"]
END
    podman build --network none --tag localhost/built "$work/build"
    same 'built 0 guest' "$(run localhost/built | xargs)"
    exits 6 podman build --network none - <<END
FROM $image
RUN exit 6
END
    podman rmi --force localhost/built
}

check_buildah_run() {
    local c
    c=$(buildah from "$image")
    buildah run "$c" sh -c 'echo changed >/changed'
    same changed "$(buildah run "$c" cat /changed)"
    exits 4 buildah run "$c" sh -c 'exit 4'
    same guest "$(buildah run --user guest "$c" id -un)"
    same below "$(mkdir -p "$work/bv" && echo below >"$work/bv/f" && buildah run --volume "$work/bv:/bv:ro" "$c" cat /bv/f)"
    contains '^/dev/(pts/0|console)' "$(with_terminal buildah run --tty "$c" tty)"
    buildah commit --quiet "$c" localhost/by-buildah
    buildah rm "$c"
    same changed "$(run localhost/by-buildah cat /changed)"
    podman rmi --force localhost/by-buildah
}

check_fifty_containers_at_once() {
    local i pids=()
    for i in $(seq 50); do
        podman run --detach --network none --name "many$i" "$image" sleep 1000 >/dev/null &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i"; done
    same 50 "$(podman ps --quiet | wc -l)"
    podman rm --all --force --time 0 >/dev/null
    same '' "$(ls -A /run/husk 2>/dev/null)"
}

# Starts a container that counts.
count_in() { # NAME OPTION...
    local name=$1
    shift
    podman run --detach --name "$name" "$@" "$image" sh -c "$counting"
    eventually podman exec "$name" test -s /data/n
}
count_of() { podman exec "$1" cat /data/n; }

check_checkpoint_and_restore() {
    needs_criu
    background
    podman exec c touch /tmp/kept
    podman container checkpoint c
    podman container restore c
    podman exec c test -e /tmp/kept
}

check_checkpoint_is_imported_under_another_name() {
    local count
    needs_criu
    count_in c --network none --volume counts:/data
    podman container checkpoint --export "$work/c.tar.gz" c
    podman rm c
    count=$(cat "$(podman volume inspect --format '{{.Mountpoint}}' counts)/n")
    podman volume rm counts
    podman container restore --import "$work/c.tar.gz" --name d
    counts_from d "$count"
    podman rm --force --time 0 d
    podman volume rm counts
}

check_checkpoint_leaves_the_container_running() {
    local count
    needs_criu
    count_in c --network none
    count=$(count_of c)
    podman container checkpoint --leave-running --keep --export "$work/running.tar" --compress none c
    same running "$(podman inspect --format '{{.State.Status}}' c)"
    counts_from c "$count"
    podman container restore --import "$work/running.tar" --name d
    counts_from d "$count"
    podman rm --force --time 0 d
}

check_checkpoint_of_memory_ahead_of_time() {
    local count
    needs_criu
    need 'the kernel does not track which pages are written' criu check --feature mem_dirty_track
    count_in c --network none
    podman container checkpoint --pre-checkpoint --export "$work/pre.tar" c
    count=$(count_of c)
    podman container checkpoint --with-previous --export "$work/rest.tar" c
    podman rm c
    podman container restore --import-previous "$work/pre.tar" --import "$work/rest.tar"
    counts_from c "$count"
}

check_checkpoint_keeps_locks_and_connections() {
    needs_criu
    podman run --detach --name c --network none "$image" sh -c \
        'flock /lock sleep 1000 & nc -l -p 99 -e cat & sleep 1; (echo one; sleep 1000) | nc 127.0.0.1 99 >/said'
    eventually podman exec c grep -q one /said
    contains 'TCP connection is open: --tcp-established' "$(podman container checkpoint --file-locks c 2>&1)"
    same running "$(podman inspect --format '{{.State.Status}}' c)"
    podman container checkpoint --file-locks --tcp-established c
    podman container restore --tcp-established --file-locks c
    podman exec c sh -c '! flock -n /lock true'
}

check_checkpoint_keeps_a_terminal() {
    needs_criu
    podman run --detach --tty --network none --name c "$image" sh -c 'tty; while :; do sleep 0.1; date; done'
    podman container checkpoint c
    podman container restore c
    contains /dev/pts/0 "$(podman exec c readlink /proc/1/fd/0)"
}

# Runs a command as the ordinary user, in a systemd session if systemd runs.
as_user() {
    local session=()
    if systemd_runs; then
        # Processes that the command leaves behind continue to run.
        session=(systemd-run --user --quiet --wait --pipe --same-dir --setenv PATH="$PATH" --property Delegate=yes
            --property KillMode=process)
    fi
    setpriv --reuid 4321 --regid 4321 --clear-groups env -i HOME=/home/husky USER=husky PATH="$PATH" TERM=xterm \
        XDG_RUNTIME_DIR=/run/user/4321 DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/4321/bus \
        sh -c 'cd; exec "$@"' sh "${session[@]}" "$@"
}

rootless_begin() {
    [ ! -e /run/user/4321/ready ] || return 0
    # The room has no /home of its own, so this mount hides the machine's.
    mkdir -p "$work/home/husky"
    chmod 755 "$work/home"
    [ -n "${MACHINE_IS_OURS-}" ] || mount --bind "$work/home" /home
    mkdir -p /home/husky
    chown 4321:4321 /home/husky
    if systemd_runs; then
        loginctl enable-linger husky
        eventually test -S /run/user/4321/bus
    else
        mkdir -p /run/user/4321
    fi
    cp "$work/image.tar" /home/husky/
    chown -R 4321:4321 /home/husky /run/user/4321
    as_user podman load --quiet --input /home/husky/image.tar
    touch /run/user/4321/ready
}

check_without_root() {
    rootless_begin
    same 'hi' "$(as_user podman run --rm --network none "$image" echo hi)"
    exits 3 as_user podman run --rm --network none "$image" sh -c 'exit 3'
    contains '^ +0 +4321 +1$' "$(as_user podman run --rm --network none "$image" cat /proc/self/uid_map)"
    same guest "$(as_user podman run --rm --network none --user guest "$image" id -un)"
    same 4321 "$(as_user podman run --rm --network none --userns keep-id "$image" id -u)"
}

check_without_root_exec_volumes_and_logs() {
    rootless_begin
    as_user podman run --detach --name c --network none --volume /home/husky:/h "$image" \
        sh -c 'trap "exit 0" TERM; echo said; while :; do sleep 0.1; done'
    same 0 "$(as_user podman exec c id -u)"
    as_user podman exec c touch /h/made
    same 4321 "$(stat -c %u /home/husky/made)"
    same said "$(as_user podman logs c)"
    as_user podman stop --time 10 c
    same 0 "$(as_user podman inspect --format '{{.State.ExitCode}}' c)"
    as_user podman rm c
}

check_without_root_pods_and_build() {
    rootless_begin
    as_user podman pod create --name p --network none
    as_user podman run --detach --pod p --name a "$image" sleep 1000
    as_user podman exec a true
    as_user podman pod rm --force --time 0 p
    as_user podman build --network none --tag localhost/built - <<END
FROM $image
RUN id -u >/who
END
    same 0 "$(as_user podman run --rm --network none localhost/built cat /who)"
}

check_without_root_network() {
    need '/dev/net/tun is not for everybody' as_user test -w /dev/net/tun
    rootless_begin
    contains tap0 "$(as_user podman run --rm "$image" ls /sys/class/net)"
}

check_without_root_limits() {
    need 'only systemd gives cgroups to users' systemd_runs
    rootless_begin
    same '67108864 50000 100000 20' "$(as_user podman run --rm --network none --memory 64m --cpus 0.5 --pids-limit 20 "$image" \
        cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/cpu.max /sys/fs/cgroup/pids.max | xargs)"
    exits 137 as_user podman run --rm --network none --memory 16m --memory-swap 16m "$image" sh -c 'exec tail /dev/zero'
    contains "can't fork" "$(as_user podman run --rm --network none --pids-limit 3 "$image" \
        sh -c 'for i in 1 2 3 4 5; do sleep 1 & done' 2>&1 || true)"
    as_user podman run --detach --name c --network none --memory 64m "$image" sleep 1000
    contains '/user@4321.service/user.slice/libpod-.*\.scope' "$(as_user podman inspect --format '{{.State.CgroupPath}}' c)"
    contains '/ 67\.11MB' "$(as_user podman stats --no-stream --format '{{.MemUsage}}' c)"
    as_user podman pause c
    exits 255 as_user podman exec c true
    as_user podman unpause c
    as_user podman update --memory 128m c
    same 134217728 "$(as_user podman exec c cat /sys/fs/cgroup/memory.max)"
    as_user podman rm --force --time 0 c
}

# --- Failures. `runtime` is set when these functions are called. ----------------------------------------------------

failing() { podman --runtime "$runtime" run --rm --name box "$@"; }
running() { podman --runtime "$runtime" run --detach --name box "$@" "$image" sleep 1000 >/dev/null; }
in_running() { running && podman exec "$@"; }

check_error_programs_that_cannot_be_run() { programs_that_cannot_be_run 126; }

check_error_exec_of_what_cannot_be_run() { execs_of_what_cannot_be_run; }

check_error_mounts() {
    mounts_that_cannot_be_made
    as_with_runc 'a working directory that is a file' failing --workdir /etc/passwd "$image" true
}

check_error_settings() {
    settings_that_are_none
    as_with_runc 'processors that are not there' failing --cpuset-cpus 999 "$image" true
    as_with_runc 'a profile of seccomp that is none' failing --security-opt seccomp=/etc/passwd "$image" true
    as_with_runc 'ids that are not mapped' failing --uidmap 0:300000:10 --user 1000 "$image" true
}

check_error_of_memory_that_runs_out() {
    as_with_runc 'memory runs out' failing --memory 16m --memory-swap 16m "$image" sh -c 'exec tail /dev/zero'
    less_than_used() {
        podman --runtime "$runtime" run --detach --name box "$image" sh -c 'tail -c 30000000 /dev/zero | sleep 1000' >/dev/null
        podman update --memory 1k box
    }
    # cgroup v2 accepts the limit and kills the processes that use more. Whether the cgroup still exists when the
    # runtime writes to it is chance.
    cgroup_is_v2 || as_with_runc 'an update to less memory than is used' less_than_used
}

check_error_of_containers_that_are_not_running() {
    dead() { podman --runtime "$runtime" run --name box "$image" true && "$@"; }
    paused() { running && podman pause box && "$@"; }
    as_with_runc 'kill of one that is dead' dead podman kill box
    as_with_runc 'exec in one that is dead' dead podman exec box true
    as_with_runc 'pause of one that is dead' dead podman pause box
    as_with_runc 'exec in one that is paused' paused podman exec box true
    keep_errors
}

check_husk_registers_itself() {
    need 'only husk does' husk register --help
    husk register podman --undo
    exits 125 podman --runtime husk run --rm "$image" true
    husk register podman
    same hi "$(podman --runtime husk run --rm "$image" echo hi)"
    cp "$examples/podman/husk.conf" /etc/containers/containers.conf.d/
}

check_the_readme_is_right() {
    local line
    while read -r line; do
        echo "$line"
        (cd "$root" && sh -c "$line")
    done < <(sed -n 's/^\$ \(podman .*\)/\1/p' "$root/README.md")
}

check_nothing_is_left() {
    after_check
    as_user podman system migrate || true
    same '' "$(ls -A /run/husk 2>/dev/null)"
    same '' "$(find /sys/fs/cgroup/*/libpod_parent /sys/fs/cgroup/libpod_parent -name 'libpod-*' 2>/dev/null)"
}

run_checks "$@"
