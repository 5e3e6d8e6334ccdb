//! Namespaces, and what is set in them: ids, names, kernel parameters.

use crate::builder::{Builder, Error};
use husk_bundle::Container;
use husk_bundle::container::NamespaceKind;
use husk_script::sys::namespace::Namespaces;
use husk_script::{Request, Step};

/// The namespaces that the child is born in.
pub(crate) fn new(container: &Container) -> Namespaces {
    let new = container.namespaces.iter().filter(|namespace| namespace.path.is_none());
    new.fold(Namespaces::EMPTY, |all, namespace| all | flag(namespace.kind))
}

/// Whether the container has a namespace of this kind, of its own or one that it joins.
pub(crate) fn has(container: &Container, kind: NamespaceKind) -> bool {
    container.namespaces.iter().any(|namespace| namespace.kind == kind)
}

fn flag(kind: NamespaceKind) -> Namespaces {
    match kind {
        NamespaceKind::User => Namespaces::USER,
        NamespaceKind::Mount => Namespaces::MOUNT,
        NamespaceKind::Pid => Namespaces::PID,
        NamespaceKind::Network => Namespaces::NET,
        NamespaceKind::Ipc => Namespaces::IPC,
        NamespaceKind::Uts => Namespaces::UTS,
        NamespaceKind::Cgroup => Namespaces::CGROUP,
        NamespaceKind::Time => Namespaces::TIME,
    }
}

/// Joins the namespaces that are somebody else's.
pub(crate) fn join(container: &Container, plan: &mut Builder<'_>) -> Result<(), Error> {
    for (index, namespace) in container.namespaces.iter().enumerate() {
        let Some(path) = &namespace.path else { continue };
        plan.at(format!("linux.namespaces[{index}] {}", path.display()));
        if matches!(namespace.kind, NamespaceKind::Pid | NamespaceKind::Time | NamespaceKind::User) {
            return Err(plan.error("joining a namespace of this type is not supported yet"));
        }
        let register = plan.register()?;
        let path = plan.text(path)?;
        plan.push(Step::Open {
            path,
            flags: husk_script::sys::file::OFlags::RDONLY,
            mode: crate::builder::mode(0),
            out: register,
        });
        plan.push(Step::Setns { fd: register.into(), namespaces: flag(namespace.kind) });
        plan.release(register);
    }
    Ok(())
}

/// Has the ids of a new user namespace mapped.
pub(crate) fn map_ids(container: &Container, plan: &mut Builder<'_>) -> Result<(), Error> {
    let is_new = new(container).contains(Namespaces::USER);
    let maps =
        [("linux.uidMappings", &container.uid_mappings), ("linux.gidMappings", &container.gid_mappings)];
    for (field, mappings) in maps {
        plan.at(field);
        match (is_new, mappings.is_empty()) {
            (true, true) => return Err(plan.error("is missing: a new user namespace has no ids of its own")),
            (false, false) => return Err(plan.error("is there without a new user namespace to map ids of")),
            _ => {}
        }
    }
    if is_new {
        plan.at("linux.uidMappings").push(Step::Request { what: Request::IdMaps });
    }
    Ok(())
}

/// The host's names, of a namespace that is the container's own.
pub(crate) fn names(container: &Container, plan: &mut Builder<'_>) -> Result<(), Error> {
    let own = container.namespaces.iter().any(|namespace| namespace.kind == NamespaceKind::Uts);
    if let Some(name) = &container.hostname {
        plan.at("hostname");
        if !own {
            return Err(plan.error("would be set for the whole host, without a UTS namespace"));
        }
        let name = plan.slice(name.as_bytes());
        plan.push(Step::Sethostname { name });
    }
    if let Some(name) = &container.domainname {
        plan.at("domainname");
        if !own {
            return Err(plan.error("would be set for the whole host, without a UTS namespace"));
        }
        let bytes = plan.slice(name.as_bytes());
        plan.push(Step::WriteFile { path: c"/proc/sys/kernel/domainname", bytes, tolerate: None });
    }
    Ok(())
}

/// Kernel parameters, of namespaces that are the container's own.
pub(crate) fn sysctl(container: &Container, plan: &mut Builder<'_>) -> Result<(), Error> {
    for (key, value) in &container.sysctl {
        plan.at(format!("linux.sysctl {key}"));
        let Some(kind) = owner(key) else {
            return Err(plan.error("belongs to no namespace, so it would be set for the whole host"));
        };
        if !container.namespaces.iter().any(|namespace| namespace.kind == kind) {
            return Err(plan.error("would be set for the whole host, without a namespace of its own"));
        }
        // Dots part the components, and a slash stands for a dot in a name.
        let path: String = key
            .chars()
            .map(|char| match char {
                '.' => '/',
                '/' => '.',
                other => other,
            })
            .collect();
        let path = plan.text(format!("/proc/sys/{path}"))?;
        let bytes = plan.slice(value.as_bytes());
        plan.push(Step::WriteFile { path, bytes, tolerate: None });
    }
    Ok(())
}

/// The kind of namespace that a kernel parameter belongs to.
fn owner(key: &str) -> Option<NamespaceKind> {
    const IPC: [&str; 8] = [
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
        "kernel.sem",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
        "kernel.shm_rmid_forced",
    ];
    // A name that could leave its directory belongs to nothing.
    if key.split(['.', '/']).any(str::is_empty) {
        return None;
    }
    match key {
        // The host name has a field of its own, which says what it is.
        "kernel.domainname" => Some(NamespaceKind::Uts),
        _ if key.starts_with("net.") => Some(NamespaceKind::Network),
        _ if key.starts_with("fs.mqueue.") || IPC.contains(&key) => Some(NamespaceKind::Ipc),
        _ => None,
    }
}
