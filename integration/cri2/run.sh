#!/bin/bash
# Kubernetes' interface on containerd 2, which Debian does not have, by the checks of cri/.
. "$(dirname "$0")/../lib/engines.sh"
engine=$containerd_2
configuration=config-v3.toml
room_checks=$(readlink -f "$(dirname "$0")/../cri/run.sh")
. "$room_checks"
