#!/bin/sh
# Prints the directory of the guest's image, which contains root.img, vmlinuz and initrd.img. Builds it first if it does
# not exist, which takes some minutes and 2 GiB. The directory is outside of the tree, and its name has the hash of the
# files that the image is made from. Needs root, mmdebstrap and mke2fs; status 69 means that one is missing. ARCH is
# x86_64 (the default) or aarch64, which also needs qemu-user-static.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

arch=${ARCH:-x86_64}
packages="$here/packages $here/packages-$arch"
# shellcheck disable=SC2086 # Two files.
made_of=$(cat $packages "$here/job.service" "$here/image.sh" "$here/foreign.sh" | sha256sum | cut -c 1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/husk
image=$cache/guest-$arch-$made_of
if [ -d "$image" ]; then
    echo "$image"
    exit
fi
cannot() { echo "guest: $*" >&2; exit 69; }
for tool in mmdebstrap mke2fs; do command -v $tool >/dev/null || cannot "$tool is missing"; done
[ "$(id -u)" = 0 ] || cannot 'building an image needs root'
# Debian's name of the architecture, the port that the job prints to, and a script that runs the guest's programs here.
case $arch in
x86_64) debian=amd64 port=ttyS1 foreign= ;;
aarch64)
    command -v qemu-aarch64-static >/dev/null || cannot 'qemu-user-static is missing'
    debian=arm64 port=ttyS0 foreign=$here/foreign.sh
    ;;
*) cannot "there is no guest of $arch" ;;
esac

echo "guest: building an image in $image" >&2
mkdir -p "$cache"
new=$(mktemp -d "$cache/new-XXXXXX")
trap 'rm -rf --one-file-system "$new"' EXIT
trap 'exit 143' INT TERM

# The guest has its root on virtio, unlike perhaps this machine. This configuration comes first, because installing the
# kernel makes the initramfs.
mkdir -p "$new/initramfs-tools/conf.d" "$new/initramfs-tools/hooks"
echo MODULES=list >"$new/initramfs-tools/conf.d/modules"
cat >"$new/initramfs-tools/hooks/virtio" <<'END'
#!/bin/sh
[ "${1-}" != prereqs ] || exit 0
. /usr/share/initramfs-tools/hook-functions
manual_add_modules virtio_pci virtio_blk ext4
END
chmod +x "$new/initramfs-tools/hooks/virtio"

# Leaves out documentation, locales and manuals, and does not sync: the image needs no text and no safety from crashes.
root=$new/root
# shellcheck disable=SC2086 # Two files.
include=$(sed 's/#.*//' $packages | xargs | tr ' ' ',')
$foreign mmdebstrap --quiet --mode=root --skip=check/qemu --architectures=$debian --variant=minbase --include="$include" \
    --aptopt='Acquire::Languages "none"' --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --essential-hook="copy-in $new/initramfs-tools /etc" bookworm "$root" >&2 ||
    cannot "mmdebstrap did not get Debian's packages"

sed "s/ttyS1/$port/" "$here/job.service" >"$root/etc/systemd/system/job.service"
echo guest >"$root/etc/hostname"
echo '127.0.0.1 localhost guest' >"$root/etc/hosts"
cat >"$root/etc/fstab" <<'END'
/dev/vda / ext4 defaults 0 0
/dev/vdb /job ext4 defaults 0 0
END
mkdir "$root/job"

# Adds an ordinary user, with subordinate ids, a session that begins at boot, and all controllers.
$foreign chroot "$root" useradd --create-home --shell /bin/bash --uid 1000 tester
mkdir -p "$root/var/lib/systemd/linger" "$root/etc/systemd/system/user@.service.d"
touch "$root/var/lib/systemd/linger/tester"
printf '[Service]\nDelegate=yes\n' >"$root/etc/systemd/system/user@.service.d/delegate.conf"

# Masks services that the tests start themselves, that wait for a network, or that run on a timer.
$foreign chroot "$root" systemctl --quiet enable job.service
$foreign chroot "$root" systemctl --quiet mask \
    apparmor.service apt-daily.timer apt-daily-upgrade.timer console-getty.service containerd.service docker.service \
    docker.socket dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer getty.target \
    nftables.service podman-auto-update.timer podman-restart.service podman.service systemd-timesyncd.service \
    systemd-tmpfiles-clean.timer

cp -L "$root/vmlinuz" "$root/initrd.img" "$new"
mke2fs -q -t ext4 -d "$root" "$new/root.img" 6G >&2
rm -rf "$root" "$new/initramfs-tools"
chmod 755 "$new"
# Another build at the same time makes the same image. The first to be renamed is kept.
mv -T "$new" "$image" 2>/dev/null || [ -d "$image" ]
echo "$image"
