#!/bin/bash
# Runs the checks of containerd-shim/ on containerd 2, which Debian does not package.
. "$(dirname "$0")/../lib/engines.sh"
engine=$containerd_2
configuration=config-v3.toml
. "$(dirname "$0")/../containerd-shim/run.sh"
