//! The places of a container's mounts, for a container that somebody else mounts: CRIU, which restores it and
//! makes no directories.

use crate::builder::{Builder, Error, Plan, mode};
use crate::host::Host;
use crate::mounts;
use crate::mounts::{attach, rootfs};
use bumpalo::Bump;
use husk_bundle::Container;
use husk_bundle::container::{Namespace, NamespaceKind, Source};
use husk_script::sys::Fd;
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::signal::Signal;
use husk_script::{Request, Step};

/// Writes the plan of a process that makes what is missing of the places of the container's mounts, as the
/// container's own process would: by mounting everything, in a mount namespace that ends with the process. It
/// says when it is done, and waits to be killed.
///
/// # Errors
///
/// As for [`create`](crate::create).
pub fn places<'b>(container: &Container, host: &Host, memory: &'b Bump) -> Result<Plan<'b>, Error> {
    let mut container = container.clone();
    // Nobody else is to hear of these mounts, whoever hears of the container's.
    container.rootfs_propagation = None;
    container.namespaces = vec![Namespace { kind: NamespaceKind::Mount, path: None }];
    // There may be no cgroup yet, and its place is all that is wanted.
    let cgroups = container.mounts.iter_mut().filter(|mount| matches!(mount.source, Source::Cgroup { .. }));
    for mount in cgroups {
        let (fstype, name) = ("tmpfs".to_owned(), "cgroup".to_owned());
        mount.source = Source::New { fstype, name, options: Vec::new(), copy_up: false };
    }
    let mut plan = Builder::new(memory);
    plan.at("mounts");
    plan.push(Step::ParentDeathSignal { signal: Signal::KILL, parent: None });
    plan.push(Step::CloseOthers { first: Fd::FIRST_EXTRA, keep: None });
    plan.push(Step::Umask { mask: mode(0) });
    let root = rootfs::attach(&container, &mut plan)?;
    let _late = mounts::attach(&attach::Around { container: &container, host, root }, &mut plan)?;
    plan.at("mounts").push(Step::Request { what: Request::Parked });
    Ok(plan.finish(Namespaces::MOUNT))
}
