//! Mounts a container's root file system in its bundle, and unmounts it.
//!
//! containerd describes the root file system by mounts, usually one overlay. All of them are mounted below the bundle's
//! directory `rootfs`, each at a path in the earlier ones. The image may contain symlinks there, so these paths are
//! resolved within `rootfs`, and the mounts are attached to descriptors.

mod layers;
mod options;

use crate::failure::{Code, Failure};
use crate::wire::Mount;
use husk_runtime::Cause;
use husk_script::sys::mount::{Extent, mount_setattr};
use husk_script::sys::{Fd, tolerate};
use layers::MappedLayers;
use options::Options;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;
use rustix::mount::{
    MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_change, move_mount,
    open_tree, unmount,
};
use rustix::process::{chdir, fchdir};
use std::ffi::CString;
use std::fmt::Display;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// mount(2) reads this much of its last argument and ignores the rest.
const PAGE: usize = 4096;

/// The directory in the bundle where layers with mapped ids are mounted while the overlay is.
const LAYERS: &str = "mapped-layers";

/// Mounts the container's root file system, and calls `act`. Unmounts it if either fails.
///
/// # Errors
///
/// If a mount cannot be made, or the error of `act`.
pub(super) fn with_root<T>(
    bundle: &Path,
    mounts: &[Mount],
    act: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    if mounts.is_empty() {
        return act();
    }
    let root = bundle.join("rootfs");
    let mut made = 0;
    let done = mount_root(&root, mounts, &mut made).and_then(|()| act());
    if done.is_err() {
        let why = "the first error is reported, and containerd deletes the container";
        (0..made).for_each(|_| tolerate(take_off(&root), why));
    }
    done
}

/// Makes the mounts. Adds those at `root` itself to `made`; the others go with them.
fn mount_root(root: &Path, mounts: &[Mount], made: &mut usize) -> Result<(), Failure> {
    let failed = |what: String, cause: &dyn Display| {
        Failure::new(Code::Unknown, format!("failed to mount rootfs component: {what}: {cause}"))
    };
    match DirBuilder::new().mode(0o711).create(root) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failed(format!("mkdir {}", root.display()), &Cause::from(error)));
        }
        _ => {}
    }
    for mount in mounts {
        let is_root = mount.target.trim_matches('/').is_empty();
        if *made == 0 && !is_root {
            let failure =
                failed(format!("mount on {:?}", mount.target), &"nothing is mounted on the root yet");
            return Err(Failure { code: Code::InvalidArgument, ..failure });
        }
        attach(root, mount, made).map_err(|failure| {
            let Mount { r#type, source, target, .. } = mount;
            let message = failed(
                format!("mount {type} {source:?} on \"/{}\"", target.trim_start_matches('/'), type = r#type),
                &failure.message,
            );
            Failure { code: failure.code, ..message }
        })?;
    }
    Ok(())
}

fn attach(root: &Path, mount: &Mount, made: &mut usize) -> Result<(), Failure> {
    let mut options = options::parse(&mount.options)?;
    if mount.r#type.starts_with("fuse.") || mount.r#type.starts_with("fuse3.") {
        return Err(Failure::new(Code::Unimplemented, "file systems of a mount helper are not supported"));
    }
    let failed = |error: io::Error| Failure::new(Code::Unknown, Cause::from(error).to_string());
    let target = open_target(root, &mount.target).map_err(|errno| failed(errno.into()))?;
    match options.bind {
        Some(extent) => bind(mount, &options, extent, &target).map_err(failed)?,
        None if options.ids.is_some() && mount.r#type != "overlay" => {
            let message = "uidmap= and gidmap= are supported for overlays and bind mounts only";
            return Err(Failure::new(Code::Unimplemented, message));
        }
        None => {
            let mapped = options
                .ids
                .take()
                .map(|ids| MappedLayers::mount(&mut options.data, &ids, root.with_file_name(LAYERS)));
            let _mapped = mapped.transpose().map_err(failed)?;
            create(mount, &mut options, &target).map_err(failed)?;
        }
    }
    *made += usize::from(mount.target.trim_matches('/').is_empty());
    let propagation = options.propagation.or(match options.bind {
        Some(Extent::Top) => Some(MountPropagationFlags::PRIVATE),
        Some(Extent::All) => Some(MountPropagationFlags::PRIVATE | MountPropagationFlags::REC),
        None => None,
    });
    let Some(propagation) = propagation else { return Ok(()) };
    // The new mount covers `target`.
    open_target(root, &mount.target)
        .and_then(|new| mount_change(path_of(&new), propagation))
        .map_err(|errno| failed(errno.into()))
}

/// Opens a path in the root file system as the container will see it, so that no symlink leads out of it.
fn open_target(root: &Path, target: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = open(root, flags | OFlags::DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
    if target.trim_matches('/').is_empty() {
        return Ok(root);
    }
    openat2(root, target, flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
}

fn path_of(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Bind mounts the source, with its attributes from the beginning.
fn bind(mount: &Mount, options: &Options, extent: Extent, target: &OwnedFd) -> io::Result<()> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if extent == Extent::All {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    let tree = open_tree(CWD, mount.source.as_str(), flags)?;
    // As with mount(8), the options concern the first mount of the tree.
    mount_setattr(Fd::of(&tree), Extent::Top, options.attributes(), MountPropagationFlags::empty())?;
    if let Some(ids) = &options.ids {
        layers::map_ids(&tree, extent, ids)?;
    }
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(&tree, "", target, "", flags)?)
}

/// Mounts a new file system, with mount(2): fsconfig(2) takes at most 255 bytes of a value, fewer than the lower
/// directories of an overlay have.
fn create(new: &Mount, options: &mut Options, target: &OwnedFd) -> io::Result<()> {
    let length = |data: &[String]| data.iter().map(|option| option.len() + 1).sum::<usize>();
    let mut common = None;
    if new.r#type == "overlay" && length(&options.data) > PAGE {
        common = layers::shorten(&mut options.data);
    }
    if length(&options.data) > PAGE {
        return Err(io::Error::other("its options are longer than a page of memory"));
    }
    let data = CString::new(options.data.join(","))?;
    let mount = || mount(new.source.as_str(), path_of(target), new.r#type.as_str(), options.flags, &*data);
    match common {
        Some(common) => in_directory(&common, mount)?,
        None => mount()?,
    }
    Ok(())
}

/// Calls `act` in another working directory. This process has one thread.
fn in_directory(directory: &Path, act: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
    let own = open(".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    chdir(directory)?;
    let done = act();
    fchdir(own)?;
    done
}

/// Unmounts all mounts at and below `root`. It is not an error if there are none.
///
/// # Errors
///
/// If a mount cannot be unmounted.
pub(super) fn unmount_root(root: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure::new(Code::Unknown, format!("failed rootfs umount: {}", Cause::from(error)))
    };
    // Mounted if `create` was killed.
    take_off(&root.with_file_name(LAYERS)).map_err(|errno| failed(errno.into()))?;
    let mut was_mounted = false;
    while take_off(root).map_err(|errno| failed(errno.into()))? {
        was_mounted = true;
    }
    // Everything below has gone with the first mount at `root`.
    if was_mounted || !root.exists() {
        return Ok(());
    }
    for mount_point in below(root, &fs::read_to_string("/proc/self/mountinfo").map_err(failed)?) {
        take_off(&mount_point).map_err(|errno| failed(errno.into()))?;
    }
    Ok(())
}

/// Unmounts the topmost mount at a path and all mounts below it. Returns false if nothing is mounted there.
///
/// Detaching does not wait until the file system is written to the disk, which takes milliseconds on a busy one. The
/// container's processes are gone, so nobody writes to it any more.
fn take_off(path: &Path) -> Result<bool, Errno> {
    match unmount(path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH) {
        Ok(()) => Ok(true),
        // EINVAL: it is not a mount point, or a symlink.
        Err(Errno::INVAL | Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Returns the mount points below a directory, the last mounted first.
fn below(root: &Path, mountinfo: &str) -> Vec<PathBuf> {
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape);
    let mut below: Vec<_> = points.filter(|point| point != root && point.starts_with(root)).collect();
    below.reverse();
    below
}

/// Decodes what `/proc/PID/mountinfo` writes as three octal digits (fs/proc_namespace.c, `mangle`).
fn unescape(text: &str) -> PathBuf {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\043", "#"), ("\\134", "\\")];
    PathBuf::from(escapes.iter().fold(text.to_owned(), |text, (code, plain)| text.replace(code, plain)))
}

#[cfg(test)]
mod tests;
