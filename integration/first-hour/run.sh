#!/bin/bash
# Follows the first sections of README on a machine that looks freshly installed, as root and as an ordinary user. Each
# command is typed at a terminal as it stands there. Prints how long each took.
#
#     HELLO_UNDER_TEST=FILE ...    the program of the example container; it is not built
#
# The source is that of the repository, or of source.tar above this directory.
packages='skopeo docker-registry podman conmon netavark uidmap slirp4netns iptables busybox-static make jq util-linux iproute2'
. "$(dirname "$0")/../lib/podman.sh"
. "$(dirname "$0")/../lib/room.sh"

# A copy of the repository for those who may not read the original.
source_tree=$work/source

before_checks() {
    configure_podman
    # Users register husk themselves, and its images come from a registry on this machine.
    rm /etc/containers/containers.conf.d/husk.conf
    printf '[[registry]]\nlocation = "docker.io"\n[[registry.mirror]]\nlocation = "127.0.0.1:5055"\ninsecure = true\n' \
        >>/etc/containers/registries.conf
    if ! getent passwd husky >/dev/null; then
        echo 'husky:x:4321:4321::/home/husky:/bin/sh' >>/etc/passwd
        echo 'husky:x:4321:' >>/etc/group
        echo 'husky:2000000:65536' | tee -a /etc/subuid >>/etc/subgid
    fi

    # `make install` and `make run` take these instead of building them again.
    mkdir "$work/built" "$work/built/examples" "$source_tree"
    cp "$work/bin/husk" "$work/built"
    cp "${SHIM_UNDER_TEST:-$(runtime_to_test husk-shim containerd-shim-husk-v1)}" "$work/built/containerd-shim-husk-v1"
    if [ -z "${HELLO_UNDER_TEST-}" ]; then
        (cd "$root" && cargo build --quiet --release --target "$(packaging/target.sh)" --package husk --example hello)
        HELLO_UNDER_TEST=$(dirname "$(runtime_to_test husk husk)")/examples/hello
    fi
    cp "$HELLO_UNDER_TEST" "$work/built/examples/hello"
    if [ -e "$root/source.tar" ]; then
        tar --extract --file "$root/source.tar" --directory "$source_tree"
    else
        git -C "$root" ls-files -z | (cd "$root" && xargs --null cp --parents --target-directory "$source_tree")
    fi
    mount -t tmpfs tmpfs /usr/local
    mkdir -p /usr/local/bin /usr/local/share/man/man1
    mkdir -p "$work/home/husky" "$work/home/root" "$work/registry"
    chmod 755 "$work/home"
    chown 4321:4321 "$work/home/husky"
    mount --bind "$work/home" /home
    mount --bind "$work/home/root" /root
    mount -t tmpfs -o mode=1777 tmpfs /tmp

    cat >"$work/registry.yml" <<END
version: 0.1
storage: { filesystem: { rootdirectory: $work/registry } }
http: { addr: 127.0.0.1:5055 }
END
    start registry docker-registry serve "$work/registry.yml"
    eventually skopeo copy --quiet --dest-tls-verify=false "docker-archive:$work/image.tar:docker.io/library/busybox:latest" \
        docker://127.0.0.1:5055/library/busybox:latest
}

after_check() { :; }

after_checks() {
    [ ! -e "$work/hour" ] || awk -F '\t' '{ printf "%-6s %6.2f s  %s\n", $1, $2, $3 }' "$work/hour" >"$logs/hour.txt"
    remove_cgroups libpod_parent
}

# Types a command of README at a terminal in the user's home, and this input after it. Sets `said` to the output.
type_as() { # USER COMMAND [INPUT]
    local user=$1 command=$2 input=${3-} began=$EPOCHREALTIME identity=() home=/root status=0
    grep -qF "\$ $command" "$source_tree/README.md" || { echo "README has no such command: $command"; return 1; }
    [ "$user" = root ] || identity=(setpriv --reuid 4321 --regid 4321 --clear-groups) home=/home/$user
    said=$(set -o pipefail; printf '%s' "$input" | "${identity[@]}" env -i HOME="$home" USER="$user" TERM=xterm SHELL=/bin/sh \
        PATH="$home/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
        HUSK="$work/built/husk" SHIM="$work/built/containerd-shim-husk-v1" \
        script --quiet --echo never --return --command "cd ${directory:-~} && $command" /dev/null | tr -d '\r') || status=$?
    echo "$said"
    [ $status = 0 ] || return $status
    awk -v user="$user" -v a="$began" -v b="$EPOCHREALTIME" -v command="$command" \
        'BEGIN { printf "%s\t%f\t%s\n", user, b - a, command }' >>"$work/hour"
    echo "$command" >>"$work/typed"
}

installs() { # USER COMMAND
    directory=$source_tree type_as "$1" "$2"
    type_as "$1" 'husk doctor'
    contains 'husk' "$said"
}

runs_an_image() { # USER
    type_as "$1" 'husk bundle docker.io/library/busybox box'
    type_as "$1" 'husk run --bundle box b1' $'echo $((6 * 7)) from $(hostname)\nexit\n'
    contains '^42 from ' "$said"
    type_as "$1" 'husk bundle --prune'
}

runs_busybox() { # USER
    type_as "$1" 'husk spec --bundle hello'
    type_as "$1" 'mkdir -p hello/rootfs/bin && cp /bin/busybox hello/rootfs/bin/sh'
    type_as "$1" 'husk run --bundle hello h1' $'echo $((6 * 7))\nexit\n'
    contains '^42$' "$said"
}

runs_tests() { # USER HOME
    type_as "$1" "husk test -- sh -c 'date >/tmp/when; ls /tmp'"
    contains '^when$' "$said"
    [ ! -e /tmp/when ]
    mkdir -p "$2/project"
    printf 'test:\n\techo tested >result; cat result\n' >"$2/project/Makefile"
    chown --reference="$2" "$2/project" "$2/project/Makefile"
    directory=$2/project type_as "$1" 'husk test -- make test'
    contains '^tested$' "$said"
    [ ! -e "$2/project/result" ]
}

runs_podman() { # USER
    type_as "$1" 'husk register podman'
    type_as "$1" 'podman --runtime husk run --rm docker.io/library/busybox echo hello'
    contains '^hello$' "$said"
    type_as "$1" 'husk register podman --undo'
}

check_root_runs_the_example() {
    directory=$source_tree type_as root 'make run'
    contains 'Next:' "$said"
}
check_root_installs() { installs root 'make install'; }
check_root_runs_an_image() { runs_an_image root; }
check_root_runs_busybox() { runs_busybox root; }
check_root_runs_tests() { runs_tests root /root; }
check_root_runs_podman() { runs_podman root; }
check_root_uninstalls() {
    directory=$source_tree type_as root 'make uninstall'
    same '/usr/local/bin /usr/local/share /usr/local/share/man /usr/local/share/man/man1' "$(find /usr/local -mindepth 1 | sort | xargs)"
}
check_user_runs_the_example() {
    directory=$source_tree type_as husky 'make run'
    contains 'Next:' "$said"
}
check_user_installs() { installs husky 'make install PREFIX=$HOME/.local'; }
check_user_runs_an_image() { runs_an_image husky; }
check_user_runs_busybox() { runs_busybox husky; }
check_user_runs_tests() { runs_tests husky /home/husky; }
check_user_runs_podman() {
    need '/dev/net/tun, for the network of rootless podman, is only for root' \
        setpriv --reuid 4321 --regid 4321 --clear-groups test -w /dev/net/tun
    runs_podman husky
}
check_user_uninstalls() {
    directory=$source_tree type_as husky 'make uninstall PREFIX=$HOME/.local'
    # podman keeps its containers there.
    same '' "$(find /home/husky/.local -mindepth 1 -not -path '*/share' -not -path '*/share/containers*')"
}

# Fails if README's first sections have a command that was not typed.
check_every_command_was_typed() {
    local command
    sed -n '/^## Install/,/^## What is here/s/^\$ \(.*\)/\1/p' "$source_tree/README.md" | sed 's/   *#.*//' |
        while read -r command; do
            grep -qxF "$command" "$work/typed" || { echo "not typed: $command"; return 1; }
        done
}

run_checks "$@"
