#!/bin/bash
# Runs the checks of containerd/ on husk's own shim, and those of lib/shim.sh.
shim=io.containerd.husk.v1
here=$(dirname "$(readlink -f "$0")")
# In this order, because the last check of containerd/ looks for what the others have left.
room_checks=("$here/../lib/shim.sh" "$here/../containerd/run.sh")
. "${room_checks[0]}"
. "${room_checks[1]}"
