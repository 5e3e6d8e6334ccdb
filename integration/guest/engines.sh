#!/bin/sh
# Runs the rooms of engines in the guest, where systemd makes the cgroups, in version 2 and with every controller: all
# of them, or those that are named, and of them the checks whose names contain a word. A check takes some 30 seconds
# there; two hours, or the seconds in DEADLINE, are the end.
#
#     engines.sh [--results DIR] [ROOM[:WORD,WORD...]...]
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
cd "$here/../.."

results=${CARGO_TARGET_DIR:-target}/integration-guest-engines
if [ "${1-}" = --results ]; then
    results=$2
    shift 2
fi
rooms=${*:-podman containerd cri docker}

husk=${RUNTIME_UNDER_TEST-}
if [ -z "$husk" ]; then
    cargo build --quiet --release --package husk --bin husk
    husk=${CARGO_TARGET_DIR:-target}/$(rustc -vV | sed -n 's/^host: //p')/release/husk
fi

job=$(mktemp -d)
trap 'rm -rf "$job"' EXIT
mkdir "$job/integration"
cp "$husk" "$job/husk"
strip "$job/husk"
cp -r README.md examples "$job"
for room in lib podman containerd docker cri; do cp -r "integration/$room" "$job/integration"; done
cat >"$job/run" <<END
#!/bin/bash
export RUNTIME_UNDER_TEST=/job/husk MACHINE_IS_OURS=1 PATIENCE=300 CARGO_TARGET_DIR=/job/results
status=0
for room in $rooms; do
    words=\${room#*:}
    [ "\$words" != "\$room" ] || words=
    /job/integration/\${room%%:*}/run.sh \${words//,/ } || status=1
done
exit \$status
END
chmod +x "$job/run"
mkdir -p "$results"
"$here/run.sh" --deadline "${DEADLINE:-7200}" "$job" "$results"
