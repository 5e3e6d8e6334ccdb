#!/bin/bash
# Runs the checks of docker/ on husk's own shim. Debian's docker is too old to start shims other than that for runc.
. "$(dirname "$0")/../lib/engines.sh"
engine=$docker_28
shim=io.containerd.husk.v1
checkpoint_network=host
room_checks=("$(readlink -f "$(dirname "$0")/../docker/run.sh")")
. "${room_checks[0]}"
