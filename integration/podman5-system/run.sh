#!/bin/bash
# Runs podman 5's own system tests, from the Go module that podman is built from. Tests that fail with husk are repeated
# with runc. Those that fail there too need systemd, more open files or another program, and are ignored.
packages='podman conmon crun runc netavark aardvark-dns catatonit uidmap busybox-static iptables iproute2 jq util-linux bats skopeo docker-registry socat tzdata'
. "$(dirname "$0")/../lib/engines.sh"
engine=$podman_5
export PODMAN_IGNORE_CGROUPSV1_WARNING=1
# Each check runs a whole file of tests.
export PATIENCE=${PATIENCE:-300}
# Runs before the room is entered, because this needs a network. jq may not be installed yet, so sed reads the JSON.
[ -n "${HUSK_ROOM-}" ] ||
    export PODMAN_SUITE=$(go mod download -json "${engine%% *}" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/test/system
. "$(dirname "$0")/../lib/podman.sh"
. "$(dirname "$0")/../lib/room.sh"

before_checks() {
    [ -d "$PODMAN_SUITE" ] || return 0
    configure_podman
    mkdir "$work/tmp"
    export TMPDIR=$work/tmp
    registry
    test_images
}

# Starts a registry that takes the place of quay.io.
registry() {
    cat >"$work/registry.yml" <<END
{version: 0.1, storage: {filesystem: {rootdirectory: $work/registry}}, http: {addr: "127.0.0.1:60333"}}
END
    cat >>/etc/containers/registries.conf <<END
[[registry]]
prefix = "quay.io"
location = "127.0.0.1:60333"
insecure = true
END
    start registry docker-registry serve "$work/registry.yml"
    eventually bash -c '>/dev/tcp/127.0.0.1/60333'
}

# Makes the images that the tests expect, from busybox instead of Alpine, with the scripts of podman's own test image.
test_images() {
    local tag tree=$work/tree
    tag=$(default_of PODMAN_TEST_IMAGE_TAG)
    mkdir -p "$tree"/{home/podman,mnt,opt,srv,usr/sbin,usr/share}
    tar -xOf "$work/image.tar" layer.tar | tar -C "$tree" -x
    (
        cd "$tree/home/podman"
        # shellcheck disable=SC2034 # build-testimage reads it as the date of the image.
        YMD=$tag
        . <(sed -n '/^echo \$YMD /,/^chmod 755 bytecheck/p' "$PODMAN_SUITE/build-testimage")
    )
    ln -s /proc/mounts "$tree/etc/mtab"
    echo 'ID=busybox' >"$tree/etc/os-release"
    sed -i 's/^root:.*/root:x:0:root/; $ a nobody:x:65534:' "$tree/etc/group"
    echo 'nobody:x:65534:65534:nobody:/:/bin/false' >>"$tree/etc/passwd"
    # A program that Debian's busybox lacks, and an nc that words an error as musl does.
    cat >"$tree/bin/printenv" <<'END'
#!/bin/sh
tr '\0' '\n' </proc/$$/environ | if [ $# = 0 ]; then cat; else sed -n "s/^$1=//p" | grep .; fi
END
    rm "$tree/bin/nc"
    printf '#!/bin/sh\nset -o pipefail\nbusybox nc "$@" 2>&1 | sed "s/already in use/in use/"\n' >"$tree/bin/nc"
    # The tests need this of a larger image with systemd.
    printf '#!/bin/sh\nexec sleep 1000\n' >"$tree/usr/sbin/init"
    chmod 755 "$tree"/{bin/printenv,bin/nc,usr/sbin/init}
    cp -r --dereference /usr/share/zoneinfo "$tree/usr/share/"

    tar -C "$tree" -cf "$work/tree.tar" .
    podman import --change 'WORKDIR /home/podman' --change 'LABEL created_by=build-testimage' \
        --change 'CMD ["/bin/echo", "This container is intended for podman CI testing"]' \
        --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
        "$work/tree.tar" "quay.io/libpod/testimage:$tag"
    publish "quay.io/libpod/testimage:$tag" "testimage:$tag"
    publish "quay.io/libpod/testimage:$tag" "systemd-image:$(default_of PODMAN_SYSTEMD_IMAGE_TAG)"
    podman load --quiet --input "$work/image.tar"
    publish "$image" "testimage:$(default_of PODMAN_NONLOCAL_IMAGE_TAG)"
    publish "$image" k8s-pause:3.5
    podman rmi "$image" docker.io/library/busybox:1.35
}

publish() { # IMAGE NAME
    podman push --quiet --tls-verify=false "$1" "127.0.0.1:60333/libpod/$2"
}

default_of() { # VARIABLE
    sed -n "s/^$1=.*:-\"\(.*\)\".*/\1/p" "$PODMAN_SUITE/helpers.bash"
}

after_check() {
    podman pod rm --all --force --time 0
    podman rm --all --force --time 0
    podman volume prune --force
}

after_checks() {
    remove_cgroups libpod_parent
}

# Runs the tests of a file with a runtime, and keeps the output in $logs/FILE.RUNTIME.
suite() { # FILE RUNTIME [PATTERN]
    printf '[engine]\nruntime = "%s"\n' "$2" >/etc/containers/containers.conf.d/runtime.conf
    bats --formatter tap --filter "${3-}" "$PODMAN_SUITE/$1.bats" >"$logs/$1.$2" 2>&1 || true
    rm /etc/containers/containers.conf.d/runtime.conf
    cat "$logs/$1.$2"
    grep -q '^1\.\.[1-9]' "$logs/$1.$2"
}

# Prints the names of the tests that failed.
failures() { # FILE RUNTIME
    sed -n 's/^not ok [0-9]* \(\[[0-9]*\] \)\?//p' "$logs/$1.$2"
}

# Passes if every test that fails with husk also fails with runc.
tests_of() { # FILE
    local pattern
    need 'the tests cannot be downloaded' test -d "$PODMAN_SUITE"
    suite "$1" husk
    pattern=$(failures "$1" husk | sed 's/[][\\.*^$+?(){}|]/\\&/g' | paste -sd '|')
    [ -n "$pattern" ] || return 0
    suite "$1" runc "^($pattern)\$"
    same '' "$(comm -23 <(failures "$1" husk | sort) <(failures "$1" runc | sort))"
}

check_tests_of_run() { tests_of 030-run; }
check_tests_of_cp() { tests_of 065-cp; }
check_tests_of_exec() { tests_of 075-exec; }
check_tests_of_volumes() { tests_of 160-volumes; }
check_tests_of_pods() { tests_of 200-pod; }

run_checks "$@"
