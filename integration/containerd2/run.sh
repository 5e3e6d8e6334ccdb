#!/bin/bash
# containerd 2, which Debian does not have, by the checks of containerd/: with its own shim and its own ctr.
. "$(dirname "$0")/../lib/engines.sh"
engine=$containerd_2
configuration=config-v3.toml
room_checks=$(readlink -f "$(dirname "$0")/../containerd/run.sh")
. "$room_checks"
