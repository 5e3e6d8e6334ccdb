# shellcheck shell=bash disable=SC2034 # Rooms set `engine` to one of these.
# Engines that Debian does not package and that more than one room builds (room.sh).

containerd_2='github.com/containerd/containerd/v2@v2.1.9 - containerd containerd-shim-runc-v2 ctr'
docker_28='github.com/docker/docker@v28.5.2+incompatible exclude_graphdriver_btrfs dockerd docker-proxy'
podman_5='github.com/containers/podman/v5@v5.6.2 exclude_graphdriver_btrfs,containers_image_openpgp,seccomp podman'
cri_o='github.com/cri-o/cri-o@v1.34.0 exclude_graphdriver_btrfs,containers_image_openpgp,containers_image_ostree_stub,seccomp crio'
# Packages to build and run CRI-O. podman loads images into CRI-O's storage; nft publishes ports on the host.
cri_o_packages='conmon podman nftables libseccomp-dev pkg-config gcc'
