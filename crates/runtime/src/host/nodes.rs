//! Device nodes for containers in a user namespace, where even root cannot make any.
//!
//! A node works only on a file system that was mounted in the first user namespace. So root makes the nodes there, in
//! a private tmpfs, and the container gets a bind mount of each. Any other caller gets bind mounts of the host's
//! nodes.

use crate::error::Error;
use crate::host::files;
use crate::host::namespaces;
use husk_bundle::Container;
use husk_bundle::container::{Device, DeviceKind, IdMapping};
use husk_listing::Cause;
use husk_plan::Origin;
use husk_script::sys::namespace::{Namespaces, unshare};
use rustix::fs::{AtFlags, CWD, FileType, Mode, chmodat, chownat, makedev, mknodat, stat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
};
use rustix::process::{Gid, Uid};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;

/// Returns the host's node for each of the container's devices, or `None` where there is none.
pub(crate) fn of_host(devices: &[Device]) -> Vec<Option<PathBuf>> {
    devices.iter().map(|device| find(device).filter(|path| is(path, device.kind))).collect()
}

/// Returns the device's own path if the host has the same node there, and otherwise the path that the kernel gives
/// it.
fn find(device: &Device) -> Option<PathBuf> {
    if is(&device.path, device.kind) {
        return Some(device.path.clone());
    }
    let (kind, major, minor) = match device.kind {
        DeviceKind::Character(major, minor) => ("char", major, minor),
        DeviceKind::Block(major, minor) => ("block", major, minor),
        DeviceKind::Fifo => return None,
    };
    let event = files::read_procfs(&format!("/sys/dev/{kind}/{major}:{minor}/uevent")).ok()?;
    let name = event.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    Some(Path::new("/dev").join(name))
}

fn is(path: &Path, kind: DeviceKind) -> bool {
    stat(path).is_ok_and(|found| (FileType::from_raw_mode(found.st_mode), found.st_rdev) == numbers(kind))
}

/// Returns the type and the device number of a node, as mknod(2) takes them.
fn numbers(kind: DeviceKind) -> (FileType, u64) {
    match kind {
        DeviceKind::Character(major, minor) => (FileType::CharacterDevice, makedev(major, minor)),
        DeviceKind::Block(major, minor) => (FileType::BlockDevice, makedev(major, minor)),
        DeviceKind::Fifo => (FileType::Fifo, 0),
    }
}

/// Makes a node for each of the container's devices, with the requested owner and mode. Returns a detached mount of
/// each.
pub(crate) fn make(container: &Container) -> Result<Vec<OwnedFd>, Error> {
    let joined = namespaces::joined_ids(container);
    let [uids, gids] = match &joined {
        Some(joined) => [&joined.uids, &joined.gids],
        None => [&container.uid_mappings, &container.gid_mappings],
    };
    let mut owners = Vec::new();
    for device in &container.devices {
        let host = |what: &str, mappings: &[IdMapping], id: u32| {
            IdMapping::host_id_in(mappings, id).ok_or_else(|| {
                let failure = format!("{what} {id} is not mapped in the container's user namespace");
                Error::step(Origin::with_path("linux.devices", &device.path), failure)
            })
        };
        owners.push((host("uid", uids, device.uid)?, host("gid", gids, device.gid)?));
    }
    // In a thread of its own, whose mount namespace ends with it.
    thread::scope(|scope| {
        let made = scope.spawn(|| make_all(&container.devices, &owners));
        made.join().unwrap_or_else(|_| Err(io::Error::other("a thread failed")))
    })
    .map_err(|error| Error::step("linux.devices", format!("make nodes: {}", Cause::from(error))))
}

fn make_all(devices: &[Device], owners: &[(u32, u32)]) -> io::Result<Vec<OwnedFd>> {
    unshare(Namespaces::MOUNT)?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private)?;
    let fs = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(&fs, "mode", "700")?;
    rustix::mount::fsconfig_create(&fs)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let root = rustix::mount::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    // Before Linux 6.15 a detached mount cannot be cloned.
    rustix::mount::move_mount(&root, "", CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    let mut nodes = Vec::new();
    for (index, (device, (uid, gid))) in devices.iter().zip(owners).enumerate() {
        let name = index.to_string();
        let (kind, number) = numbers(device.kind);
        mknodat(&root, &name, kind, Mode::empty(), number)?;
        let owner = (Uid::from_raw(*uid), Gid::from_raw(*gid));
        chownat(&root, &name, Some(owner.0), Some(owner.1), AtFlags::SYMLINK_NOFOLLOW)?;
        chmodat(&root, &name, Mode::from_raw_mode(device.mode), AtFlags::empty())?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        nodes.push(rustix::mount::open_tree(&root, &name, flags)?);
    }
    Ok(nodes)
}
