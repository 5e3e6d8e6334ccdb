#!/bin/sh
# Runs husk's tests in the guest, as root and as an ordinary user with a session. Without names it runs the tests that
# systemd, shared mounts or all controllers of cgroup v2 can affect. Prints a line for each test, and a total. Logs go to
# target/integration-guest, or to DIR. Ends after 20 minutes, or the seconds in DEADLINE. On a machine that cannot
# run the guest, prints the reason and returns status 69.
#
#     tests.sh [--results DIR] [--kernel WORDS] [NAME...]
#
# WORDS are added to the command line of the guest's kernel: see run.sh. With ARCH=aarch64 everything is compiled for that
# architecture, with Debian's compiler, and the tests of crates run there too: nothing else runs them on aarch64.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
cd "$here/../.."

results=${CARGO_TARGET_DIR:-target}/integration-guest
kernel=
while [ $# -gt 0 ]; do
    case $1 in
    --results) results=$2 ;;
    --kernel) kernel=$2 ;;
    *) break ;;
    esac
    shift 2
done
export ARCH="${ARCH:-x86_64}"
deadline=${DEADLINE:-1200}
chosen="apparmor:: cgroups:: checkpoint_stops:: exec:: hostile::faults::failed_call_in_pause lifecycle:: limits:: mounts:: namespaces:: process:: resources:: systemd:: terminal::"
# Those of the shim, which needs root.
chosen_of_shim="life:: resources::"
strip=strip
packages=
if [ "$ARCH" = aarch64 ]; then
    deadline=${DEADLINE:-5400}
    chosen="$chosen escapes:: hermetic:: seccomp::"
    strip=aarch64-linux-gnu-strip
    packages="husk-cgroup husk-image husk-script husk-seccomp husk-spawn husk-sys"
fi
if [ $# -gt 0 ]; then chosen=$* chosen_of_shim=$*; fi

tests/install.sh mmdebstrap e2fsprogs
if [ "$ARCH" = aarch64 ]; then
    # Those for armhf make a 32-bit program, which makes the calls that filters must refuse.
    tests/install.sh qemu-system-arm qemu-user-static gcc-aarch64-linux-gnu libc6-dev-arm64-cross \
        gcc-arm-linux-gnueabihf libc6-dev-armhf-cross
    if ! toolchain=$("$here/toolchain.sh"); then
        echo "skipped: there is no compiler for aarch64"
        echo "total: 0 passed, 0 failed, 1 skipped"
        exit 69
    fi
    export LD_LIBRARY_PATH="$toolchain/usr/lib/x86_64-linux-gnu" RUSTC="$toolchain/usr/bin/rustc"
    export CARGO_BUILD_TARGET=aarch64-unknown-linux-gnu
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
else
    tests/install.sh qemu-system-x86
    CARGO_BUILD_TARGET=$(packaging/target.sh)
    export CARGO_BUILD_TARGET
fi
# Prints the paths of the test binaries of the arguments of 'cargo test', each behind the directory of its package.
binaries() {
    cargo test --quiet --no-run --message-format json "$@" |
        sed -n 's|.*"manifest_path":"\([^"]*\)/Cargo.toml".*"executable":"\([^"]*/deps/[^"]*\)".*|\1 \2|p'
}
cargo build --quiet --bin husk --example guest
tests=$(binaries --test tests | cut -d ' ' -f 2)
built=$(dirname "$(dirname "$tests")")
cargo build --quiet --package husk-shim --bin containerd-shim-husk-v1 --example inside
shim_tests=$(binaries --package husk-shim --test tests | cut -d ' ' -f 2)

job=$(mktemp -d)
trap 'rm -rf "$job"' EXIT
mkdir -p "$job/built/examples"
cp "$built/husk" "$tests" "$job/built"
cp "$built/containerd-shim-husk-v1" "$job/built"
cp "$shim_tests" "$job/built/shim-tests"
cp "$built/examples/guest" "$built/examples/inside" "$job/built/examples"
mkdir -p "$job/tree/tests/hostile" "$job/built/deps"
cp tests/hostile/*.md tests/hostile/*.txt "$job/tree/tests/hostile"
: >"$job/binaries"
if [ -n "$packages" ]; then
    # The guest has no compiler, which 'freestanding' needs, and would take an hour for 'stress'.
    # shellcheck disable=SC2046 # One option for each package.
    binaries $(printf -- '--package %s ' $packages) | grep -v '/\(freestanding\|stress\)-' >"$job/binaries"
    while read -r _ binary; do cp "$binary" "$job/built/deps"; done <"$job/binaries"
    cp "$built/husk-spawn-guest" "$job/built"
    cp -r crates "$job/tree"
    mkdir "$job/oracles"
    oracle=crates/seccomp/tests/oracle/kernel.c
    aarch64-linux-gnu-gcc -O2 -static -o "$job/oracles/kernel" $oracle
    arm-linux-gnueabihf-gcc -O2 -static -o "$job/oracles/kernel-32" $oracle
fi
# Debug information is useless in the guest and slow to copy.
find "$job/built" -type f -perm -u+x -exec $strip --strip-debug {} + 2>/dev/null || true
cat >"$job/run" <<END
#!/bin/sh
# The tests look for programs and expected output at the paths where they were built.
mkdir -p "$(dirname "$built")" "$(dirname "$built")/../tmp" "$PWD"
ln -s /job/built "$built"
ln -s /job/tree/* "$PWD"
chmod 755 "$(dirname "$built")" /job
tests="/job/built/$(basename "$tests") --skip terminal::bytes $chosen"
as_user='setpriv --reuid 1000 --regid 1000 --init-groups env HOME=/home/tester
    XDG_RUNTIME_DIR=/run/user/1000 DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus
    systemd-run --user --quiet --wait --pipe --property Delegate=yes'
[ ! -d /job/oracles ] || export HUSK_ORACLES=/job/oracles
status=0
while read -r package binary; do
    echo "\${package##*/}, \${binary##*/}:"
    (cd "\$package" && exec "\$binary" --test-threads 2) || status=1
done </job/binaries
echo "As root:"
\$tests --test-threads 2 || status=1
echo "The shim:"
/job/built/shim-tests --test-threads 2 $chosen_of_shim || status=1
echo "As a user:"
# One at a time: by default a container's cgroup has its name, and all of these tests share one parent cgroup.
\$as_user \${HUSK_ORACLES:+--setenv=HUSK_ORACLES} \$tests --test-threads 1 || status=1
exit \$status
END
chmod +x "$job/run"

status=0
mkdir -p "$results"
"$here/run.sh" --deadline $deadline --kernel "$kernel" "$job" "$results" >"$results/output" 2>&1 || status=$?
sed 's/^test \(.*\) \.\.\. \(ok\|FAILED\|ignored\)$/\2: \1/' "$results/output"
if [ $status = 69 ]; then
    echo "skipped: $(tail -n 1 "$results/output")"
    echo "total: 0 passed, 0 failed, 1 skipped"
    exit $status
fi
sum() { sed -n "s/^test result: .* \([0-9]*\) $1;.*/\1/p" "$results/output" | awk '{ n += $1 } END { print n + 0 }'; }
# A test that runs alone prints 'skipped: ' behind its name, not at the beginning of a line.
skipped=$(grep -c 'skipped: ' "$results/output" || true)
failed=$(sum failed)
if [ $status != 0 ] && [ "$failed" = 0 ]; then
    echo "the guest ended with $status before its tests did"
    failed=1
fi
echo "total: $(($(sum passed) - skipped)) passed, $failed failed, $skipped skipped; logs in $results"
exit "$status"
