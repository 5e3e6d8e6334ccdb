#!/bin/sh
# Runs a job as root in an emulated machine: Debian 12 with systemd, pure cgroup v2 and all controllers.
#
#     run.sh [--deadline SECONDS] [--kernel WORDS] JOB RESULTS
#
# JOB is a directory. The machine has a copy of it at /job, where `run` is started; what that prints is
# printed here, and its status is ours. What it leaves in /job/results is in RESULTS afterwards, with the
# machine's own words in console.log. It is over after an hour, or SECONDS: an image that is not there after half of
# them is given up, a job that is not done is ended with the machine, status 124. Where there can be no machine the
# status is 69. WORDS are more of the kernel's command line: systemd.unified_cgroup_hierarchy=0 makes it a machine
# of version 1.
#
# Needs qemu-system-x86_64 and e2fsprogs, and what image.sh needs the first time. There is no network but
# the loopback; an ordinary user `tester` (1000) lingers; all is about fifteen times slower than outside.
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
for tool in qemu-system-x86_64 mke2fs debugfs; do command -v $tool >/dev/null || cannot "$tool is missing"; done
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

# Nothing is written to the image: many machines can run from one. The kernel distrusts the processors' counters, which
# do agree; its other clock takes half of the time of a program in Go.
ended=0
TMPDIR=$drives timeout "$deadline" qemu-system-x86_64 -M q35 -accel tcg,thread=multi -cpu max -smp 2 -m 3G \
    -nodefaults -no-reboot -display none -serial "file:$results/console.log" -serial stdio \
    -kernel "$image/vmlinuz" -initrd "$image/initrd.img" \
    -append "root=/dev/vda rw console=ttyS0 quiet systemd.show_status=false tsc=reliable mitigations=off $kernel" \
    -drive "file=$image/root.img,if=virtio,format=raw,snapshot=on,cache=unsafe" \
    -drive "file=$drives/job.img,if=virtio,format=raw,cache=unsafe" </dev/null || ended=$?

# Tolerated: a machine that was ended in the middle leaves a journal to be replayed, which is no error.
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
