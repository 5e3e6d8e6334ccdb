#!/bin/bash
# Kubernetes' own tests of its interface on CRI-O: see critest/.
. "$(dirname "$0")/../lib/engines.sh"
engine=$cri_o
node_packages=$cri_o_packages
node=$(readlink -f "$(dirname "$0")/../crio/node.sh")
. "$(dirname "$0")/../critest/run.sh"
