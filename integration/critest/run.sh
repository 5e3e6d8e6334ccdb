#!/bin/bash
# Runs Kubernetes' own tests of CRI (critest of cri-tools) on containerd 2 or another engine, first with runc and then
# with husk. Each test that passes with runc has to pass with husk. critest is not packaged: CRITEST names the program,
# and without it the room is skipped. The images are made here, so that no registry is needed, and tests of pulling are
# left out.
#
#     CRITEST=/path/to/critest integration/critest/run.sh
#     CRITEST=/path/to/critest CRITEST_FOCUS=Streaming integration/critest/run.sh   only tests whose name has the word
if [ ! -x "${CRITEST-}" ]; then
    room=$(basename "$(dirname "$0")")
    printf '%s: %-70s skip (CRITEST names no program)\n' "$room" "what passes with runc passes with husk"
    echo "$room: 0 passed, 0 failed, 1 skipped"
    exit 0
fi
. "$(dirname "$0")/../lib/engines.sh"
engine=${engine:-$containerd_2}
configuration=${configuration:-config-v3.toml}
node_packages="${node_packages-} gcc libc6-dev"
room_checks=$(readlink -f "${BASH_SOURCE[0]}")
# critest runs for minutes in one check.
export PATIENCE=${PATIENCE:-400}

registry=registry.k8s.io/e2e-test-images
staging=gcr.io/k8s-staging-cri-tools

# Makes and imports an image from the room's: adds a layer with the files of DIRECTORY, and the settings in
# CONFIGURATION, which is JSON.
derive_image() { # REFERENCE DIRECTORY CONFIGURATION
    local place
    place=$(mktemp -d "$work/derived-XXXXXX")
    tar -C "$place" -xf "$work/image.tar"
    tar -C "$2" -cf "$place/more.tar" .
    jq --argjson more "$3" --arg digest "$(sha256sum "$place/more.tar" | cut -d ' ' -f 1)" \
        '.config += $more | .rootfs.diff_ids += ["sha256:" + $digest] | .history += .history' \
        "$place/config.json" >"$place/config.new"
    mv "$place/config.new" "$place/config.json"
    jq --arg reference "$1" '.[0].RepoTags = [$reference] | .[0].Layers += ["more.tar"]' "$place/manifest.json" >"$place/manifest.new"
    mv "$place/manifest.new" "$place/manifest.json"
    tar -C "$place" -cf "$place/image.tar" manifest.json config.json layer.tar more.tar
    import "$place/image.tar"
    rm -r "$place"
}

# Makes the image of a web server with the name, pid file and log that the tests expect.
web_server() { # REFERENCE NAME PORT
    local files
    files=$(mktemp -d "$work/files-XXXXXX")
    mkdir -p "$files/usr/sbin" "$files/var/run" "$files/www"
    echo served >"$files/www/index.html"
    printf '#!/bin/sh\necho $$ >/var/run/%s.pid\necho %s\nhttpd -f -p %s -h /www &\ntrap "exit 0" TERM QUIT\nwait\n' \
        "$2" "$2" "$3" >"$files/usr/sbin/$2"
    chmod 755 "$files/usr/sbin/$2"
    derive_image "$1" "$files" "{\"Cmd\": [\"/usr/sbin/$2\", \"master process\"]}"
}

make_images() {
    local files=$work/critest-files
    mkdir -p "$files/etc" "$files/bin"
    printf '%s:/:/bin/sh\n' root:x:0:0: www-data:x:33:33: default-user:x:1000:1000: nobody:x:65534:65534: >"$files/etc/passwd"
    printf 'root:x:0:\nwww-data:x:33:\ndefault-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n' >"$files/etc/group"
    # Programs that Debian's busybox lacks, and `ls` as a file of its own, which the tests mask.
    printf '#!/bin/sh\npidof "$@"\n' >"$files/bin/pgrep"
    printf '#!/bin/sh\ncat /proc/sysvipc/shm\n' >"$files/bin/ipcs"
    chmod 755 "$files/bin/pgrep" "$files/bin/ipcs"
    cp "$(command -v busybox)" "$files/bin/ls"
    derive_image "$registry/busybox:1.29-2" "$files" '{}'
    derive_image "$staging/test-image-predefined-group:latest" "$files" '{"User": "1000"}'
    derive_image "$staging/test-image-user-uid:latest" "$files" '{"User": "1002"}'
    derive_image "$staging/test-image-user-username:latest" "$files" '{"User": "www-data"}'
    derive_image "$staging/test-image-user-uid-group:latest" "$files" '{"User": "1003:1004"}'
    derive_image "$staging/test-image-user-username-group:latest" "$files" '{"User": "www-data:1004"}'
    web_server "$registry/nginx:1.14-2" nginx 80
    web_server "$registry/httpd:2.4.39-4" httpd 80
    web_server "$staging/hostnet-nginx-$(dpkg --print-architecture):latest" nginx 12003
    printf '#include <stdio.h>\n#include <unistd.h>\nint main(void) { printf("Effective uid: %%d\\n", geteuid()); return 0; }\n' |
        cc -static -o "$files/bin/nnp" -x c -
    chmod 4755 "$files/bin/nnp"
    derive_image "$registry/nonewprivs:1.3" "$files" '{"Entrypoint": ["/bin/nnp"]}'
}

# Prints the names of the tests that ended in the given way.
tests_that() { # passed|failed|skipped HANDLER
    /usr/bin/python3 - "$1" "$logs/$2/junit.xml" <<'END'
import sys
import xml.etree.ElementTree as tree

for case in tree.parse(sys.argv[2]).iter("testcase"):
    ended = case.get("status")
    if ended not in ("passed", "skipped", "pending"):
        ended = "failed"
    if ended == sys.argv[1] and case.get("name").startswith("[It]"):
        print(case.get("name"))
END
}

run_critest() { # HANDLER
    local options=()
    mkdir -p "$logs/$1"
    [ -z "${CRITEST_FOCUS-}" ] || options+=("--ginkgo.focus=$CRITEST_FOCUS")
    # The exit code only says that some tests failed, which may be so with both runtimes.
    "$CRITEST" --runtime-endpoint "unix://$CRI_SOCKET" --image-endpoint "unix://$CRI_SOCKET" --runtime-handler "$1" \
        --ginkgo.junit-report "$logs/$1/junit.xml" --ginkgo.seed 1 --ginkgo.no-color --ginkgo.skip 'Image Manager' "${options[@]}" \
        >"$logs/$1/output.txt" 2>&1 || true
    after_check
    echo "$1: $(tests_that passed "$1" | wc -l) passed, $(tests_that failed "$1" | wc -l) failed, $(tests_that skipped "$1" | wc -l) skipped"
}

check_what_passes_with_runc_passes_with_husk() {
    make_images
    run_critest runc
    run_critest husk
    # critest may have failed before it ran any test; then comparing the results would mean nothing.
    [ "$(tests_that passed runc | wc -l)" -gt 0 ]
    local differing again
    differing=$(comm -23 <(tests_that passed runc | sort) <(tests_that passed husk | sort))
    [ -n "$differing" ] || return 0
    # Tests again, because engines have races: CRI-O closes the terminal of an exec when the runtime exits, perhaps
    # before it has read all of the output (oci_unix.go, ttyCmd).
    echo "tested again: $differing"
    again=$(sed 's/^\[It\] //; s/[][().*+?{}|^$\\]/\\&/g' <<<"$differing" | paste -sd '|')
    CRITEST_FOCUS=$again run_critest husk
    same '' "$(comm -23 <(echo "$differing") <(tests_that passed husk | sort))"
}

. "$(dirname "${BASH_SOURCE[0]}")/../cri/run.sh"
