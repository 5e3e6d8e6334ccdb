#!/bin/bash
# containerd 2, which Debian does not have, by the checks of containerd/: with its own shim and its own ctr.
engine='github.com/containerd/containerd/v2@v2.1.9 - containerd containerd-shim-runc-v2 ctr'
configuration=config-v3.toml
room_checks=$(readlink -f "$(dirname "$0")/../containerd/run.sh")
. "$room_checks"
