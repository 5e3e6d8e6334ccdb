#!/bin/bash
# Runs the checks of cri/ on containerd 2, which Debian does not package.
. "$(dirname "$0")/../lib/engines.sh"
engine=$containerd_2
configuration=config-v3.toml
room_checks=$(readlink -f "$(dirname "$0")/../cri/run.sh")
. "$room_checks"
