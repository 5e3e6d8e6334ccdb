#!/bin/sh
# Builds the guest's image where it is not there yet, and prints the directory that holds it: root.img, vmlinuz
# and initrd.img. It stays outside of the tree, by the name of what it is made of, and takes some minutes
# and 2 GiB. Needs root, mmdebstrap and mke2fs.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

made_of=$(cat "$here/packages" "$here/job.service" "$here/image.sh" | sha256sum | cut -c 1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/husk
image=$cache/guest-$made_of
if [ -d "$image" ]; then
    echo "$image"
    exit
fi
for tool in mmdebstrap mke2fs; do
    command -v $tool >/dev/null || { echo "guest: $tool is missing" >&2; exit 69; }
done
[ "$(id -u)" = 0 ] || { echo "guest: building an image needs root" >&2; exit 69; }

echo "guest: building an image in $image" >&2
mkdir -p "$cache"
new=$(mktemp -d "$cache/new-XXXXXX")
trap 'rm -rf "$new"' EXIT

root=$new/root
include=$(sed 's/#.*//' "$here/packages" | xargs | tr ' ' ',')
mmdebstrap --quiet --variant=minbase --include="$include" bookworm "$root" >&2

install -m 644 "$here/job.service" "$root/etc/systemd/system/job.service"
echo guest >"$root/etc/hostname"
echo '127.0.0.1 localhost guest' >"$root/etc/hosts"
cat >"$root/etc/fstab" <<'END'
/dev/vda / ext4 defaults 0 0
/dev/vdb /job ext4 defaults 0 0
END
mkdir "$root/job"

# Somebody without privileges: subordinate ids, a session that begins with the machine, all controllers.
chroot "$root" useradd --create-home --shell /bin/bash --uid 1000 tester
mkdir -p "$root/var/lib/systemd/linger" "$root/etc/systemd/system/user@.service.d"
touch "$root/var/lib/systemd/linger/tester"
printf '[Service]\nDelegate=yes\n' >"$root/etc/systemd/system/user@.service.d/delegate.conf"

# What tests start themselves, what waits for a network, and what does things of its own accord.
chroot "$root" systemctl --quiet enable job.service
chroot "$root" systemctl --quiet mask \
    apparmor.service apt-daily.timer apt-daily-upgrade.timer console-getty.service containerd.service docker.service \
    docker.socket dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer getty.target \
    nftables.service podman-auto-update.timer podman-restart.service podman.service systemd-timesyncd.service \
    systemd-tmpfiles-clean.timer
# Its root is on virtio, whatever this machine has.
echo MODULES=list >"$root/etc/initramfs-tools/conf.d/modules"
printf 'virtio_pci\nvirtio_blk\next4\n' >>"$root/etc/initramfs-tools/modules"
chroot "$root" update-initramfs -u >&2

cp -L "$root/vmlinuz" "$root/initrd.img" "$new"
mke2fs -q -t ext4 -d "$root" "$new/root.img" 6G
rm -rf "$root"
chmod 755 "$new"
# Whoever builds at the same time makes the same: the first name stays.
mv -T "$new" "$image" 2>/dev/null || [ -d "$image" ]
echo "$image"
