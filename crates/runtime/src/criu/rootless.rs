//! Checkpoint and restore without privileges over the host.
//!
//! CRIU can do almost everything in a user namespace, as its root. So it is started in the container's at a checkpoint,
//! and in a new one at a restore. It also shares the namespaces that it could not set up there. It would write the host
//! name to `/proc/sys`, which belongs to the host's root, and could not return to the host's network namespace. CRIU
//! neither saves nor restores the namespaces that it shares, so husk makes them anew.
//!
//! From there CRIU cannot look into husk, which is in the user namespace above. It finds the images in its working
//! directory instead of by descriptors of husk's.

use super::protocol::option;
use super::{CriuCommand, ProtobufMessage, Settings, mapped};
use crate::child::trees::id_maps;
use crate::error::Error;
use husk_bundle::Container;
use husk_bundle::container::{Namespace, NamespaceKind, Source};
use husk_listing::Cause;
use husk_plan::Origin;
use husk_script::Step;
use husk_script::sys::file::OFlags;
use husk_script::sys::mount::{Extent, MountFlags, MountPropagationFlags};
use husk_script::sys::namespace::Namespaces;
use rustix::fs::{CWD, Mode, openat};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

pub(crate) use super::images::translate;
pub(crate) use crate::host::namespaces::is_unprivileged;

/// The namespaces that CRIU shares with the container.
const SHARED: [(NamespaceKind, Namespaces, &str); 4] = [
    (NamespaceKind::User, Namespaces::USER, "user"),
    (NamespaceKind::Uts, Namespaces::UTS, "uts"),
    (NamespaceKind::Network, Namespaces::NET, "net"),
    (NamespaceKind::Cgroup, Namespaces::CGROUP, "cgroup"),
];

/// Returns the container without the namespaces that CRIU shares with it.
pub(crate) fn without_shared(container: &Container) -> Container {
    let mut rest = container.clone();
    rest.namespaces.retain(|namespace| SHARED.iter().all(|(kind, ..)| *kind != namespace.kind));
    rest
}

/// Refuses a container that could not be restored, before anything is stopped.
pub(crate) fn check(container: &Container, settings: &Settings) -> Result<(), Error> {
    if settings.work.is_some() {
        let reason = "without root, CRIU works in the directory of the images".to_owned();
        return Err(Error::Argument { option: "--work-path", reason });
    }
    let has_own = |kind| {
        container.namespaces.iter().any(|namespace| namespace.kind == kind && namespace.path.is_none())
    };
    for (kind, name, why) in [
        (NamespaceKind::Pid, "pid", "only root can choose pids in the host's"),
        (NamespaceKind::Mount, "mount", "only root can change the host's"),
    ] {
        if !has_own(kind) {
            return Err(Error::Criu(format!(
                "without root, a container needs a {name} namespace of its own to be saved and restored: {why}"
            )));
        }
    }
    Ok(())
}

/// Refuses a bind mount that shows further mounts: in a user namespace, the kernel binds no mount without those below
/// it, and CRIU binds each alone.
pub(crate) fn check_binds(container: &Container, pid: i32) -> Result<(), Error> {
    let list = format!("/proc/{pid}/mountinfo");
    let mounts = fs::read_to_string(&list).map_err(|reason| Error::file("read", &list, reason))?;
    let points: Vec<_> = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(Path::new).collect();
    let configured = |point: &Path| container.mounts.iter().any(|mount| mount.destination == point);
    let masked = |point: &Path| {
        container.masked_paths.iter().chain(&container.readonly_paths).any(|path| path == point)
    };
    for (index, mount) in container.mounts.iter().enumerate() {
        let place = &*mount.destination;
        let is_below = |point: &&&Path| point.starts_with(place) && **point != place;
        let shown = points.iter().filter(is_below).find(|point| !configured(point) && !masked(point));
        if let (Source::Bind { .. }, Some(shown)) = (&mount.source, shown) {
            return Err(Error::step(
                Origin::mount(index, place),
                format!("without root, CRIU cannot restore a bind mount that shows {}", shown.display()),
            ));
        }
    }
    Ok(())
}

/// Starts CRIU where it can save the process.
pub(crate) fn join(start: &mut CriuCommand, init: &OwnedFd, pid: i32, images: &Path) -> Result<(), Error> {
    let apart = SHARED.iter().filter(|(.., name)| inode(&pid.to_string(), name) != inode("self", name));
    let kinds = apart.fold(Namespaces::EMPTY, |kinds, (_, kind, _)| kinds | *kind);
    let init = init.try_clone().map_err(|reason| Error::kernel("keep the process open", reason))?;
    if kinds != Namespaces::EMPTY {
        start.command.join(init, kinds);
    }
    // For the mounts of its own, from which it returns to this namespace.
    start.command.new_namespaces(Namespaces::MOUNT).current_dir(images);
    start.is_observed = true;
    mapped::observe(&mut start.command)
}

fn inode(process: &str, namespace: &str) -> Option<u64> {
    fs::metadata(format!("/proc/{process}/ns/{namespace}")).map(|found| found.ino()).ok()
}

/// Starts CRIU in new namespaces like those that the container had, with its root file system mounted alone on `root`.
pub(crate) fn renew(
    start: &mut CriuCommand,
    container: &Container,
    root: &Path,
    images: &Path,
) -> Result<(), Error> {
    let command = &mut start.command;
    command.new_namespaces(Namespaces::MOUNT).current_dir(images);
    for (kind, flag, _) in SHARED {
        let Some(namespace) = container.namespaces.iter().find(|namespace| namespace.kind == kind) else {
            continue;
        };
        match &namespace.path {
            Some(path) => drop(command.join(open(namespace, path)?, flag)),
            None => drop(command.new_namespaces(flag)),
        }
    }
    let has_new = |kind| {
        container.namespaces.iter().any(|namespace| namespace.kind == kind && namespace.path.is_none())
    };
    if has_new(NamespaceKind::User) {
        command.uid_map(&id_maps(&container.uid_mappings)).gid_map(&id_maps(&container.gid_mappings));
    }
    if has_new(NamespaceKind::Network) {
        command.step(Step::LoopbackUp);
    }
    if has_new(NamespaceKind::Uts) {
        if let Some(name) = &container.hostname {
            command.hostname(name);
        }
        if let Some(name) = container.domainname.clone() {
            command.steps(move |writer| {
                let name = writer.slice(name.as_bytes());
                writer.push(Step::Setdomainname { name });
                Ok(())
            });
        }
    }
    let (rootfs, root): (PathBuf, PathBuf) = (container.rootfs.clone(), root.to_owned());
    let overlay = container.overlay();
    command.steps(move |writer| {
        // As in the container: mounts propagate from the host, but not to it.
        let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        writer.push(Step::MountChange { target: c"/", flags });
        if let Some((directory, options)) = &overlay {
            let (here, flags) = (writer.register()?, OFlags::PATH | OFlags::DIRECTORY);
            writer.push(Step::Open { path: c".", flags, mode: Mode::empty(), out: here });
            let (path, target, data) = (writer.text(directory)?, writer.text(&root)?, writer.text(options)?);
            writer.push(Step::Chdir { path });
            let (source, fstype, flags) = (c"overlay", c"overlay", MountFlags::empty());
            writer.push(Step::Mount { source, target, fstype, flags, data });
            writer.push(Step::Fchdir { directory: here.into() });
            writer.push(Step::Close { fd: here.into() });
            return Ok(());
        }
        let (tree, place) = (writer.register()?, writer.register()?);
        let path = writer.text(&rootfs)?;
        writer.push(Step::OpenTree { path, extent: Extent::All, out: tree });
        let (path, flags) = (writer.text(&root)?, OFlags::PATH | OFlags::DIRECTORY);
        writer.push(Step::Open { path, flags, mode: Mode::empty(), out: place });
        writer.push(Step::MoveMount { mount: tree.into(), target: place.into() });
        writer.push(Step::Close { fd: place.into() });
        writer.push(Step::Close { fd: tree.into() });
        Ok(())
    });
    Ok(())
}

fn open(namespace: &Namespace, path: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty()).map_err(|errno| {
        let origin = format!("linux.namespaces {:?}", namespace.kind);
        Error::step(origin, format!("open {}: {}", path.display(), Cause::from(errno)))
    })
}

/// Tells CRIU to go without what takes privileges over the host, and where it finds the images.
pub(crate) fn tell(options: &mut ProtobufMessage) {
    options.flag(option::UNPRIVILEGED, true).number(option::IMAGES_DIR_FD, -1).bytes(option::IMAGES_DIR, ".");
}
