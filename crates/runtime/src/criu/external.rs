//! Mounts of the host's files, and joined namespaces, which are not part of a container's images.
//!
//! CRIU knows such a mount by a name. At checkpoint husk tells it the name and the mount point, at restore the name
//! and the source to mount there. CRIU joins each pair into one string, `mnt[MOUNT POINT]:NAME` or
//! `mnt[NAME]:SOURCE`, and finds it by its prefix. So a mount point with `]:` in it could pass for another mount with
//! another source (CVE-2026-119614). Such a mount is refused, wherever it comes from. The name is the mount's
//! destination in the configuration. Names of mounts of any other kind do not begin with a slash.

use super::ProtobufMessage;
use super::protocol::{numbered, option, pair};
use crate::error::Error;
use crate::host::probe::{cgroup2, unescaped};
use husk_bundle::Container;
use husk_bundle::container::{NamespaceKind, Source};
use husk_listing::Cause;
use husk_plan::CgroupMount;
use husk_plan::Origin;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, openat, openat2, statx};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The name for the mount that covers masked files.
const MASK: &str = "mask";
const NULL: &str = "/dev/null";

/// A mount of one of the host's files or directories.
struct External {
    /// The field of config.json that asks for it.
    origin: Origin,
    /// The mount's path in the container, which is also its name.
    destination: PathBuf,
    /// The host's path.
    source: PathBuf,
}

/// Returns every such mount that a container may have.
fn all(container: &Container, cgroups: &CgroupMount) -> Result<Vec<External>, Error> {
    let mut all = Vec::new();
    let own_cgroups = has(container, NamespaceKind::Cgroup);
    for (index, mount) in container.mounts.iter().enumerate() {
        // A destination that begins with the path of the rootfs means the path below it, as when it was mounted.
        let below = mount.destination.strip_prefix(&container.rootfs).unwrap_or(&mount.destination);
        let destination = Path::new("/").join(below);
        let origin = Origin::mount(index, &destination);
        match (&mount.source, cgroups) {
            (Source::Bind { .. }, _) if mount.id_mapping.is_some() => {
                let failure = "an id-mapped mount cannot be checkpointed".to_owned();
                return Err(Error::step(origin, failure));
            }
            (Source::Bind { path, .. }, _) => {
                all.push(External { origin, destination, source: path.clone() });
            }
            // Each hierarchy is an external mount, on a tmpfs that is the container's own.
            (Source::Cgroup { .. }, CgroupMount::V1(hierarchies)) if !own_cgroups => {
                all.extend(hierarchies.iter().map(|(name, directory)| External {
                    origin: origin.clone(),
                    destination: destination.join(name.strip_prefix("name=").unwrap_or(name)),
                    source: directory.clone(),
                }));
            }
            // Without a cgroup namespace of its own, the container shows the host's mount.
            (Source::Cgroup { .. }, CgroupMount::V2) if !own_cgroups => {
                all.push(External { origin, destination, source: PathBuf::from("/sys/fs/cgroup") });
            }
            (Source::New { fstype, .. }, _) if fstype == "cgroup2" && !own_cgroups => {
                all.extend(cgroup2().map(|source| External { origin, destination, source }));
            }
            _ => {}
        }
    }
    // The host's node is mounted if none can be made.
    let defaults = husk_plan::default_devices();
    let devices = defaults.chain(container.devices.iter().map(|device| device.path.clone()));
    for path in devices {
        if all.iter().all(|known| known.destination != path) {
            let origin = Origin::with_path("linux.devices", &path);
            all.push(External { origin, destination: path.clone(), source: path });
        }
    }
    all.iter().try_for_each(|mount| {
        check(&mount.origin, &mount.destination)?;
        check(&mount.origin, &mount.source)
    })?;
    Ok(all)
}

/// Refuses a path that CRIU could not split from the string that it joins.
fn check(origin: &Origin, path: &Path) -> Result<(), Error> {
    let bytes = path.as_os_str().as_bytes();
    let comes_apart = |pair: &[u8]| pair == b"]:";
    if bytes.windows(2).any(comes_apart) || bytes.ends_with(b"]") || bytes.iter().any(u8::is_ascii_control) {
        let failure =
            format!("CRIU cannot handle {path:?}: it contains ']:' or a control character, or ends with ']'");
        return Err(Error::step(origin.clone(), failure));
    }
    Ok(())
}

/// Tells CRIU the names of the mounts that exist in a running container.
pub(crate) fn name_mounts(
    container: &Container,
    cgroups: &CgroupMount,
    pid: i32,
    options: &mut ProtobufMessage,
) -> Result<(), Error> {
    let inside = Inside::of(pid)?;
    for External { origin, destination, .. } in all(container, cgroups)? {
        if let Some(place) = inside.mount_point(&destination) {
            check(&origin, &place)?;
            options.message(
                option::EXT_MNT,
                &pair(place.as_os_str().as_bytes(), destination.as_os_str().as_bytes()),
            );
        }
    }
    for (index, path) in container.masked_paths.iter().enumerate() {
        // A masked directory is covered by a file system of the container's own.
        if let Some(place) = inside.mount_point(path).filter(|_| !inside.is_directory(path)) {
            check(&format!("linux.maskedPaths[{index}]").into(), &place)?;
            options.message(option::EXT_MNT, &pair(place.as_os_str().as_bytes(), MASK));
        }
    }
    Ok(())
}

/// Tells CRIU what to mount for each name at restore.
pub(crate) fn mount_names(
    container: &Container,
    cgroups: &CgroupMount,
    options: &mut ProtobufMessage,
) -> Result<(), Error> {
    for External { destination, source, .. } in all(container, cgroups)? {
        let (name, source) = (destination.as_os_str().as_bytes(), source.as_os_str().as_bytes());
        options.message(option::EXT_MNT, &pair(name, source));
    }
    options.message(option::EXT_MNT, &pair(MASK, NULL));
    Ok(())
}

/// The root of a running container, and its mount points by mount id.
struct Inside {
    root: OwnedFd,
    points: BTreeMap<u64, PathBuf>,
}

impl Inside {
    fn of(pid: i32) -> Result<Self, Error> {
        let root = format!("/proc/{pid}/root");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(CWD, &*root, flags, Mode::empty());
        let opened = opened.map_err(|errno| Error::file("open", &root, errno))?;
        let list = format!("/proc/{pid}/mountinfo");
        let mounts = fs::read(&list).map_err(|reason| Error::file("read", &list, reason))?;
        let points = mounts.split(|byte| *byte == b'\n').filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ');
            let number = str::from_utf8(fields.next()?).ok()?.parse().ok()?;
            let point = unescaped(fields.nth(3)?);
            Some((number, PathBuf::from(OsString::from_vec(point))))
        });
        Ok(Self { root: opened, points: points.collect() })
    }

    /// Opens a path as the container resolves it. Symlinks never lead outside of its root.
    fn find(&self, path: &Path) -> Option<OwnedFd> {
        let below = path.strip_prefix("/").unwrap_or(path);
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        // Tolerated: a path that does not exist is not mounted.
        openat2(&self.root, below, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve).ok()
    }

    /// Returns the mount point of a mount, if the path leads to the mount's root.
    fn mount_point(&self, path: &Path) -> Option<PathBuf> {
        /// `STATX_ATTR_MOUNT_ROOT` of linux/stat.h.
        const MOUNT_ROOT: u64 = 0x2000;
        let found = self.find(path)?;
        let found = statx(&found, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
        let is_root = found.stx_attributes.bits() & MOUNT_ROOT != 0;
        self.points.get(&found.stx_mnt_id).filter(|_| is_root).cloned()
    }

    fn is_directory(&self, path: &Path) -> bool {
        let kind = |found: OwnedFd| fs::File::from(found).metadata().is_ok_and(|found| found.is_dir());
        self.find(path).is_some_and(kind)
    }
}

/// The namespaces that CRIU can leave as they are, with their keys.
const LEFT_ALONE: [(NamespaceKind, &str, &str); 2] =
    [(NamespaceKind::Network, "net", "extRootNetNS"), (NamespaceKind::Pid, "pid", "extRootPidNS")];

/// Tells CRIU which namespaces the container has joined, so that it does not save them.
pub(crate) fn leave_namespaces(
    container: &Container,
    pid: i32,
    options: &mut ProtobufMessage,
) -> Result<(), Error> {
    for (kind, name, key) in LEFT_ALONE {
        if joined(container, kind).is_some() {
            // The namespace that the process is in, whatever is at the configured path now.
            let path = format!("/proc/{pid}/ns/{name}");
            let found = fs::metadata(&path).map_err(|reason| Error::file("stat", path, reason))?;
            options.bytes(option::EXTERNAL, format!("{name}[{}]:{key}", found.ino()));
        }
    }
    Ok(())
}

/// Opens the namespaces that the container joins. CRIU will inherit them as descriptors from `first` on.
pub(crate) fn enter_namespaces(
    container: &Container,
    first: i32,
    options: &mut ProtobufMessage,
) -> Result<Vec<OwnedFd>, Error> {
    /// The kinds of namespaces that CRIU joins by path.
    const JOINED: [(NamespaceKind, &str); 5] = [
        (NamespaceKind::Mount, "mnt"),
        (NamespaceKind::Ipc, "ipc"),
        (NamespaceKind::Uts, "uts"),
        (NamespaceKind::User, "user"),
        (NamespaceKind::Time, "time"),
    ];
    let mut opened = Vec::new();
    for (kind, _, key) in LEFT_ALONE {
        if let Some((origin, path)) = joined(container, kind) {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            let namespace = openat(CWD, path, flags, Mode::empty()).map_err(|errno| {
                Error::step(origin, format!("open {}: {}", path.display(), Cause::from(errno)))
            })?;
            let number = i32::try_from(opened.len()).unwrap_or(i32::MAX).saturating_add(first);
            options.message(option::INHERIT_FD, &numbered(key, number));
            opened.push(namespace);
        }
    }
    for (kind, name) in JOINED {
        if let Some((_, path)) = joined(container, kind) {
            options.message(option::JOIN_NS, &pair(name, path.as_os_str().as_bytes()));
        }
    }
    match joined(container, NamespaceKind::Cgroup) {
        Some((origin, _)) => {
            let failure = "CRIU cannot restore into an existing cgroup namespace".to_owned();
            Err(Error::step(origin, failure))
        }
        None => Ok(opened),
    }
}

fn joined(container: &Container, kind: NamespaceKind) -> Option<(Origin, &Path)> {
    let mut namespaces = container.namespaces.iter().enumerate();
    let (index, namespace) = namespaces.find(|(_, namespace)| namespace.kind == kind)?;
    let path = namespace.path.as_deref()?;
    Some((format!("linux.namespaces[{index}]").into(), path))
}

fn has(container: &Container, kind: NamespaceKind) -> bool {
    container.namespaces.iter().any(|namespace| namespace.kind == kind)
}
