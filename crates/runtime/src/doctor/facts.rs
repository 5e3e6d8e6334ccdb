//! The facts about a machine. They are plain data, so that tests can describe other machines.

use super::attempts::{self, Outcome};
use crate::criu;
use crate::host::seal::{self, Sealed};
use crate::host::subids;
use crate::host::{files, probe};
use husk_cgroup::systemd::{Owner, Systemd};
use husk_plan::CgroupMount;
use husk_script::sys::{Errno, landlock};
use husk_spawn::find_program;
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, ResolveFlags, accessat, openat2};
use rustix::process::{Resource, geteuid, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// The kernel's release.
    pub(super) release: String,
    /// Whether `openat2` works. A seccomp filter that refuses it is older than the system calls that husk needs.
    pub(super) openat2: Outcome,
    pub(super) euid: u32,
    /// Whether the caller can make namespaces.
    pub(super) namespaces: Outcome,
    /// The abilities of an unprivileged process in user namespaces.
    pub(super) users: UserNamespaces,
    /// How husk can protect its binary from containers. `None` unless root asks.
    pub(super) seal: Option<Result<Sealed, String>>,
    /// The paths of `newuidmap` and `newgidmap`, and whether these have privileges.
    pub(super) helpers: [Option<(PathBuf, bool)>; 2],
    /// How many subordinate user and group ids the caller has.
    pub(super) subids: [u64; 2],
    /// Whether a process can be given these ids. `None` if there are none, and for root, who needs no helpers.
    pub(super) many_ids: Option<Result<(), String>>,
    pub(super) cgroups: Cgroups,
    /// systemd's version, or why it does not answer. `None` if it does not run.
    pub(super) systemd: Option<Result<u32, String>>,
    /// The actions that seccomp filters can take. `None` if the kernel does not support filters.
    pub(super) seccomp: Option<String>,
    pub(super) apparmor: bool,
    pub(super) selinux: bool,
    /// The version of Landlock's ABI.
    pub(super) landlock: Result<u32, Errno>,
    /// Whether the root file system can be mounted with mapped ids. `None` unless root asks.
    pub(super) idmapped_mount: Option<Outcome>,
    /// CRIU, if it is installed.
    pub(super) criu: Option<FoundCriu>,
    /// The hard limit of open files. `None` if unlimited.
    pub(super) most_files: Option<u64>,
    /// Whether the caller can raise hard limits.
    pub(super) may_raise_limits: bool,
}

/// An installed CRIU.
#[derive(Clone, Debug)]
pub(super) struct FoundCriu {
    pub(super) path: PathBuf,
    /// Its version as one number, or why it did not tell it.
    pub(super) version: Result<i32, String>,
    /// The error that `criu check` found, which root can ask.
    pub(super) problem: Option<String>,
}

/// The abilities of an unprivileged process in user namespaces.
#[derive(Clone, Debug)]
pub(super) struct UserNamespaces {
    /// Whether it can make one.
    pub(super) made: Outcome,
    /// Whether it can make a file system there.
    pub(super) mount: Outcome,
    /// Whether it can make a procfs there.
    pub(super) procfs: Outcome,
    /// Whether it can make an overlay there.
    pub(super) overlay: Outcome,
    /// `user.max_user_namespaces`.
    pub(super) most: Option<u64>,
    /// `kernel.unprivileged_userns_clone` of Debian's older kernels.
    pub(super) debian: Option<u64>,
    /// `kernel.apparmor_restrict_unprivileged_userns` of Ubuntu's kernels.
    pub(super) ubuntu: Option<u64>,
}

/// The cgroups that containers can have.
#[derive(Clone, Debug)]
pub(super) struct Cgroups {
    pub(super) kind: Hierarchies,
    /// The controllers of the cgroup below which containers get theirs: the top for root, a user's own otherwise.
    pub(super) controllers: Vec<String>,
    /// Whether the caller may make cgroups there.
    pub(super) writable: bool,
}

/// The cgroup hierarchies of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hierarchies {
    None,
    /// Version 1 only.
    V1,
    /// Version 1, beside a version 2 without controllers.
    Hybrid,
    /// Version 2 only.
    V2,
}

impl Facts {
    /// Collects the facts about this machine.
    pub(super) fn gather() -> Self {
        let euid = geteuid().as_raw();
        let is_root = euid == 0;
        let ranges = subids::ranges(euid);
        let first = ranges.clone().map(|ranges| ranges.first().copied());
        let many_ids = match first {
            [Some(uids), Some(gids)] if !is_root => {
                Some(attempts::many_ids(uids, gids).map_err(|error| error.to_string()))
            }
            _ => None,
        };
        let may = capabilities(None).map(|sets| sets.effective).unwrap_or(CapabilitySet::empty());
        Self {
            release: line("/proc/sys/kernel/osrelease").unwrap_or_default(),
            openat2: openat2(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT)
                .map(drop),
            euid,
            namespaces: attempts::namespaces(),
            users: UserNamespaces {
                made: attempts::user_namespace(),
                mount: attempts::mount(),
                procfs: attempts::procfs(),
                overlay: attempts::overlay(),
                most: number("/proc/sys/user/max_user_namespaces"),
                debian: number("/proc/sys/kernel/unprivileged_userns_clone"),
                ubuntu: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            },
            seal: is_root.then(|| seal::examine().map_err(|reason| reason.to_string())),
            helpers: ["newuidmap", "newgidmap"].map(|name| {
                let path = find_program(name)?;
                let has_privileges = has_privileges(&path);
                Some((path, has_privileges))
            }),
            subids: ranges.map(|ranges| ranges.iter().map(|[_, count]| u64::from(*count)).sum()),
            many_ids,
            cgroups: cgroups(is_root),
            systemd: Path::new("/run/systemd/system").exists().then(|| {
                let owner = if is_root { Owner::Host } else { Owner::User };
                let version = Systemd::connect(owner).and_then(|mut systemd| systemd.version());
                version.map(|version| version.0).map_err(|error| error.to_string())
            }),
            seccomp: line("/proc/sys/kernel/seccomp/actions_avail"),
            apparmor: line("/sys/module/apparmor/parameters/enabled").is_some_and(|enabled| enabled == "Y"),
            selinux: Path::new("/sys/fs/selinux/enforce").exists(),
            landlock: landlock::abi(),
            idmapped_mount: is_root.then(attempts::idmapped_mount),
            criu: find_program("criu").map(|path| FoundCriu {
                path,
                version: criu::version().map_err(|error| error.to_string()),
                problem: if is_root { criu::problem() } else { None },
            }),
            most_files: getrlimit(Resource::Nofile).maximum,
            may_raise_limits: may.contains(CapabilitySet::SYS_RESOURCE),
        }
    }
}

/// Examines the cgroups that the caller can use.
fn cgroups(is_root: bool) -> Cgroups {
    let is_writable = |path: &Path| accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok();
    let top = Path::new("/sys/fs/cgroup");
    match probe::cgroup() {
        CgroupMount::V2 => {
            let below = |path: &str| top.join(path.trim_start_matches('/'));
            let own = files::read_procfs("/proc/self/cgroup").unwrap_or_default();
            let own = own.lines().find_map(|line| line.strip_prefix("0::")).map(below);
            let uid = geteuid().as_raw();
            // systemd gives a user this cgroup, however the user logged in.
            let users = below(&format!("user.slice/user-{uid}.slice/user@{uid}.service"));
            let mut places = if is_root { vec![top.to_owned()] } else { vec![users] };
            places.extend(own.filter(|_| !is_root));
            let place = places.into_iter().find(|place| is_writable(place));
            let list = place.clone().unwrap_or_else(|| top.to_owned()).join("cgroup.controllers");
            let list = fs::read_to_string(list).unwrap_or_default();
            let controllers = list.split_whitespace().map(str::to_owned).collect();
            Cgroups { kind: Hierarchies::V2, controllers, writable: place.is_some() }
        }
        CgroupMount::V1(hierarchies) if hierarchies.is_empty() => {
            Cgroups { kind: Hierarchies::None, controllers: Vec::new(), writable: false }
        }
        CgroupMount::V1(hierarchies) => {
            let is_hybrid = top.join("unified").exists();
            let writable = hierarchies.iter().any(|(_, path)| is_writable(path));
            let names = hierarchies.iter().flat_map(|(names, _)| names.split(','));
            let controllers = names.filter(|name| !name.contains('=')).map(str::to_owned).collect();
            let kind = if is_hybrid { Hierarchies::Hybrid } else { Hierarchies::V1 };
            Cgroups { kind, controllers, writable }
        }
    }
}

/// Whether a program gives its caller privileges: root's by the setuid bit, or file capabilities.
fn has_privileges(path: &Path) -> bool {
    const SETUID: u32 = 0o4000;
    let is_setuid = |found: fs::Metadata| found.uid() == 0 && found.mode() & SETUID != 0;
    let mut value = [0; 64];
    fs::metadata(path).is_ok_and(is_setuid)
        || rustix::fs::getxattr(path, "security.capability", &mut value[..]).is_ok()
}

fn line(path: &str) -> Option<String> {
    files::read_procfs(path).ok().map(|text| text.trim_end().to_owned())
}

fn number(path: &str) -> Option<u64> {
    line(path)?.parse().ok()
}
