#!/bin/sh
# Runs husk's tests in the guest, as root and as an ordinary user with a session. Without names it runs the tests that
# systemd, shared mounts or all controllers of cgroup v2 can affect. Prints a line for each test, and a total. Logs go to
# target/integration-guest, or to DIR. Ends after 20 minutes, or the seconds in DEADLINE. On a machine that cannot
# run the guest, prints the reason and returns status 69.
#
#     tests.sh [--results DIR] [--kernel WORDS] [NAME...]
#
# WORDS are added to the command line of the guest's kernel: see run.sh.
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
deadline=${DEADLINE:-1200}
chosen="apparmor:: cgroups:: exec:: lifecycle:: limits:: mounts:: namespaces:: process:: resources:: systemd:: terminal::"
# Those of the shim, which needs root.
chosen_of_shim="life:: resources::"
if [ $# -gt 0 ]; then chosen=$* chosen_of_shim=$*; fi

tests/install.sh qemu-system-x86 mmdebstrap e2fsprogs
cargo build --quiet --bin husk --example guest
tests=$(cargo test --quiet --test tests --no-run --message-format json |
    sed -n 's|.*"executable":"\([^"]*/deps/tests-[^"]*\)".*|\1|p')
built=$(dirname "$(dirname "$tests")")
cargo build --quiet --package husk-shim --bin containerd-shim-husk-v1 --example inside
shim_tests=$(cargo test --quiet --package husk-shim --test tests --no-run --message-format json |
    sed -n 's|.*"executable":"\([^"]*/deps/tests-[^"]*\)".*|\1|p')

job=$(mktemp -d)
trap 'rm -rf "$job"' EXIT
mkdir -p "$job/built/examples"
cp "$built/husk" "$tests" "$job/built"
cp "$built/containerd-shim-husk-v1" "$job/built"
cp "$shim_tests" "$job/built/shim-tests"
cp "$built/examples/guest" "$built/examples/inside" "$job/built/examples"
mkdir "$job/hostile"
cp tests/hostile/*.md tests/hostile/*.txt "$job/hostile"
# Debug information is useless in the guest and slow to copy.
strip --strip-debug "$job/built/"* "$job/built/examples/"* 2>/dev/null || true
cat >"$job/run" <<END
#!/bin/sh
# The tests look for programs and expected output at the paths where they were built.
mkdir -p "$(dirname "$built")" "$PWD/tests"
ln -s /job/built "$built"
ln -s /job/hostile "$PWD/tests/hostile"
chmod 755 "$(dirname "$built")" /job
tests="/job/built/$(basename "$tests") --skip terminal::bytes $chosen"
as_user='setpriv --reuid 1000 --regid 1000 --init-groups env HOME=/home/tester
    XDG_RUNTIME_DIR=/run/user/1000 DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus
    systemd-run --user --quiet --wait --pipe --property Delegate=yes'
status=0
echo "As root:"
\$tests --test-threads 2 || status=1
echo "The shim:"
/job/built/shim-tests --test-threads 2 $chosen_of_shim || status=1
echo "As a user:"
# One at a time: by default a container's cgroup has its name, and all of these tests share one parent cgroup.
\$as_user \$tests --test-threads 1 || status=1
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
