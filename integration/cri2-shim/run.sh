#!/bin/bash
# Runs the checks of cri-shim/ on containerd 2, which Debian does not package.
. "$(dirname "$0")/../lib/engines.sh"
engine=$containerd_2
configuration=config-v3-shim.toml
. "$(dirname "$0")/../cri-shim/run.sh"
