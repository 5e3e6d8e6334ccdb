#!/bin/sh
# Runs in the guest those of our tests that a machine with systemd, shared mounts and all controllers of cgroup v2 sees
# differently: as root, and as an ordinary user in a session of their own. A line a test and a total;
# logs go to target/integration-guest, or to the directory that is named. With names, it runs the tests
# of these names alone. It is over after 15 minutes, or the seconds in DEADLINE, whatever happens. Where there can be no
# guest it says why, and the status is 69.
#
#     tests.sh [--results DIR] [--kernel WORDS] [NAME...]
#
# WORDS are for the guest's kernel: see run.sh.
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
deadline=${DEADLINE:-900}
chosen="apparmor:: cgroups:: exec:: lifecycle:: limits:: mounts:: namespaces:: process:: resources:: systemd:: terminal::"
if [ $# -gt 0 ]; then chosen=$*; fi

tests/install.sh qemu-system-x86 mmdebstrap e2fsprogs
cargo build --quiet --bin husk --example guest
tests=$(cargo test --quiet --test tests --no-run --message-format json |
    sed -n 's|.*"executable":"\([^"]*/deps/tests-[^"]*\)".*|\1|p')
built=$(dirname "$(dirname "$tests")")

job=$(mktemp -d)
trap 'rm -rf "$job"' EXIT
mkdir -p "$job/built/examples"
cp "$built/husk" "$tests" "$job/built"
cp "$built/examples/guest" "$job/built/examples"
mkdir "$job/hostile"
cp tests/hostile/*.md tests/hostile/*.txt "$job/hostile"
# Words that tell nothing here, and take their time to be copied.
strip --strip-debug "$job/built/"* "$job/built/examples/guest" 2>/dev/null || true
cat >"$job/run" <<END
#!/bin/sh
# The tests look for programs, and for what they expect, where they were built.
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
echo "As a user:"
# A container's cgroup is named after it where nothing else is said, and all of these are in one.
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
# The word may stand behind the name of a test that runs alone.
skipped=$(grep -c 'skipped: ' "$results/output" || true)
failed=$(sum failed)
if [ $status != 0 ] && [ "$failed" = 0 ]; then
    echo "the guest ended with $status before its tests did"
    failed=1
fi
echo "total: $(($(sum passed) - skipped)) passed, $failed failed, $skipped skipped; logs in $results"
exit "$status"
