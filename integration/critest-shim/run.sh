#!/bin/bash
# Runs Kubernetes' own tests of CRI on containerd 2 and husk's own shim: see critest/.
shim=io.containerd.husk.v1
configuration=config-v3-shim.toml
. "$(dirname "$0")/../critest/run.sh"
