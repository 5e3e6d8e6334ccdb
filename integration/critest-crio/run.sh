#!/bin/bash
# Runs Kubernetes' own tests of CRI on CRI-O: see critest/.
. "$(dirname "$0")/../lib/engines.sh"
engine=$cri_o
node_packages=$cri_o_packages
node=$(readlink -f "$(dirname "$0")/../crio/node.sh")
. "$(dirname "$0")/../critest/run.sh"
