#!/bin/sh
# Runs rooms of engines in the guest, where systemd makes the cgroups: version 2, with every controller. Runs all rooms
# or those that are named, and in each all checks or those whose names contain a WORD. A check takes about 30 seconds
# there. The guest is ended after two hours, or the seconds in DEADLINE.
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
rooms=${*:-podman containerd containerd-shim cri cri-shim docker}

target=$(packaging/target.sh)
built=${CARGO_TARGET_DIR:-target}/$target/release
husk=${RUNTIME_UNDER_TEST-}
if [ -z "$husk" ]; then
    cargo build --quiet --release --target "$target" --package husk --bin husk
    husk=$built/husk
fi
shim=${SHIM_UNDER_TEST-}
if [ -z "$shim" ]; then
    cargo build --quiet --release --target "$target" --package husk-shim
    shim=$built/containerd-shim-husk-v1
fi

job=$(mktemp -d)
trap 'rm -rf "$job"' EXIT
mkdir "$job/integration"
cp "$husk" "$job/husk"
cp "$shim" "$job/containerd-shim-husk-v1"
strip "$job/husk" "$job/containerd-shim-husk-v1"
cp -r README.md examples "$job"
case " $rooms" in
*' first-hour'*)
    cargo build --quiet --release --target "$target" --package husk --example hello
    cp "$built/examples/hello" "$job/hello"
    git ls-files -z | tar --create --null --files-from - --file "$job/source.tar"
    ;;
esac
for room in lib first-hour podman containerd containerd-shim docker cri cri-shim; do cp -r "integration/$room" "$job/integration"; done
cat >"$job/run" <<END
#!/bin/bash
export HELLO_UNDER_TEST=/job/hello
export RUNTIME_UNDER_TEST=/job/husk SHIM_UNDER_TEST=/job/containerd-shim-husk-v1 MACHINE_IS_OURS=1 PATIENCE=300 CARGO_TARGET_DIR=/job/results
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
