# shellcheck shell=bash
# What the rooms share: each `integration/ENGINE/run.sh` sets `packages`, reads this file, declares its checks and
# ends with `run_checks "$@"`.
#
#     integration/podman/run.sh              every check of the room
#     integration/podman/run.sh NAME...      only those whose names contain one of these words
#     RUNTIME_UNDER_TEST=/usr/sbin/runc ...  the same with another runtime; nothing is built
#     PATIENCE=300 ...                       how many seconds to wait for anything, on a slow machine
#     MACHINE_IS_OURS=1 ...                  on a machine that is thrown away: change it, do not hide it
#
# A room whose engine no package has sets `engine` to "MODULE@VERSION TAGS PROGRAM...", with "-" for no tags: Go builds
# the programs, once, in target/engines. The room is skipped where that cannot be done.
#
# A room has `before_checks`, `after_check` (what a check leaves) and `after_checks` (what the room leaves).
# A check is a function `check_WHAT_IS_TRUE` of the room, in the order of the file. It runs in a subshell with `set -e`,
# calls `need REASON COMMAND` for what a machine may lack, and is one line of output; what it said is kept in
# target/integration/ROOM/NAME.log.
#
# The engines run with the paths and configuration files that they have when installed, on a machine that looks
# freshly installed: in namespaces for mounts and networks, with an /etc, a /run and a /var/lib of their own and husk
# in /usr/local/bin. So the files below examples/ are used as they are, and bridges, firewall rules and mounts go with
# the namespaces. Cgroups are the machine's.

set -eu
shopt -s inherit_errexit

room_script=$(readlink -f "$0")
room=$(basename "$(dirname "$room_script")")
# The checks of another room, where this one has the same engine in another version.
room_checks=${room_checks:-$room_script}
root=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/../..")
logs=${CARGO_TARGET_DIR:-$root/target}/integration/$room
examples=$root/examples
# The image is busybox, under the names that it has in the registry that everybody uses.
image=docker.io/library/busybox:latest

# --- Outside: build, install, make the place, go in. ---------------------------------------------------------------

install_packages() {
    # shellcheck disable=SC2086 # They are words.
    ! dpkg-query --show --showformat='${db:Status-Status}\n' $packages 2>&1 | grep -qvx installed && return
    # Where nothing is to be started, services are not started: RUNLEVEL is what invoke-rc.d asks.
    # shellcheck disable=SC2086
    { apt-get -qq update && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install --no-install-recommends --yes $packages; } >"$logs/apt.log" 2>&1 ||
        { echo "$room: not all of these could be installed: $packages (see $logs/apt.log)" >&2; exit 1; }
}

# Builds programs of a Go module into a directory of programs.
build_engine() { # DIRECTORY MODULE@VERSION TAGS PROGRAM...
    local bin=$1 module=$2 tags=${3#-} cache source
    shift 3
    cache=${CARGO_TARGET_DIR:-$root/target}/engines/$(tr / - <<<"$module")
    if ! (cd "$cache" && stat -- "$@") >/dev/null 2>&1; then
        command -v go >/dev/null || { echo 'needs go'; return 1; }
        mkdir -p "$cache"
        {
            # Not `go install`, which needs the list of the module's versions and permits no `replace`. A module comes
            # without the packages that its list in vendor/ names.
            source=$(go mod download -json "$module" | jq --exit-status --raw-output .Dir) &&
                rm -rf "$cache/source" && cp -r --no-preserve=mode "$source" "$cache/source" &&
                rm -rf "$cache/source/vendor" &&
                (cd "$cache/source" && go build -buildvcs=false -tags "$tags" -o "$cache/" "${@/#/./cmd/}") &&
                rm -rf "$cache/source"
        } >"$logs/build.log" 2>&1 || { echo "$module cannot be built: $logs/build.log"; return 1; }
    fi
    (cd "$cache" && cp -- "$@" "$bin/")
}

runtime_to_test() {
    if [ -z "${RUNTIME_UNDER_TEST-}" ]; then
        (cd "$root" && cargo build --quiet --release --package husk --bin husk) >&2
        RUNTIME_UNDER_TEST=${CARGO_TARGET_DIR:-$root/target}/$(rustc -vV | sed -n 's/^host: //p')/release/husk
    fi
    echo "$RUNTIME_UNDER_TEST"
}

# An image of busybox as `docker save` writes it, which every engine can read.
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
    runtime=$(runtime_to_test)
    HUSK_ROOM=$(mktemp -d /var/tmp/husk-XXXXXX)
    trap 'rm -rf --one-file-system "$HUSK_ROOM"' EXIT
    # Who does not have root in a container goes through here.
    chmod 711 "$HUSK_ROOM"
    mkdir "$HUSK_ROOM/bin" "$HUSK_ROOM/image"
    cp "$runtime" "$HUSK_ROOM/bin/husk"
    # shellcheck disable=SC2086 # They are words.
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

# --- Inside. --------------------------------------------------------------------------------------------------------

work=$HUSK_ROOM
# Engines leave things where they are called.
cd "$work"

if [ -z "${MACHINE_IS_OURS-}" ]; then
    # As systemd leaves it at boot, and engines expect it.
    mount --make-rshared /
    mkdir "$work"/{etc,etc.work,lib,run}
    mount -t overlay -o "lowerdir=/etc,upperdir=$work/etc,workdir=$work/etc.work" overlay /etc
    mount --bind "$work/lib" /var/lib
    mount -t tmpfs -o mode=755 tmpfs /run
    mkdir -m 1777 /run/lock
    mount --bind "$work/bin" /usr/local/bin
    ip link set lo up
else
    cp "$work/bin/husk" /usr/local/bin/husk
fi

daemons=()
begun=
passed=0 failed=0 skipped=0

# Keeps a daemon of the room running until the end.
start() { # NAME COMMAND...
    local name=$1
    shift
    "$@" >"$logs/$name.log" 2>&1 </dev/null &
    daemons+=($!)
}

# Polls, for engines have no way to wait for everything.
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
# Of root in some containers that cannot be said.
can_do_everything() { [ "$(awk '/^CapBnd/ { print $2 }' /proc/self/status)" = 000001ffffffffff ]; }
systemd_runs() { [ -d /run/systemd/system ]; }

# Runs a command with a terminal, whose output comes with carriage returns, and with an echo of the end of input.
with_terminal() { # COMMAND...
    script --quiet --echo never --return --command "$(printf '%q ' "$@")" /dev/null </dev/null | tr -d '\r' | sed 's/^^@//'
}

# One check, in a process group of its own so that one that hangs can be ended with what it started.
perform() { # FUNCTION
    local check=$1 name=${1#check_} began=$EPOCHREALTIME status=0 watch
    local log=$logs/$name.log
    name=${name//_/ }
    rm -f "$work/skip"
    set -m
    (
        # What is said of commands is not to be among what they say.
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

# Ends what the room started: containers, daemons, then whatever else lives in its mount namespace.
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
        # Not the shell that asks.
        [ "$(awk '/^PPid:/ { print $2 }' "$process/status" 2>/dev/null)" != $BASHPID ] || continue
        echo "${process#/proc/}"
    done
}

# Directories of this name at the top of every cgroup tree, which an engine makes and leaves there. Where a
# controller is missing it may have made ordinary ones.
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
    # Not in a condition, which would have it go on after what fails.
    exec 3>&1 4>&2 >"$logs/before.log" 2>&1
    before_checks
    exec >&3 2>&4 3>&- 4>&-
    begun=yes
    for check in $(sed -n 's/^\(check_[a-z0-9_]*\)() {.*/\1/p' "$room_checks"); do
        wanted=$([ $# = 0 ] && echo yes || true)
        for word in "$@"; do case $check in *"$word"*) wanted=yes ;; esac; done
        [ -z "$wanted" ] || perform "$check"
    done
    leave
    echo "$room: $passed passed, $failed failed, $skipped skipped"
    [ $failed = 0 ]
}
