//! Makes the missing mount points of a container, for CRIU, which restores mounts but makes no directories.

use crate::builder::{Builder, Error, Plan, mode};
use crate::host::Host;
use crate::mounts;
use crate::mounts::{attach, rootfs};
use crate::namespaces;
use bumpalo::Bump;
use husk_bundle::Container;
use husk_bundle::container::{Namespace, NamespaceKind, Source};
use husk_script::sys::Fd;
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::signal::Signal;
use husk_script::{Request, Step};

/// Writes the plan of a process that makes the missing mount points. It mounts everything, as the container's own
/// process would, in a mount namespace that ends with the process. It reports when it is done, and waits to be
/// killed.
///
/// # Errors
///
/// Fails like [`create`](crate::create).
pub fn places<'b>(container: &Container, host: &Host, memory: &'b Bump) -> Result<Plan<'b>, Error> {
    let mut container = container.clone();
    // These mounts must not propagate to other namespaces, even if the container's mounts do.
    container.rootfs_propagation = None;
    // Only root can mount in the caller's namespaces.
    let needed = |namespace: &Namespace| {
        let is_needed = host.euid != 0 && namespace.path.is_none();
        is_needed && !matches!(namespace.kind, NamespaceKind::Cgroup | NamespaceKind::Time)
    };
    container.namespaces.retain(needed);
    if !container.namespaces.iter().any(|namespace| namespace.kind == NamespaceKind::Mount) {
        container.namespaces.push(Namespace { kind: NamespaceKind::Mount, path: None });
    }
    let namespaces = namespaces::new(&container);
    // There may be no cgroup yet, and only the mount point is needed.
    let cgroups = container.mounts.iter_mut().filter(|mount| matches!(mount.source, Source::Cgroup { .. }));
    for mount in cgroups {
        let (fstype, name) = ("tmpfs".to_owned(), "cgroup".to_owned());
        mount.source = Source::New { fstype, name, options: Vec::new(), copy_up: false };
    }
    let mut plan = Builder::new(memory);
    plan.at("mounts");
    plan.push(Step::ParentDeathSignal { signal: Signal::KILL, parent: None });
    plan.push(Step::CloseOthers { first: Fd::FIRST_EXTRA, keep: None });
    if namespaces.contains(Namespaces::USER) {
        plan.at("linux.uidMappings").push(Step::Request { what: Request::IdMaps });
    }
    plan.push(Step::Umask { mask: mode(0) });
    let root = rootfs::attach(&container, &mut plan)?;
    let _late = mounts::attach(&attach::Around { container: &container, host, root }, &mut plan)?;
    plan.at("mounts").push(Step::Request { what: Request::Parked });
    Ok(plan.finish(namespaces))
}
