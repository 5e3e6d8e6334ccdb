# shellcheck shell=bash
# What checks of checkpoint and restore have in common. Rooms that source this file define `count_of NAME`, which prints
# the file /data/n of a container.

needs_criu() {
    need 'criu is not installed' command -v criu
    need 'criu does not work on this kernel' criu check
    need 'husk has no checkpoint' husk checkpoint --help
}

# A program for `sh -c` that counts in /data/n. Beside the number is an id that the process chose when it started, so
# that a program that starts again is not taken for one that goes on.
# shellcheck disable=SC2016,SC2034 # Expanded by the container's shell; used by rooms.
counting='mkdir -p /data; read -r id </proc/sys/kernel/random/uuid; i=0
while :; do i=$((i + 1)); echo "$id $i" >/data/new; mv /data/new /data/n; sleep 0.1; done'

# Fails unless the container goes on from this count, in the process that made it.
counts_from() { # NAME COUNT
    local count
    count=$(count_of "$1")
    same "${2% *}" "${count% *}"
    [ "${count#* }" -ge "${2#* }" ] || { echo "counts from $count instead of $2"; return 1; }
    eventually counts_beyond "$1" "${count#* }"
}

counts_beyond() { # NAME NUMBER
    local count
    count=$(count_of "$1") && [ "${count#* }" -gt "$2" ]
}
