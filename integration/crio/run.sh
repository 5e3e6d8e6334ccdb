#!/bin/bash
# CRI-O, which Debian does not have, by the checks of cri/. conmon, the plugins for networks and podman, which fills
# the storage with images, are Debian's.
. "$(dirname "$0")/../lib/engines.sh"
engine=$cri_o
node_packages=$cri_o_packages
node=$(readlink -f "$(dirname "$0")/node.sh")
room_checks=$(readlink -f "$(dirname "$0")/../cri/run.sh")
. "$room_checks"
