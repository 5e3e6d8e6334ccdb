#!/bin/bash
# Runs the checks of containerd/ on containerd 2, which Debian does not package, with its own shim and ctr.
. "$(dirname "$0")/../lib/engines.sh"
engine=$containerd_2
configuration=config-v3.toml
room_checks=$(readlink -f "$(dirname "$0")/../containerd/run.sh")
. "$room_checks"
