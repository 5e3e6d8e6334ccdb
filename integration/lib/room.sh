# shellcheck shell=bash
# The framework of the rooms, which test husk under an engine. Each `integration/ENGINE/run.sh` sets `packages`, sources
# this file, declares its checks and ends with `run_checks "$@"`.
#
#     integration/podman/run.sh              every check of the room
#     integration/podman/run.sh NAME...      only those whose names contain one of these words
#     RUNTIME_UNDER_TEST=/usr/sbin/runc ...  the same with another runtime; nothing is built
#     SHIM_UNDER_TEST=FILE ...               the same with another build of husk's shim; it is not built
#     SHIM_UNDER_TEST=io.containerd.runc.v2  the same with containerd's own shim, to try the checks
#     PATIENCE=300 ...                       how many seconds to wait for anything, on a slow machine
#     MACHINE_IS_OURS=1 ...                  on a disposable machine: change the machine itself, without namespaces
#
# A room whose engine is not packaged sets `engine` to "MODULE@VERSION TAGS PROGRAM...", with "-" for no tags. Go builds
# the programs, once, in target/engines. A room whose engine cannot be built is skipped.
#
# A room that sets `shim` to the type of husk's shim for containerd finds the shim in PATH. The checks of lib/shim.sh are
# for such rooms.
#
# A room defines `before_checks`, `after_check` (removes what a check leaves) and `after_checks` (removes what the room
# leaves). Its checks are functions named `check_WHAT_IS_TRUE`, which run in the order of the file. Each runs in a
# subshell with `set -e`, calls `need REASON COMMAND` for what a machine may lack, and is reported in one line. Its
# output is kept in target/integration/ROOM/NAME.log.
#
# Engines run with the paths and configuration files of an installed engine, on a machine that looks freshly installed.
# They have a mount and a network namespace, their own /etc, /run and /var/lib, and husk in /usr/local/bin. So the files
# below examples/ are used unchanged, and bridges, firewall rules and mounts vanish with the namespaces. Cgroups are the
# machine's.

set -eu
shopt -s inherit_errexit

room_script=$(readlink -f "$0")
room=$(basename "$(dirname "$room_script")")
# A room for another version of an engine sets this to the script of the room whose checks it runs. It may be a list.
[ -n "${room_checks-}" ] || room_checks=("$room_script")
root=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/../..")
logs=${CARGO_TARGET_DIR:-$root/target}/integration/$room
examples=$root/examples
# The image contains busybox, under its names in the registry docker.io.
image=docker.io/library/busybox:latest

# --- Outside the namespaces: install, build, and run this script again inside. -------------------------------------

install_packages() {
    # shellcheck disable=SC2086 # Split into words on purpose.
    ! dpkg-query --show --showformat='${db:Status-Status}\n' $packages 2>&1 | grep -qvx installed && return
    # Keeps the packages from starting services: invoke-rc.d takes the runlevel from RUNLEVEL.
    # shellcheck disable=SC2086
    { apt-get -qq update && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install --no-install-recommends --yes $packages; } >"$logs/apt.log" 2>&1 ||
        { echo "$room: not all of these could be installed: $packages (see $logs/apt.log)" >&2; exit 1; }
}

# Builds programs of a Go module, unless an earlier call did, and copies them to DIRECTORY.
build_engine() { # DIRECTORY MODULE@VERSION TAGS PROGRAM...
    local bin=$1 module=$2 tags=${3#-} cache source
    shift 3
    cache=${CARGO_TARGET_DIR:-$root/target}/engines/$(tr / - <<<"$module")
    if ! (cd "$cache" && stat -- "$@") >/dev/null 2>&1; then
        command -v go >/dev/null || { echo 'needs go'; return 1; }
        mkdir -p "$cache"
        {
            # `go install` would need the list of the module's versions, and rejects modules with `replace`. A
            # downloaded module has the list in vendor/ but not the packages that it names.
            source=$(go mod download -json "$module" | jq --exit-status --raw-output .Dir) &&
                rm -rf "$cache/source" && cp -r --no-preserve=mode "$source" "$cache/source" &&
                rm -rf "$cache/source/vendor" &&
                # docker's module has its list under another name.
                (cd "$cache/source" && { [ -e go.mod ] || { mv vendor.mod go.mod && mv vendor.sum go.sum; }; } &&
                    go build -mod=mod -buildvcs=false -tags "$tags" -o "$cache/" "${@/#/./cmd/}") &&
                rm -rf "$cache/source"
        } >"$logs/build.log" 2>&1 || { echo "$module cannot be built: $logs/build.log"; return 1; }
    fi
    (cd "$cache" && cp -- "$@" "$bin/")
}

runtime_to_test() { # CRATE BINARY
    local target
    target=$("$root/packaging/target.sh")
    (cd "$root" && cargo build --quiet --release --target "$target" --package "$1" --bin "$2") >&2
    echo "${CARGO_TARGET_DIR:-$root/target}/$target/release/$2"
}

# Makes an image of busybox in the format of `docker save`, which every engine can read.
make_image() {
    local tree=$1/tree digest
    mkdir -p "$tree"/{bin,dev,etc,home/guest,proc,root,run,sys,tmp,usr/bin,var/tmp}
    chmod 1777 "$tree/tmp" "$tree/var/tmp"
    cp "$(command -v busybox)" "$tree/bin/busybox"
    for applet in $(busybox --list | grep -v '^busybox$'); do ln -s busybox "$tree/bin/$applet"; done
    printf 'root:x:0:0:root:/root:/bin/sh\nguest:x:1000:1000:guest:/home/guest:/bin/sh\n' >"$tree/etc/passwd"
    printf 'root:x:0:\nguest:x:1000:\nplenty:x:2000:guest\n' >"$tree/etc/group"
    echo 'this is no program' >"$tree/usr/bin/not-executable"
    printf '#!/no/such/interpreter\n' >"$tree/usr/bin/no-interpreter"
    chmod 755 "$tree/usr/bin/no-interpreter"
    chown 1000:1000 "$tree/home/guest"

    tar -C "$tree" -cf "$1/layer.tar" .
    rm -r "$tree"
    digest=$(sha256sum "$1/layer.tar" | cut -d ' ' -f 1)
    cat >"$1/config.json" <<END
{"architecture": "$(dpkg --print-architecture)", "os": "linux", "created": "2026-01-01T00:00:00Z",
 "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Cmd": ["sh"]},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$digest"]},
 "history": [{"created": "2026-01-01T00:00:00Z", "created_by": "integration/lib/room.sh"}]}
END
    cat >"$1/manifest.json" <<END
[{"Config": "config.json", "Layers": ["layer.tar"],
  "RepoTags": ["docker.io/library/busybox:latest", "docker.io/library/busybox:1.35"]}]
END
    tar -C "$1" -cf "$1/../image.tar" manifest.json config.json layer.tar
    rm -r "$1"
}

if [ -z "${HUSK_ROOM-}" ]; then
    [ "$(id -u)" = 0 ] || { echo "$room: needs root" >&2; exit 1; }
    rm -rf "$logs"
    mkdir -p "$logs"
    install_packages
    runtime=${RUNTIME_UNDER_TEST:-$(runtime_to_test husk husk)}
    shim_file=
    case ${shim:+${SHIM_UNDER_TEST-build}} in
    build) shim_file=$(runtime_to_test husk-shim containerd-shim-husk-v1) ;;
    /*) shim_file=$SHIM_UNDER_TEST ;;
    esac
    HUSK_ROOM=$(mktemp -d /var/tmp/husk-XXXXXX)
    trap 'rm -rf --one-file-system "$HUSK_ROOM"' EXIT
    # Rootless containers need search permission on this directory.
    chmod 711 "$HUSK_ROOM"
    mkdir "$HUSK_ROOM/bin" "$HUSK_ROOM/image"
    cp "$runtime" "$HUSK_ROOM/bin/husk"
    [ -z "$shim_file" ] || cp "$shim_file" "$HUSK_ROOM/bin/containerd-shim-husk-v1"
    # shellcheck disable=SC2086 # Split into words on purpose.
    if [ -n "${engine-}" ] && ! reason=$(build_engine "$HUSK_ROOM/bin" $engine); then
        printf '%s: %-70s skip (%s)\n' "$room" "${engine%% *}" "$reason"
        echo "$room: 0 passed, 0 failed, 1 skipped"
        exit 0
    fi
    make_image "$HUSK_ROOM/image"
    export HUSK_ROOM
    status=0
    if [ -n "${MACHINE_IS_OURS-}" ]; then
        bash "$room_script" "$@" || status=$?
    else
        unshare --mount --net bash "$room_script" "$@" || status=$?
    fi
    exit $status
fi

# --- Inside the namespaces. -----------------------------------------------------------------------------------------

case ${shim:+${SHIM_UNDER_TEST-}} in io.*) shim=$SHIM_UNDER_TEST ;; esac
work=$HUSK_ROOM
# Engines leave files in their working directory.
cd "$work"

if [ -z "${MACHINE_IS_OURS-}" ]; then
    # systemd makes the root mount shared at boot, and engines rely on that.
    mount --make-rshared /
    mkdir "$work"/{etc,etc.work,lib,run}
    mount -t overlay -o "lowerdir=/etc,upperdir=$work/etc,workdir=$work/etc.work" overlay /etc
    mount --bind "$work/lib" /var/lib
    mount -t tmpfs -o mode=755 tmpfs /run
    mkdir -m 1777 /run/lock
    mount --bind "$work/bin" /usr/local/bin
    ip link set lo up
else
    cp "$work/bin/"* /usr/local/bin
fi

daemons=()
begun=
passed=0 failed=0 skipped=0

# Starts a daemon, which runs until the room ends.
start() { # NAME COMMAND...
    local name=$1
    shift
    "$@" >"$logs/$name.log" 2>&1 </dev/null &
    daemons+=($!)
}

# Polls until the command succeeds, because engines cannot wait for every kind of event.
eventually() { # COMMAND...
    local deadline=$((SECONDS + ${PATIENCE:-30}))
    until "$@"; do
        [ $SECONDS -lt $deadline ] || { echo "not within ${PATIENCE:-30} seconds: $*"; return 1; }
        sleep 0.1
    done
}

same() { # EXPECTED FOUND
    [ "$1" = "$2" ] || { printf 'expected: %s\nfound:    %s\n' "$1" "$2"; return 1; }
}

contains() { # PATTERN TEXT
    grep -qE -- "$1" <<<"$2" || { printf 'expected: %s\nin:       %s\n' "$1" "$2"; return 1; }
}

exits() { # CODE COMMAND...
    local expected=$1 code=0
    shift
    "$@" || code=$?
    same "exit code $expected" "exit code $code"
}

need() { # REASON COMMAND...
    local reason=$1
    shift
    "$@" >/dev/null 2>&1 || { echo "$reason" >"$work/skip"; exit 0; }
}

cgroup_is_v2() { [ -e /sys/fs/cgroup/cgroup.controllers ]; }
# Fails where even root lacks capabilities, as in some containers.
can_do_everything() { [ "$(awk '/^CapBnd/ { print $2 }' /proc/self/status)" = 000001ffffffffff ]; }
systemd_runs() { [ -d /run/systemd/system ]; }

# Runs a command with a terminal. Removes the carriage returns and the echo of the end of input from its output.
with_terminal() { # COMMAND...
    script --quiet --echo never --return --command "$(printf '%q ' "$@")" /dev/null </dev/null | tr -d '\r' | sed 's/^^@//'
}

# Runs one check in its own process group, so that a check that hangs is killed with everything it started.
perform() { # FUNCTION
    local check=$1 name=${1#check_} began=$EPOCHREALTIME status=0 watch
    local log=$logs/$name.log
    name=${name//_/ }
    rm -f "$work/skip"
    set -m
    (
        # Traces to another descriptor, so that a check that captures standard error does not capture the trace.
        exec 9>&2
        BASH_XTRACEFD=9
        set -ex
        "$check"
    ) >"$log" 2>&1 </dev/null &
    local pid=$!
    (sleep $((${PATIENCE:-30} * 5)); echo "did not end in time" >>"$log"; kill -KILL -- "-$pid") >/dev/null 2>&1 &
    watch=$!
    set +m
    wait "$pid" 2>/dev/null || status=$?
    kill -- "-$watch" 2>/dev/null || true
    wait "$watch" 2>/dev/null || true
    after_check >>"$log" 2>&1 </dev/null || true

    local took
    took=$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f s", b - a }')
    if [ $status != 0 ]; then
        failed=$((failed + 1))
        printf '%s: %-70s FAIL %s\n' "$room" "$name" "$took"
        grep -v '^+* \(local\|grep\|printf\) ' "$log" | tail -n 12 | sed 's/^/    /'
        echo "    all of it: $log"
    elif [ -e "$work/skip" ]; then
        skipped=$((skipped + 1))
        printf '%s: %-70s skip (%s)\n' "$room" "$name" "$(cat "$work/skip")"
    else
        passed=$((passed + 1))
        printf '%s: %-70s ok   %s\n' "$room" "$name" "$took"
    fi
}

stop_daemons() {
    local pid
    for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${daemons[@]}"; do wait "$pid" 2>/dev/null || true; done
    daemons=()
}

# Ends the room's containers, its daemons, and then every other process in its mount namespace.
leave() {
    local pid
    trap - EXIT
    set +e
    if [ -z "$begun" ]; then
        exec >&3 2>&4
        tail -n 20 "$logs/before.log"
        echo "$room: could not begin: $logs/before.log"
    fi
    {
        after_check
        stop_daemons
        if [ -z "${MACHINE_IS_OURS-}" ]; then
            for pid in $(others_in_this_room); do kill -KILL "$pid"; done
        fi
        after_checks
    } >"$logs/leave.log" 2>&1
}

others_in_this_room() {
    local mine process
    mine=$(readlink /proc/self/ns/mnt)
    for process in /proc/[0-9]*; do
        [ "${process#/proc/}" != $$ ] && [ "${process#/proc/}" != $BASHPID ] || continue
        [ "$(readlink "$process/ns/mnt" 2>/dev/null)" = "$mine" ] || continue
        # Skips children of the shell that runs this function.
        [ "$(awk '/^PPid:/ { print $2 }' "$process/status" 2>/dev/null)" != $BASHPID ] || continue
        echo "${process#/proc/}"
    done
}

# Removes the cgroups of these names that an engine left at the top of each hierarchy. If a controller is not
# mounted, the engine may have made ordinary directories instead.
remove_cgroups() { # NAME...
    local name directory
    for name in "$@"; do
        for directory in /sys/fs/cgroup/"$name" /sys/fs/cgroup/*/"$name"; do
            [ -d "$directory" ] || continue
            if [ "$(stat --file-system --format %T "$directory")" = tmpfs ]; then rm -r "$directory"; fi
            find "$directory" -depth -type d -exec rmdir {} + || true
        done
    done
}

run_checks() { # WORD...
    local check word wanted
    trap leave EXIT
    trap 'exit 1' INT TERM
    # Calling this in a condition would disable `set -e` inside it.
    exec 3>&1 4>&2 >"$logs/before.log" 2>&1
    before_checks
    exec >&3 2>&4 3>&- 4>&-
    begun=yes
    for check in $(sed -n 's/^\(check_[a-z0-9_]*\)() {.*/\1/p' "${room_checks[@]}"); do
        wanted=$([ $# = 0 ] && echo yes || true)
        for word in "$@"; do case $check in *"$word"*) wanted=yes ;; esac; done
        [ -z "$wanted" ] || perform "$check"
    done
    leave
    echo "$room: $passed passed, $failed failed, $skipped skipped"
    [ $failed = 0 ]
}
