//! What this machine is.

use crate::users::Users;
use husk_bundle::Container;
use husk_bundle::container::Source;
use husk_plan::{CgroupMount, FileKind, Host};
use husk_seccomp::{Abi, Machine};
use rustix::process::geteuid;
use std::fs;
use std::path::{Path, PathBuf};

/// Looks at everything of the machine that the container's plan depends on.
pub(crate) fn probe(container: &Container) -> Host {
    let kind = |path: &Path| match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => FileKind::Directory,
        Ok(_) => FileKind::File,
        Err(_) => FileKind::Missing,
    };
    let sources = container.mounts.iter().map(|mount| match &mount.source {
        Source::Bind { path, .. } => kind(path),
        _ => FileKind::Missing,
    });
    Host {
        euid: geteuid().as_raw(),
        sources: sources.collect(),
        cgroup: cgroup(),
        machine: Machine::new(NATIVE),
        home: home(container),
    }
}

#[cfg(target_arch = "x86_64")]
const NATIVE: Abi = Abi::X86_64;
#[cfg(target_arch = "aarch64")]
const NATIVE: Abi = Abi::Aarch64;

fn cgroup() -> CgroupMount {
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        return CgroupMount::V2;
    }
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let hierarchies = own.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        // Where it is mounted: under the names of its controllers, or of the hierarchy itself.
        let directory = controllers.strip_prefix("name=").unwrap_or(controllers);
        let path = Path::new("/sys/fs/cgroup").join(directory).join(path.trim_start_matches('/'));
        (!controllers.is_empty() && path.exists()).then(|| (controllers.to_owned(), path))
    });
    CgroupMount::V1(hierarchies.collect())
}

/// The home directory that the image has for the user.
fn home(container: &Container) -> PathBuf {
    let user = container.process.as_ref().map(|process| process.uid);
    let home = user.and_then(|uid| Users::below(&container.rootfs).home(uid));
    home.unwrap_or_else(|| PathBuf::from("/"))
}
