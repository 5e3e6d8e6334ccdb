//! What this machine is.

use crate::namespaces;
use crate::resctrl;
use husk_bundle::Container;
use husk_bundle::container::Source;
use husk_plan::{AppArmor, CgroupMount, FileKind, Host, Selinux};
use husk_seccomp::{Abi, Arch, Machine};
#[cfg(target_arch = "x86_64")]
use husk_spawn::sys::process::knows_x32;
use husk_spawn::sys::signal::ignored;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::process::{getegid, geteuid};
use std::fs::{self, File};
use std::io::Read;
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
    let own = |file| fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    Host {
        euid: geteuid().as_raw(),
        egid: getegid().as_raw(),
        is_first_user_namespace: own("uid_map").trim_end().ends_with("4294967295"),
        may_set_groups: own("setgroups").trim_end() != "deny",
        namespaces: container.namespaces.iter().map(namespaces::look).collect(),
        joined_ids: namespaces::joined_ids(container),
        procfs_takes_pidns: namespaces::procfs_takes_pidns(container),
        sources: sources.collect(),
        cgroup: cgroup(),
        // Tolerated: without an answer for one signal nothing is known to be ignored.
        ignored: ignored().unwrap_or_default(),
        apparmor: apparmor(container),
        selinux: selinux(container),
        resctrl: container.intel_rdt.as_ref().and_then(|_| resctrl::probe()),
        machine: machine(container),
        home: home(container).unwrap_or_else(|| PathBuf::from("/")),
    }
}

/// Which ways to make system calls this kernel has, as far as the container's profile asks and that can
/// be known for less than the instructions cost.
fn machine(container: &Container) -> Machine {
    let machine = Machine::new(NATIVE);
    match &container.seccomp {
        Some(profile) => only_what_runs(machine, &profile.architectures),
        None => machine,
    }
}

#[cfg(target_arch = "x86_64")]
fn only_what_runs(mut machine: Machine, named: &[Arch]) -> Machine {
    if named.contains(&Arch::X32) && knows_x32() == Some(false) {
        machine = machine.without(Abi::X32);
    }
    // A file that only a kernel has that runs 32-bit programs (arch/x86/entry/vdso/vdso32-setup.c).
    let lacks_x86 = || Path::new("/proc/sys").exists() && !Path::new("/proc/sys/abi/vsyscall32").exists();
    if named.contains(&Arch::X86) && lacks_x86() {
        machine = machine.without(Abi::X86);
    }
    machine
}

#[cfg(not(target_arch = "x86_64"))]
fn only_what_runs(machine: Machine, _: &[Arch]) -> Machine {
    machine
}

/// Whether there is AppArmor, for a container that asks for a profile.
fn apparmor(container: &Container) -> AppArmor {
    let asked = container.process.as_ref().is_some_and(|process| process.apparmor_profile.is_some());
    let enabled = || fs::read("/sys/module/apparmor/parameters/enabled");
    if !asked || !enabled().is_ok_and(|enabled| enabled.starts_with(b"Y")) {
        AppArmor::Off
    } else if Path::new("/proc/thread-self/attr/apparmor/exec").exists() {
        AppArmor::Apart
    } else {
        AppArmor::Alone
    }
}

/// Whether there is SELinux, for a container that asks for a label.
fn selinux(container: &Container) -> Selinux {
    let asked = container.process.as_ref().is_some_and(|process| process.selinux_label.is_some());
    if asked && Path::new("/sys/fs/selinux/enforce").exists() { Selinux::On } else { Selinux::Off }
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

/// The home directory that the image has for the user, found below the image's root and nowhere else.
fn home(container: &Container) -> Option<PathBuf> {
    /// More than this is no list of users.
    const MOST: u64 = 1 << 20;
    let uid = container.process.as_ref()?.uid.to_string();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, &container.rootfs, flags, Mode::empty()).ok()?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let passwd = File::from(openat2(root, "etc/passwd", flags, Mode::empty(), resolve).ok()?);
    if !passwd.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    passwd.take(MOST).read_to_string(&mut text).ok()?;
    let mut users = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let user = users.find(|fields| fields.get(2) == Some(&uid.as_str()))?;
    user.get(5).filter(|home| !home.is_empty()).map(PathBuf::from)
}
