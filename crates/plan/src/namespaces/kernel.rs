//! Sets names, kernel parameters, clocks and the loopback device in namespaces that are not the host's, and moves
//! devices into a network namespace.

use crate::builder::{Builder, Error};
use crate::host::{Host, NamespacePath};
use crate::namespaces::procfs;
use crate::namespaces::{all, joined, new};
use crate::origin::Origin;
use husk_bundle::Container;
use husk_bundle::container::{Clock, NamespaceKind};
use husk_script::sys::namespace::Namespaces;
use husk_script::{Reg, Request, Step};
use std::ffi::CStr;

/// Sets the host name and domain name, if the container does not share the caller's UTS namespace.
pub(crate) fn names(container: &Container, plan: &mut Builder<'_>) -> Result<(), Error> {
    let own = all(container).contains(Namespaces::UTS);
    for (field, name) in [("hostname", &container.hostname), ("domainname", &container.domainname)] {
        let Some(name) = name else { continue };
        plan.at(field);
        if !own {
            let why =
                format!("unable to set {field} without a private UTS namespace: it would be the host's");
            return Err(plan.error(why));
        }
        let name = plan.slice(name.as_bytes());
        plan.push(match field {
            "hostname" => Step::Sethostname { name },
            _ => Step::Setdomainname { name },
        });
    }
    Ok(())
}

/// The parameter that a system call sets, because only the host's root can write its file.
const DOMAINNAME: &str = "kernel.domainname";

/// Returns the field that is set through procfs, if there is one.
pub(crate) fn needs_procfs(container: &Container) -> Option<&'static str> {
    if container.sysctl.keys().any(|key| key != DOMAINNAME) {
        Some("linux.sysctl")
    } else if !container.time_offsets.is_empty() {
        Some("linux.timeOffsets")
    } else {
        None
    }
}

/// The identity that writes a kernel parameter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    /// The caller, or the child with its initial identity.
    Caller,
    /// Root of the container's user namespace. It owns the parameters of an IPC namespace, and no other user may
    /// write them (ipc/ipc_sysctl.c, `ipc_permissions`).
    Root,
}

impl Writer {
    fn of(key: &str, container: &Container) -> Self {
        let takes_root = is_ipc(key) && all(container).contains(Namespaces::USER);
        if takes_root { Self::Root } else { Self::Caller }
    }
}

/// Sets the kernel parameters of the container's own namespaces. It allows the same parameters as runc
/// (libcontainer/configs/validate), with the same error texts.
pub(crate) fn sysctl(
    container: &Container,
    host: &Host,
    proc: Option<Reg>,
    writer: Writer,
    plan: &mut Builder<'_>,
) -> Result<(), Error> {
    for (key, value) in container.sysctl.iter().filter(|(key, _)| Writer::of(key, container) == writer) {
        plan.at(Origin::with_subject("linux.sysctl", key));
        if let Some(why) = refusal(key, container, host) {
            return Err(plan.error(format!("sysctl {key:?} {why}")));
        }
        let bytes = plan.slice(value.as_bytes());
        if key == DOMAINNAME {
            plan.push(Step::Setdomainname { name: bytes });
            continue;
        }
        // Dots separate the components, and a slash represents a dot in a name.
        let path: String = key
            .chars()
            .map(|char| match char {
                '.' => '/',
                '/' => '.',
                other => other,
            })
            .collect();
        let path = plan.text(format!("sys/{path}"))?;
        procfs::write(proc, path, bytes, plan)?;
    }
    Ok(())
}

/// Whether a kernel parameter belongs to an IPC namespace.
fn is_ipc(key: &str) -> bool {
    const IPC: &[&str] = &[
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
        "kernel.sem",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
        "kernel.shm_rmid_forced",
    ];
    IPC.contains(&key) || key.starts_with("fs.mqueue.")
}

/// Says why a kernel parameter may not be set.
fn refusal(key: &str, container: &Container, host: &Host) -> Option<&'static str> {
    let has = |kind| all(container).contains(kind);
    // An empty component could become `..` and lead out of the directory.
    if key.split(['.', '/']).any(str::is_empty) {
        return Some("is not in a separate kernel namespace");
    }
    if is_ipc(key) {
        return (!has(Namespaces::IPC)).then_some("is not allowed in the hosts ipc namespace");
    }
    if key.starts_with("net.") {
        let own = has(Namespaces::NET) && !is_callers_network(container, host);
        return (!own).then_some("not allowed in host network namespace");
    }
    match key {
        DOMAINNAME if has(Namespaces::UTS) => {
            let (asked, set) = (&container.domainname, container.sysctl.get(key));
            let conflicts = asked.is_some() && asked.as_ref() != set;
            conflicts.then_some("is not allowed as it conflicts with the OCI \"domainname\" field")
        }
        "kernel.hostname" if has(Namespaces::UTS) => {
            Some("is not allowed as it conflicts with the OCI \"hostname\" field")
        }
        // ucounts belong to the user namespace of the process that writes them.
        _ if key.starts_with("user.") => {
            (!has(Namespaces::USER)).then_some("is not allowed: setting ucounts without a user namespace")
        }
        _ => Some("is not in a separate kernel namespace"),
    }
}

/// Whether the network namespace to join is the caller's own.
fn is_callers_network(container: &Container, host: &Host) -> bool {
    let kinds = container.namespaces.iter().map(|namespace| namespace.kind);
    kinds.zip(&host.namespaces).any(|(kind, found)| {
        kind == NamespaceKind::Network && matches!(found, Some(NamespacePath::Namespace { own: true, .. }))
    })
}

/// Opens the file of clock offsets while a caller without privileges still can. Joining a user namespace makes the
/// process undumpable, and root then owns the files of its /proc directory. The kernel requires that the opener of
/// the file has privileges over the new time namespace, and the user namespace's owner has them
/// (kernel/time/namespace.c, `proc_timens_set_offset`).
pub(crate) fn open_offsets(
    container: &Container,
    proc: Option<Reg>,
    plan: &mut Builder<'_>,
) -> Result<Option<Reg>, Error> {
    let joins_users = joined(container).contains(Namespaces::USER);
    let (Some(proc), true) = (proc, joins_users && !container.time_offsets.is_empty()) else {
        return Ok(None);
    };
    plan.at("linux.timeOffsets");
    procfs::open_file(proc, OFFSETS, plan).map(Some)
}

/// Relative to procfs.
const OFFSETS: &CStr = c"self/timens_offsets";

/// Sets the clocks of a new time namespace before a process enters it. A process enters when it is cloned with
/// memory of its own. `offsets` is the file that [`open_offsets`] opened in the same process, if it did.
pub(crate) fn clocks(
    container: &Container,
    proc: Option<Reg>,
    offsets: Option<Reg>,
    plan: &mut Builder<'_>,
) -> Result<(), Error> {
    if container.time_offsets.is_empty() {
        return Ok(());
    }
    plan.at("linux.timeOffsets");
    if joined(container).contains(Namespaces::TIME) {
        let phrase = "time namespace enabled, but both namespace path and time offsets specified";
        return Err(plan.error(format!("{phrase} -- you may only provide one")));
    }
    if !new(container).contains(Namespaces::TIME) {
        let phrase = "time namespace offsets specified, but time namespace isn't enabled in the config";
        return Err(plan.error(phrase));
    }
    let lines = container.time_offsets.iter().map(|offset| {
        let clock = match offset.clock {
            Clock::Monotonic => "monotonic",
            Clock::Boottime => "boottime",
        };
        format!("{clock} {} {}\n", offset.secs, offset.nanosecs)
    });
    let bytes = plan.slice(lines.collect::<String>().as_bytes());
    match offsets {
        Some(file) => {
            procfs::write_file(file, bytes, plan);
            Ok(())
        }
        None => procfs::write(proc, OFFSETS, bytes, plan),
    }
}

/// Switches on the loopback device of a new network namespace, which is down at first.
pub(crate) fn loopback(container: &Container, plan: &mut Builder<'_>) {
    if new(container).contains(Namespaces::NET) {
        plan.at("linux.namespaces").push(Step::LoopbackUp);
    }
}

/// Has the parent move `linux.netDevices`, because it is in their present network namespace.
pub(crate) fn net_devices(container: &Container, host: &Host, plan: &mut Builder<'_>) -> Result<(), Error> {
    if container.net_devices.is_empty() {
        return Ok(());
    }
    plan.at("linux.netDevices");
    if !container.namespaces.iter().any(|namespace| namespace.kind == NamespaceKind::Network) {
        return Err(plan.error("unable to move network devices without a NET namespace"));
    }
    if host.euid != 0 {
        return Err(plan.error("network devices are not supported for rootless containers"));
    }
    plan.push(Step::Request { what: Request::NetDevices });
    Ok(())
}
