#!/bin/bash
# Kubernetes' interface on containerd 2, which Debian does not have, by the checks of cri/.
engine='github.com/containerd/containerd/v2@v2.1.9 - containerd containerd-shim-runc-v2 ctr'
configuration=config-v3.toml
room_checks=$(readlink -f "$(dirname "$0")/../cri/run.sh")
. "$room_checks"
