#!/bin/bash
# Tests husk under real engines: runs every room, or those that are named. lib/room.sh lists the environment variables
# that rooms read.
set -eu
cd "$(dirname "$0")"

rooms=("$@")
[ $# -gt 0 ] || rooms=(first-hour podman podman5 podman5-system containerd containerd2 containerd-shim
    containerd2-shim cri cri2 cri-shim cri2-shim crio critest critest-crio critest-shim docker docker-shim hermetic)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
for room in "${rooms[@]}"; do
    "$room/run.sh" 2>&1 | tee -a "$log"
    [ "${PIPESTATUS[0]}" = 0 ] || status=1
done

echo
# A room that could not begin prints no total; it counts as one failure if no check failed.
awk -v status=$status -F '[:,] ' '
    / passed, [0-9]+ failed, [0-9]+ skipped$/ { passed += $2; failed += $3; skipped += $4 }
    END {
        if (status && !failed) failed = 1
        printf "total: %d passed, %d failed, %d skipped\n", passed, failed, skipped
    }' "$log"
exit $status
