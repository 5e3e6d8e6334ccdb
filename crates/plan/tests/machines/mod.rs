//! Describes machines for tests and for `fuzz/`.

use husk_bundle::Container;
use husk_bundle::container::NamespaceKind;
use husk_plan::{AppArmor, CgroupEntry, CgroupMount, Host, Selinux};
use husk_script::sys::signal::{Signal, SignalSet};
use husk_seccomp::{Abi, Machine};
use std::path::{Path, PathBuf};

/// Root on a machine with cgroup v2.
pub(crate) fn v2_root(container: &Container) -> Host {
    Host {
        euid: 0,
        egid: 0,
        is_first_user_namespace: true,
        may_set_groups: true,
        namespaces: vec![None; container.namespaces.len()],
        joined_ids: None,
        procfs_takes_pidns: true,
        revealing: Vec::new(),
        cgroup: CgroupMount::V2,
        cgroup2: Some(PathBuf::from("/sys/fs/cgroup")),
        entry: CgroupEntry::Born,
        ignored: SignalSet::EMPTY.with(Signal::PIPE),
        null_streams: Vec::new(),
        nodes: Vec::new(),
        apparmor: AppArmor::Off,
        selinux: Selinux::Off,
        resctrl: None,
        machine: Machine::new(Abi::X86_64),
        home: PathBuf::from("/root"),
    }
}

/// An ordinary user on the same machine.
pub(crate) fn v2_rootless(container: &Container) -> Host {
    Host { euid: 1000, egid: 1000, ..v2_root(container) }
}

/// Root on a machine with two hierarchies of cgroup v1.
pub(crate) fn v1_root(container: &Container) -> Host {
    let hierarchies = ["cpu,cpuacct", "name=systemd"];
    let mounted = |name: &str| {
        let directory = name.strip_prefix("name=").unwrap_or(name);
        (name.to_owned(), Path::new("/sys/fs/cgroup").join(directory))
    };
    let hierarchies = hierarchies.map(mounted).to_vec();
    let user = container.namespaces.iter().any(|namespace| namespace.kind == NamespaceKind::User);
    let own = hierarchies.iter().map(|(_, directory)| directory.join("container")).collect();
    let entry = if user { CgroupEntry::Moved } else { CgroupEntry::Enters(own) };
    Host { cgroup: CgroupMount::V1(hierarchies), entry, ..v2_root(container) }
}
