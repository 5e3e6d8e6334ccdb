#!/bin/sh
# Runs a job as root in an emulated machine: Debian 12 with systemd, pure cgroup v2 and all controllers.
#
#     run.sh [--deadline SECONDS] [--kernel WORDS] JOB RESULTS
#
# JOB is a directory, which is copied to /job in the machine. The machine starts /job/run; its output is printed here,
# and its exit status is the status of this script. Files that it leaves in /job/results are copied to RESULTS, with the
# machine's console output in console.log.
#
# The deadline is an hour, or SECONDS. If the image is not built after half of it, the status is 69. If the job is not
# done in time, the machine is ended and the status is 124. On a machine that cannot run the guest the status is 69.
# WORDS are added to the kernel's command line: systemd.unified_cgroup_hierarchy=0 selects cgroup version 1.
#
# ARCH is the machine's architecture: x86_64 (the default) or aarch64. Needs qemu-system-x86_64 or qemu-system-aarch64,
# and e2fsprogs, and the first time the requirements of image.sh. The machine has only a loopback network and a lingering
# ordinary user, `tester` (1000). It is about fifteen times slower than the host.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

deadline=3600
kernel=
while [ $# -gt 2 ]; do
    case $1 in
    --deadline) deadline=$2 ;;
    --kernel) kernel=$2 ;;
    *) break ;;
    esac
    shift 2
done
if [ $# != 2 ] || [ ! -x "$1/run" ]; then
    echo "usage: run.sh [--deadline SECONDS] [--kernel WORDS] JOB RESULTS" >&2
    exit 2
fi
job=$1
mkdir -p "$2"
results=$(CDPATH='' cd -- "$2" && pwd)

cannot() { echo "guest: $*" >&2; exit 69; }
[ "$(uname -m)" = x86_64 ] || cannot "is an x86_64, this is $(uname -m)"
arch=${ARCH:-x86_64}
for tool in "qemu-system-$arch" mke2fs debugfs; do command -v $tool >/dev/null || cannot "$tool is missing"; done
began=$(date +%s)
status=0
image=$(timeout $((deadline / 2)) "$here/image.sh") || status=$?
[ $status != 124 ] || cannot "there was no image after $((deadline / 2)) seconds"
[ $status = 0 ] || exit $status
deadline=$((deadline - $(date +%s) + began))

drives=$(mktemp -d "${TMPDIR:-/var/tmp}/husk-guest-XXXXXX")
trap 'rm -rf "$drives"' EXIT
trap 'exit 130' INT TERM
mke2fs -q -t ext4 -d "$job" -E root_owner=0:0 "$drives/job.img" 8G >&2

# The second serial port is for the job's output. tsc=reliable is needed because the kernel wrongly distrusts the
# processors' counters; with the other clock, a Go program spends half of its time reading it.
machine_x86_64() {
    "$@" -M q35 -cpu max -serial stdio -append "console=ttyS0 tsc=reliable $words"
}
# The board has one serial port, so the second is a card. Pointer authentication in the processor's own way would be most
# of the emulator's work.
machine_aarch64() {
    "$@" -M virt -cpu max,pauth-impdef=on -chardev stdio,id=job -device pci-serial,chardev=job \
        -append "console=ttyAMA0 $words"
}

# The image is not written to, so many machines can share it.
words="root=/dev/vda rw quiet systemd.show_status=false mitigations=off $kernel"
ended=0
TMPDIR=$drives "machine_$arch" timeout "$deadline" "qemu-system-$arch" -accel tcg,thread=multi -smp 2 -m 3G \
    -nodefaults -no-reboot -display none -serial "file:$results/console.log" \
    -kernel "$image/vmlinuz" -initrd "$image/initrd.img" \
    -drive "file=$image/root.img,if=virtio,format=raw,snapshot=on,cache=unsafe" \
    -drive "file=$drives/job.img,if=virtio,format=raw,cache=unsafe" </dev/null || ended=$?

# Ignores the status: the journal of a machine that was killed has to be replayed, which is not an error.
e2fsck -fy "$drives/job.img" >/dev/null 2>&1 || true
from_job() { debugfs -R "$1" "$drives/job.img" 2>/dev/null; }
from_job "rdump /results $drives" >/dev/null
[ ! -d "$drives/results" ] || cp -R "$drives/results/." "$results"
if [ $ended != 0 ]; then
    echo "guest: the machine was ended ($ended): see $results/console.log" >&2
    exit "$ended"
fi
status=$(from_job 'cat /status')
[ -n "$status" ] || { echo "guest: the machine ended before the job did: see $results/console.log" >&2; exit 70; }
exit "$status"
