#!/bin/bash
# Makes a release twice: in two directories, with two homes, by two users, and compares every file. Then checks the
# packages, and installs, uses and removes each in a Debian that has never had husk. Needs root.
#
#     integration/release/run.sh              all of it
#     integration/release/run.sh PART...      only: reproduce lint deb rpm
#     RELEASE=DIRECTORY ...                   the files of this release instead of those of 'reproduce', for the others
#     HUSK_TOOLS=DIRECTORY ...                has the tools of packaging/dist.sh
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/../.."
root=$PWD
work=$root/target/integration/release
[ "$(id -u)" = 0 ] || { echo "release: needs root" >&2; exit 1; }
if [ -z "${HUSK_RELEASE_ROOM-}" ]; then
    HUSK_RELEASE_ROOM=1 exec unshare --mount --propagation private "$root/integration/release/run.sh" "$@"
fi
parts=("$@")
[ $# -gt 0 ] || parts=(reproduce lint deb rpm)
tests/install.sh lintian rpm mmdebstrap busybox-static
export HUSK_TOOLS=${HUSK_TOOLS:-$root/target/tools}
release=${RELEASE:-$work/one/husk/target/dist}
failed=0

# Builds the committed source as a user who sees the toolchain at a path of its own.
make_release() { # NAME UID
    local place=$work/$1 toolchain
    toolchain=$(rustc --print sysroot)
    mkdir -p "$place"/{home,toolchain}
    git clone --quiet --no-hardlinks "$root" "$place/husk"
    # The crates are there already, so that nothing is downloaded twice.
    mkdir "$place/home/.cargo"
    cp -r "${CARGO_HOME:-$HOME/.cargo}/registry" "$place/home/.cargo/"
    chown -R "$2:$2" "$place"
    mount --bind "$toolchain" "$place/toolchain"
    (cd "$place/husk" && setpriv --reuid "$2" --regid "$2" --clear-groups \
        env -i HOME="$place/home" PATH="$place/toolchain/bin:/usr/bin:/bin" HUSK_TOOLS="$work/tools" \
        packaging/dist.sh >"$place/log") || { tail "$place/log"; return 1; }
    umount "$place/toolchain"
}

reproduce() {
    rm -rf "$work/one" "$work/another-place" "$work/tools"
    # Other users may not enter the directories above this tree.
    mkdir -p "$work/tools"
    # The users below have no rustup.
    packaging/target.sh --add >/dev/null
    if [ -d "$HUSK_TOOLS" ]; then cp -r "$HUSK_TOOLS/." "$work/tools/"; fi
    chmod -R a+rwX "$work/tools"
    make_release one 4711
    make_release another-place 4712
    cmp "$work/one/husk/target/dist/SHA256SUMS" "$work/another-place/husk/target/dist/SHA256SUMS"
    cat "$release/SHA256SUMS"
}

lint() {
    lintian --allow-root --fail-on error "$release"/husk_*_amd64.deb
}

# Unpacks a fresh Debian, and runs a script in it with the release in /release.
in_clean_room() { # SCRIPT
    local room=$work/room
    rm -rf --one-file-system "$room"
    mkdir -p "$room"
    [ -e "$work/room.tar" ] || mmdebstrap --quiet --variant=apt \
        --include=podman,crun,conmon,netavark,iptables,iproute2,rpm,man-db,busybox-static bookworm "$work/room.tar"
    tar --extract --file "$work/room.tar" --directory "$room"
    mkdir "$room/release"
    cp "$release"/husk* "$room/release/"
    unshare --mount --pid --net --fork --kill-child bash -euc '
        cd "$1"
        mount --bind . . && cd .
        mount -t proc proc proc
        mount --rbind /sys sys && mount --make-rslave sys
        mount --rbind /dev dev && mount --make-rslave dev
        mount -t tmpfs -o mode=755 tmpfs run
        mount -t tmpfs tmpfs var/tmp
        ip link set lo up
        exec chroot . /bin/bash -euxc "$2"' room "$room" "$1" >"$work/room.log" 2>&1 || {
        tail -n 20 "$work/room.log"
        return 1
    }
    rm -rf --one-file-system "$room"
}

# Packages put nothing into these directories but what they remove again.
list='find /usr /etc /var -xdev -not -path "/var/lib/dpkg/*" -not -path "/var/lib/rpm/*" -not -path "/var/cache/*" \
    -not -path "/var/log/*" -not -path "/var/lib/containers*" -not -path "/var/lib/cni*" -not -path "/var/tmp*" \
    -not -path "/usr/lib/sysimage/rpm*" -not -path "/etc/cni*" -not -path "/etc/containers*" | sort'
use='
    husk --version | grep -x "commit: [0-9a-f]\{40\}.*"
    containerd-shim-husk-v1 -v | grep Version
    man -w husk husk-run
    mkdir -p /etc/containers/containers.conf.d
    husk register podman --default
    printf "[containers]\nlog_driver = \"k8s-file\"\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n" \
        >/etc/containers/containers.conf.d/machine.conf
    mkdir -p /tmp/image/bin
    cp /bin/busybox /tmp/image/bin/sh
    tar -C /tmp/image -c . | podman --storage-driver=vfs import - localhost/small >/dev/null
    podman --storage-driver=vfs run --rm --network=none localhost/small /bin/sh -c "echo from husk" | grep -x "from husk"
    podman --storage-driver=vfs info --format "{{.Host.OCIRuntime.Name}} {{.Host.OCIRuntime.Path}}" | grep -x "husk /usr/bin/husk"
    husk register --undo podman
    husk test -- /bin/sh -c "! ls /home/*"'

deb() {
    in_clean_room "$list >/tmp/before
        dpkg --install /release/husk_*_amd64.deb
        dpkg --verify husk
        $use
        dpkg --purge husk
        $list | diff /tmp/before -"
}

rpm() {
    in_clean_room "$list >/tmp/before
        rpm --install --nodeps --nosignature /release/husk-*.x86_64.rpm
        rpm --verify --nodeps husk
        $use
        rpm --erase husk
        $list | diff /tmp/before -"
}

for part in "${parts[@]}"; do
    began=$SECONDS
    if "$part"; then
        printf 'release: %-12s ok   %s s\n' "$part" $((SECONDS - began))
    else
        printf 'release: %-12s FAIL %s s\n' "$part" $((SECONDS - began))
        failed=$((failed + 1))
    fi
done
echo "release: $((${#parts[@]} - failed)) passed, $failed failed, 0 skipped"
[ $failed = 0 ]
