//! What of a container is not in its images: mounts of what belongs to the host, and namespaces that
//! are somebody else's.
//!
//! CRIU knows such a mount by a name, which it is told at checkpoint with the place where the mount is, and
//! at restore with what is to be mounted there. It makes one string of each pair, `mnt[PLACE]:NAME` or
//! `mnt[NAME]:SOURCE`, and finds it by its beginning. So a place that held `]:` could pass for another mount of
//! the container's, with another source (CVE-2026-119614): such a mount is refused, wherever it comes from. The
//! name is the mount's destination as it is written in the configuration, and no mount of any other kind has one
//! that begins with a slash.

use super::Message;
use super::protocol::{numbered, option, pair};
use crate::error::Error;
use crate::host::probe::{cgroup2, unescaped};
use husk_bundle::Container;
use husk_bundle::container::{NamespaceKind, Source};
use husk_plan::CgroupMount;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, openat, openat2, statx};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The name of what covers files that must not be seen.
const MASK: &str = "mask";
const NULL: &str = "/dev/null";

/// A mount of something of the host's.
struct External {
    /// The field of config.json.
    origin: String,
    /// Its destination.
    destination: PathBuf,
    /// What is mounted.
    source: PathBuf,
}

/// All of them that a container may have.
fn all(container: &Container, cgroups: &CgroupMount) -> Result<Vec<External>, Error> {
    let mut all = Vec::new();
    let own_cgroups = has(container, NamespaceKind::Cgroup);
    for (index, mount) in container.mounts.iter().enumerate() {
        // As where it was mounted: what is written as it is on the host is meant to be that very place.
        let below = mount.destination.strip_prefix(&container.rootfs).unwrap_or(&mount.destination);
        let destination = Path::new("/").join(below);
        let origin = format!("mounts[{index}] {}", destination.display());
        match (&mount.source, cgroups) {
            (Source::Bind { .. }, _) if mount.id_mapping.is_some() => {
                let failure = "a mount whose ids are mapped cannot be saved and restored".to_owned();
                return Err(Error::Step { origin, failure });
            }
            (Source::Bind { path, .. }, _) => {
                all.push(External { origin, destination, source: path.clone() });
            }
            // Each hierarchy is one, on a tmpfs that is the container's own.
            (Source::Cgroup { .. }, CgroupMount::V1(hierarchies)) if !own_cgroups => {
                all.extend(hierarchies.iter().map(|(name, directory)| External {
                    origin: origin.clone(),
                    destination: destination.join(name.strip_prefix("name=").unwrap_or(name)),
                    source: directory.clone(),
                }));
            }
            // In the host's cgroup namespace the host's mount is shown.
            (Source::Cgroup { .. }, CgroupMount::V2) if !own_cgroups => {
                all.push(External { origin, destination, source: PathBuf::from("/sys/fs/cgroup") });
            }
            (Source::New { fstype, .. }, _) if fstype == "cgroup2" && !own_cgroups => {
                all.extend(cgroup2().map(|source| External { origin, destination, source }));
            }
            _ => {}
        }
    }
    // Where no node can be made the host's is mounted.
    let defaults = husk_plan::default_devices();
    let devices = defaults.chain(container.devices.iter().map(|device| device.path.clone()));
    for path in devices {
        if all.iter().all(|known| known.destination != path) {
            let origin = format!("linux.devices {}", path.display());
            all.push(External { origin, destination: path.clone(), source: path });
        }
    }
    all.iter().try_for_each(|mount| {
        check(&mount.origin, &mount.destination)?;
        check(&mount.origin, &mount.source)
    })?;
    Ok(all)
}

/// Refuses what would not come apart as it was put together.
fn check(origin: &str, path: &Path) -> Result<(), Error> {
    let bytes = path.as_os_str().as_bytes();
    let comes_apart = |pair: &[u8]| pair == b"]:";
    if bytes.windows(2).any(comes_apart) || bytes.ends_with(b"]") || bytes.iter().any(u8::is_ascii_control) {
        let failure = format!("CRIU cannot be told of {path:?}: it holds ']:', ends with ']', or is no line");
        // A message is one line.
        return Err(Error::Step { origin: origin.escape_debug().to_string(), failure });
    }
    Ok(())
}

/// Names the mounts that are there in a running container.
pub(crate) fn name_mounts(
    container: &Container,
    cgroups: &CgroupMount,
    pid: i32,
    options: &mut Message,
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
        // A directory is covered by one of the container's own.
        if let Some(place) = inside.mount_point(path).filter(|_| !inside.is_directory(path)) {
            check(&format!("linux.maskedPaths[{index}]"), &place)?;
            options.message(option::EXT_MNT, &pair(place.as_os_str().as_bytes(), MASK));
        }
    }
    Ok(())
}

/// Says what the names stand for in a container that is to be restored.
pub(crate) fn mount_names(
    container: &Container,
    cgroups: &CgroupMount,
    options: &mut Message,
) -> Result<(), Error> {
    for External { destination, source, .. } in all(container, cgroups)? {
        let (name, source) = (destination.as_os_str().as_bytes(), source.as_os_str().as_bytes());
        options.message(option::EXT_MNT, &pair(name, source));
    }
    options.message(option::EXT_MNT, &pair(MASK, NULL));
    Ok(())
}

/// What a running container has mounted, by the numbers of its mounts.
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

    /// What is at a path, without the host's root for one moment.
    fn find(&self, path: &Path) -> Option<OwnedFd> {
        let below = path.strip_prefix("/").unwrap_or(path);
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        // Tolerated: what is not there is not mounted.
        openat2(&self.root, below, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve).ok()
    }

    /// Where the mount is whose root a path leads to.
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

/// The namespaces that CRIU leaves alone, with their keys.
const LEFT_ALONE: [(NamespaceKind, &str, &str); 2] =
    [(NamespaceKind::Network, "net", "extRootNetNS"), (NamespaceKind::Pid, "pid", "extRootPidNS")];

/// Says which namespaces are not the container's to be saved.
pub(crate) fn leave_namespaces(container: &Container, pid: i32, options: &mut Message) -> Result<(), Error> {
    for (kind, name, key) in LEFT_ALONE {
        if joined(container, kind).is_some() {
            // The one that it is in, whatever is at the path by now.
            let path = format!("/proc/{pid}/ns/{name}");
            let found = fs::metadata(&path).map_err(|reason| Error::file("stat", path, reason))?;
            options.bytes(option::EXTERNAL, format!("{name}[{}]:{key}", found.ino()));
        }
    }
    Ok(())
}

/// Opens the namespaces that a container comes into, which CRIU is to have from descriptor `first` on.
pub(crate) fn enter_namespaces(
    container: &Container,
    first: i32,
    options: &mut Message,
) -> Result<Vec<OwnedFd>, Error> {
    /// The kinds that CRIU joins itself.
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
            let namespace = openat(CWD, path, flags, Mode::empty()).map_err(|errno| Error::Step {
                origin,
                failure: format!("open {}: {errno}", path.display()),
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
            let failure = "CRIU cannot restore into somebody else's cgroup namespace".to_owned();
            Err(Error::Step { origin, failure })
        }
        None => Ok(opened),
    }
}

fn joined(container: &Container, kind: NamespaceKind) -> Option<(String, &Path)> {
    let mut namespaces = container.namespaces.iter().enumerate();
    let (index, namespace) = namespaces.find(|(_, namespace)| namespace.kind == kind)?;
    let path = namespace.path.as_deref()?;
    Some((format!("linux.namespaces[{index}]"), path))
}

fn has(container: &Container, kind: NamespaceKind) -> bool {
    container.namespaces.iter().any(|namespace| namespace.kind == kind)
}
