#!/bin/bash
# podman 5, which Debian does not have, by the checks of podman/. What it starts beside husk is Debian's.
. "$(dirname "$0")/../lib/engines.sh"
engine=$podman_5
room_checks=$(readlink -f "$(dirname "$0")/../podman/run.sh")
# It warns on standard error, which is compared.
export PODMAN_IGNORE_CGROUPSV1_WARNING=1
. "$room_checks"
