//! Collects the facts about the host that plans depend on.

use crate::host::files;
use crate::host::namespaces::{self, is_first_user_namespace};
use crate::host::nodes;
use crate::host::users::Users;
use husk_bundle::Container;
use husk_bundle::container::{Mount, Source};
use husk_plan::{AppArmor, CgroupEntry, CgroupMount, Host, Resctrl, Selinux, makes_nodes};
use husk_script::sys::at::null_streams;
#[cfg(target_arch = "x86_64")]
use husk_script::sys::process::knows_x32;
use husk_script::sys::signal::ignored;
use husk_seccomp::{Abi, Arch, Machine};
use rustix::process::{getegid, geteuid};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Collects every fact that the container's plan depends on.
pub(crate) fn probe(container: &Container) -> Host {
    let users = Users::of(container);
    let process = probe_process(container, &users);
    let nodes = if makes_nodes(&process) { Vec::new() } else { nodes::of_host(&container.devices) };
    Host {
        namespaces: container.namespaces.iter().map(namespaces::look).collect(),
        joined_ids: namespaces::joined_ids(container),
        procfs_takes_pidns: namespaces::procfs_takes_pidns(container),
        cgroup: if container.mounts.iter().any(|mount| matches!(mount.source, Source::Cgroup { .. })) {
            cgroup()
        } else {
            CgroupMount::V2
        },
        cgroup2: container.mounts.iter().any(is_cgroup2).then(cgroup2).flatten(),
        nodes,
        resctrl: container.intel_rdt.as_ref().and_then(|_| resctrl()),
        ..process
    }
}

/// Collects the facts that the plan of another process in the container (`exec`) depends on.
pub(crate) fn probe_process(container: &Container, users: &Users) -> Host {
    let is_first_user_namespace = is_first_user_namespace();
    Host {
        euid: geteuid().as_raw(),
        egid: getegid().as_raw(),
        is_first_user_namespace,
        // The first user namespace always allows it.
        may_set_groups: is_first_user_namespace
            || files::read_procfs("/proc/self/setgroups")
                .is_ok_and(|setgroups| setgroups.trim_end() != "deny"),
        namespaces: Vec::new(),
        joined_ids: None,
        procfs_takes_pidns: false,
        revealing: Vec::new(),
        cgroup: CgroupMount::V2,
        cgroup2: None,
        entry: CgroupEntry::None,
        // Tolerated: if one signal cannot be queried, none counts as ignored.
        ignored: ignored().unwrap_or_default(),
        null_streams: null_streams().collect(),
        nodes: Vec::new(),
        apparmor: apparmor(container),
        selinux: selinux(container),
        resctrl: None,
        machine: machine(container),
        home: home(container, users),
    }
}

/// Returns the system call ABIs that this kernel supports. Checks only ABIs that the container's profile names, and
/// only where the check costs less than the filter instructions that it saves.
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
    // Only kernels that run 32-bit programs have this file (arch/x86/entry/vdso/vdso32-setup.c).
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

/// Returns which AppArmor interface the kernel has, for a container that asks for a profile.
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

/// Whether SELinux is enabled, for a container that asks for a label.
fn selinux(container: &Container) -> Selinux {
    let asked = container.process.as_ref().is_some_and(|process| process.selinux_label.is_some());
    let asked = asked || container.mount_label.is_some();
    if asked && Path::new("/sys/fs/selinux/enforce").exists() { Selinux::On } else { Selinux::Off }
}

#[cfg(target_arch = "x86_64")]
const NATIVE: Abi = Abi::X86_64;
#[cfg(target_arch = "aarch64")]
const NATIVE: Abi = Abi::Aarch64;

/// Returns the mount points outside of `rootfs` of every procfs and sysfs that is mounted whole.
pub(crate) fn revealing(rootfs: &Path) -> Vec<PathBuf> {
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let lines = mounts.split(|byte| *byte == b'\n');
    let revealing = lines.filter_map(|line| {
        let fields: Vec<_> = line.split(|byte| *byte == b' ').collect();
        let (root, point) = (fields.get(3)?, fields.get(4)?);
        let fstype = fields.iter().position(|field| *field == b"-").and_then(|end| fields.get(end + 1))?;
        let is_whole =
            **root == *b"/" && matches!(**fstype, [b'p', b'r', b'o', b'c'] | [b's', b'y', b's', b'f', b's']);
        let point = PathBuf::from(OsString::from_vec(unescaped(point)));
        (is_whole && !point.starts_with(rootfs)).then_some(point)
    });
    revealing.collect()
}

/// Decodes a path of mountinfo, where separators within a path are written as three octal digits.
pub(crate) fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        let (byte, after) = match escaped.filter(|_| byte == b'\\') {
            Some(escaped) => (escaped, after.get(3..).unwrap_or_default()),
            None => (byte, after),
        };
        plain.push(byte);
        rest = after;
    }
    plain
}

/// Returns the cgroup hierarchies that a cgroup mount shows on this host.
pub(crate) fn cgroup() -> CgroupMount {
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        return CgroupMount::V2;
    }
    let own = files::read_procfs("/proc/self/cgroup").unwrap_or_default();
    let hierarchies = own.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        // A hierarchy is mounted under the names of its controllers, or under its own name.
        let directory = controllers.strip_prefix("name=").unwrap_or(controllers);
        let path = Path::new("/sys/fs/cgroup").join(directory).join(path.trim_start_matches('/'));
        (!controllers.is_empty() && path.exists()).then(|| (controllers.to_owned(), path))
    });
    CgroupMount::V1(hierarchies.collect())
}

/// The mount point that a kernel with resctrl provides.
const RESCTRL: &str = "/sys/fs/resctrl";

/// Returns the mount point of the resctrl file system and what it can allocate.
pub(crate) fn resctrl() -> Option<Resctrl> {
    let root = mounted_resctrl(&fs::read_to_string("/proc/self/mounts").ok()?)?;
    let has = |name: &str| root.join("info").join(name).exists();
    let (l3, mb) = (has("L3"), has("MB"));
    Some(Resctrl { root, l3, mb })
}

/// Finds the resctrl mount. It can be mounted anywhere; the usual mount point is preferred.
fn mounted_resctrl(mounts: &str) -> Option<PathBuf> {
    let places = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let place = fields.next()?;
        (fields.next()? == "resctrl").then(|| PathBuf::from(place))
    });
    let places: Vec<_> = places.collect();
    places.iter().find(|place| *place == Path::new(RESCTRL)).or(places.first()).cloned()
}

fn is_cgroup2(mount: &Mount) -> bool {
    matches!(&mount.source, Source::New { fstype, .. } if fstype == "cgroup2")
}

/// Returns the host's mount point of cgroup v2, alone or beside version 1.
pub(crate) fn cgroup2() -> Option<PathBuf> {
    let places = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(PathBuf::from);
    places.into_iter().find(|place| place.join("cgroup.controllers").exists())
}

/// Returns the home directory of the program's user, or `/`.
fn home(container: &Container, users: &Users) -> PathBuf {
    let uid = container.process.as_ref().map(|process| process.uid);
    uid.and_then(|uid| users.home(uid)).unwrap_or_else(|| PathBuf::from("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resctrl_mount_point_is_found() {
        let elsewhere = "proc /proc proc rw 0 0\nresctrl /mnt/r resctrl rw 0 0\n";
        assert_eq!(mounted_resctrl(elsewhere), Some(PathBuf::from("/mnt/r")));
        let both = format!("{elsewhere}resctrl {RESCTRL} resctrl rw 0 0\n");
        assert_eq!(mounted_resctrl(&both), Some(PathBuf::from(RESCTRL)));
        assert_eq!(mounted_resctrl("proc /proc proc rw 0 0\n"), None);
    }
}
