#!/bin/bash
# Runs the checks of cri/ on CRI-O, which Debian does not package. conmon, the network plugins and podman, which loads
# images into CRI-O's storage, are Debian's.
. "$(dirname "$0")/../lib/engines.sh"
engine=$cri_o
node_packages=$cri_o_packages
node=$(readlink -f "$(dirname "$0")/node.sh")
room_checks=$(readlink -f "$(dirname "$0")/../cri/run.sh")
. "$room_checks"
