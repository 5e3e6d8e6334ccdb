#!/bin/sh
# Runs a command as root in namespaces where the kernel runs programs of aarch64 with qemu-aarch64-static. The rest of
# this machine does not: the registration ends with the command. Needs root, qemu-user-static and Linux 6.7.
#
#     foreign.sh COMMAND...
set -eu

if [ "${1-}" != --inside ]; then
    directory=$(mktemp -d)
    trap 'rm -rf "$directory"' EXIT
    mkfifo "$directory/mapped"
    unshare --user sh -c 'read -r _ <"$0" || true; exec "$@"' "$directory/mapped" \
        unshare --mount --pid --fork --mount-proc "$0" --inside "$@" &
    # The child opens its end in the new namespace. It continues as root when the ids are mapped.
    exec 3>"$directory/mapped"
    for map in uid_map gid_map; do echo '0 0 4294967295' >"/proc/$!/$map"; done
    exec 3>&-
    status=0
    wait $! || status=$?
    exit $status
fi
shift

# The magic number is that of an ELF file of 64 bits for aarch64, of either type of program. F opens the interpreter now,
# so it need not exist in a changed root.
binfmt=/proc/sys/fs/binfmt_misc
mount -t binfmt_misc none $binfmt
magic='\x7f\x45\x4c\x46\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
printf '%s' ":qemu-aarch64:M::$magic:$mask:$(command -v qemu-aarch64-static):F" >$binfmt/register
"$@"
