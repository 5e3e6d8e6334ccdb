#!/bin/sh
# Runs every test of the tree and counts the results. A test that the machine cannot run prints "skipped: " and the
# reason; it counts as skipped, not as passed.
set -eu
cd "$(dirname "$0")/.."

# Tests use these tools to inspect a child or to compare results, and skip where one is missing.
tests/install.sh strace pkg-config libseccomp-dev dbus-daemon iproute2 groff-base zsh fish libxml2-utils \
    postgresql redis-server

# Releases are built with musl. If that cannot be had, husk is tested with the C library of this machine.
target=$(packaging/target.sh --add)
host=$(rustc -vV | sed -n 's/^host: //p')

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
# The library's features are for others. In one build of the workspace they would be in husk too.
library() { cargo test --target "$target" --package husk-spawn --all-features --no-fail-fast "$@" 2>&1; }
# The C library of this machine matters when husk starts, reports an error or ends.
other_library() {
    [ "$target" != "$host" ] || return 0
    cargo build --target "$host" --example guest 2>&1 &&
        cargo test --target "$host" --no-fail-fast --test tests -- exec:: hostile::faults:: lifecycle:: messages:: 2>&1
}
{
    cargo test --target "$target" --workspace --no-fail-fast 2>&1 && other_library &&
        library --test command --test tokio --examples && library --doc && tests/examples.sh 2>&1 ||
        echo "test run FAILED"
} | tee "$log"
if grep -q '^test run FAILED' "$log"; then status=1; fi

count() { sed -n "$1" "$log" | awk '{ n += $1 } END { print n + 0 }'; }
run=$(count 's/^test result: .* \([0-9]*\) passed;.*/\1/p')
failed=$(count 's/^test result: .*; \([0-9]*\) failed;.*/\1/p')
examples=$(grep -c '^example .* ok$' "$log" || true)
skipped=$(grep -c '^skipped: ' "$log" || true)
passed=$((run + examples - skipped))

echo
grep '^skipped: ' "$log" | sort || true
echo "total: $passed passed, $failed failed, $skipped skipped"
if [ "$passed" -le "$skipped" ]; then
    echo "too much was skipped for this to mean anything"
    status=1
fi
exit $status
