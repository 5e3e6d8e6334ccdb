#!/bin/bash
# Runs the checks of podman/ on podman 5, which Debian does not package. The other programs that it starts are Debian's.
. "$(dirname "$0")/../lib/engines.sh"
engine=$podman_5
room_checks=$(readlink -f "$(dirname "$0")/../podman/run.sh")
# podman 5 warns about cgroup v1 on standard error, whose contents checks compare.
export PODMAN_IGNORE_CGROUPSV1_WARNING=1
. "$room_checks"
