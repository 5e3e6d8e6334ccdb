#!/bin/bash
# Measures a throwaway container of an image of several hundred MiB: `husk test --image` against `podman run --rm
# --network none`, both as root, and a test that `--cache` remembers. Each runs once in every round, so that other load on
# the machine affects all alike. The image is made of this machine's libraries, so no registry is needed.
#
#   integration/bench/hermetic/images.sh [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/../../.."
self=$PWD/integration/bench/hermetic/images.sh

if [ "${1-}" = --inside ]; then
    umount /sys/fs/cgroup/unified
    # crun makes directories there all the same.
    mount -t tmpfs none /sys/fs/cgroup/unified
    shift
fi
rounds=${1:-20}
husk=$(realpath "${HUSK:-$(ls -t target/*/release/husk | head -n 1)}")
for tool in hyperfine podman crun; do
    command -v "$tool" >/dev/null || { echo "$tool is missing"; exit 1; }
done
[ "$(id -u)" = 0 ] || { echo "podman needs root here: it is to make a cgroup"; exit 1; }

# crun rejects a machine with controllers of both versions of cgroups.
if mountpoint -q /sys/fs/cgroup/unified; then
    HUSK=$husk exec unshare --mount bash "$self" --inside "$rounds"
fi
work=$(mktemp -d)
parent=husk-bench-$$
export XDG_CACHE_HOME=$work/cache CONTAINERS_CONF=$work/containers.conf CONTAINERS_STORAGE_CONF=$work/storage.conf
cleanup() {
    podman rmi --all --force >"$work/removed" 2>&1 || cat "$work/removed"
    umount -R "$work/graph/overlay" 2>/dev/null || true
    # podman leaves the parent of its cgroups.
    for directory in "/sys/fs/cgroup/$parent" /sys/fs/cgroup/[!u]*/"$parent"; do
        [ ! -d "$directory" ] || find "$directory" -depth -type d -exec rmdir {} \;
    done
    "$husk" bundle --prune >"$work/pruned"
    rm -rf --one-file-system "$work"
}
cat >"$CONTAINERS_CONF" <<END
[containers]
default_ulimits = []
log_driver = "none"
pids_limit = 0
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "crun"
END
cat >"$CONTAINERS_STORAGE_CONF" <<END
[storage]
driver = "overlay"
graphroot = "$work/graph"
runroot = "$work/run"
END
# Not earlier: without its own storage, podman would remove the machine's images.
trap cleanup EXIT

mkdir "$work/root"
for directory in bin sbin lib lib64; do
    if [ -L "/$directory" ]; then cp -a "/$directory" "$work/root"; fi
done
mkdir -p "$work/root/"{dev,proc,sys,etc,tmp,run} "$work/root/usr/share"
cp -a /usr/sbin /usr/lib64 "$work/root/usr"
mkdir -p "$work/root/usr/bin" "$work/root/usr/lib/$(uname -m)-linux-gnu"
cp -a /usr/bin/true "$work/root/usr/bin"
# Without compilers, which are as large as all the rest.
find "/usr/lib/$(uname -m)-linux-gnu" -maxdepth 1 -size -8M ! -type d -exec cp -a {} "$work/root/usr/lib/$(uname -m)-linux-gnu" \;
for directory in /usr/lib/python3* /usr/share/perl; do
    if [ -d "$directory" ]; then cp -a --parents "$directory" "$work/root"; fi
done
tar --create --file "$work/root.tar" --directory "$work/root" --one-file-system .
files=$(find "$work/root" | wc -l)
rm -rf "$work/root"
podman import --quiet --change 'CMD ["/bin/true"]' "$work/root.tar" localhost/usr:1 >"$work/said" 2>&1 ||
    { cat "$work/said"; exit 1; }
podman save --quiet --format oci-archive --output "$work/image.tar" localhost/usr:1
size=$(($(stat -c %s "$work/root.tar") >> 20))
rm "$work/root.tar"

cd /
image=oci-archive:$work/image.tar
measure() { # NAME COMMAND
    hyperfine -N --show-output --warmup 0 --runs 1 --export-json "$work/one" "$2" >"$work/said" 2>&1 ||
        { cat "$work/said"; exit 1; }
    sed -n 's/^ *"mean": \([0-9.e-]*\).*/\1/p' "$work/one" >>"$work/$1"
}
measure first "$husk test --image $image -- /bin/true"
measure first-remembered "$husk test --cache $work/store --image $image -- /bin/true"
# The digest of a file is kept once the file has not changed for three seconds. The next run keeps those of all files.
sleep 4
measure after "$husk test --cache $work/store --image $image -- /bin/true"
for ((round = 0; round < rounds; round++)); do
    measure husk "$husk test --image $image -- /bin/true"
    measure podman "podman run --rm --network none --cgroup-parent /$parent localhost/usr:1 /bin/true"
    measure remembered "$husk test --cache $work/store --image $image -- /bin/true"
done

echo "An image of $size MiB and $files files: milliseconds over $rounds rounds; $(uname -sr), $(nproc) processors;"
echo "$("$husk" --version | head -n 1), $(podman --version), $(crun --version | head -n 1)"
echo
echo '| | least | median | 9 of 10 |'
echo '| - | -: | -: | -: |'
row() { # NAME TITLE
    sort -g "$work/$1" | awk -v title="$2" '{ n[NR] = $1 * 1000 } END {
        printf "| %s | %.1f | %.1f | %.1f |\n", title, n[1], n[int((NR + 1) / 2)], n[int(NR * 0.9 + 0.5)] }'
}
# shellcheck disable=SC2016 # These are marks of Markdown.
row husk '`husk test --image`'
row podman '`podman run --rm --network none` with crun'
row remembered '`husk test --cache --image`, remembered'
row first '`husk test --image`, which unpacks the image'
row first-remembered '`husk test --cache --image`, which reads the layers once'
