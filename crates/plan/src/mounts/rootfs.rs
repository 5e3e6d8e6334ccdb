//! Prepares the root file system as a mount of its own, and finally makes it the root.

use crate::builder::{Builder, Error, mode};
use crate::host::Host;
use crate::invocation::NewRoot;
use crate::mounts::attach::{flags, set_attributes};
use crate::namespaces;
use husk_bundle::Container;
use husk_bundle::container::{Access, NamespaceKind, Propagation, PropagationKind};
use husk_script::sys::file::OFlags;
use husk_script::sys::mount::{AttributeChange, Extent, MountAttributes, MountFlags, MountPropagationFlags};
use husk_script::{Reg, Step};
use std::ffi::CStr;
use std::path::PathBuf;

/// The default of every runtime: mounts of the host propagate into the container, but not back.
const DEFAULT_PROPAGATION: Propagation = Propagation { kind: PropagationKind::Slave, extent: Extent::All };

fn propagation(container: &Container) -> Propagation {
    container.rootfs_propagation.unwrap_or(DEFAULT_PROPAGATION)
}

/// Whether no mount propagates to the host. Non-recursive propagation leaves other mounts as they are. The unmount
/// of the old root would remove those on the host too.
fn is_private(propagation: Propagation) -> bool {
    propagation.extent == Extent::All
        && matches!(propagation.kind, PropagationKind::Slave | PropagationKind::Private)
}

/// Mounts the root file system over itself and leaves its descriptor in a register. Without a mount namespace it
/// only opens the directory, because a mount would be the host's.
pub(crate) fn attach(container: &Container, plan: &mut Builder<'_>) -> Result<Reg, Error> {
    let flags_of_directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    if !namespaces::has(container, NamespaceKind::Mount) {
        plan.at("root.path");
        if !container.layers.is_empty() {
            return Err(plan
                .at(husk_bundle::LAYERS)
                .error("cannot be mounted without a private MNT namespace"));
        }
        let path = plan.text(&container.rootfs)?;
        let root = plan.register()?;
        plan.push(Step::Open { path, flags: flags_of_directory, mode: mode(0), out: root });
        return Ok(root);
    }
    let propagation = propagation(container);
    plan.at("linux.rootfsPropagation");
    plan.push(Step::MountChange { target: c"/", flags: flags(propagation) });

    plan.at("root.path");
    let path = plan.text(&container.rootfs)?;
    let place = plan.register()?;
    let root = plan.register()?;
    plan.push(Step::Open { path, flags: flags_of_directory, mode: mode(0), out: place });
    if !is_private(propagation) {
        // Changes the mount on which the directory lies. Otherwise mounts made there would propagate to the host,
        // and the kernel refuses a root below a shared mount (pivot_root(2)). A slave is not shared but still
        // receives the host's mounts.
        let propagation = match propagation.kind {
            PropagationKind::Slave => MountPropagationFlags::DOWNSTREAM,
            _ => MountPropagationFlags::PRIVATE,
        };
        plan.at("linux.rootfsPropagation");
        plan.push(Step::MountSetattrAbove { directory: place.into(), propagation });
        plan.at("root.path");
    }
    if let Some(layers) = container.overlay() {
        overlay(layers, path, plan)?;
        plan.push(Step::Open { path, flags: flags_of_directory, mode: mode(0), out: root });
    } else {
        plan.push(Step::OpenTree { path, extent: Extent::All, out: root });
        plan.push(Step::MoveMount { mount: root.into(), target: place.into() });
    }
    plan.release(place);
    Ok(root)
}

/// Mounts the bundle's layers over the root file system's directory.
fn overlay<'b>(
    (directory, options): (PathBuf, String),
    target: &'b CStr,
    plan: &mut Builder<'b>,
) -> Result<(), Error> {
    plan.at(husk_bundle::LAYERS);
    let here = plan.register()?;
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    plan.push(Step::Open { path: c".", flags, mode: mode(0), out: here });
    let path = plan.text(directory)?;
    plan.push(Step::Chdir { path });
    let (source, fstype, data) = (c"overlay", c"overlay", plan.text(&options)?);
    plan.push(Step::Mount { source, target, fstype, flags: MountFlags::empty(), data });
    plan.push(Step::Fchdir { directory: here.into() });
    plan.release(here);
    plan.at("root.path");
    Ok(())
}

/// Makes the root file system the root.
pub(crate) fn enter(
    container: &Container,
    host: &Host,
    new_root: NewRoot,
    root: Reg,
    plan: &mut Builder<'_>,
) -> Result<(), Error> {
    if container.rootfs_access == Access::ReadOnly {
        set_attributes(root, MountAttributes::RDONLY, plan.at("root.readonly"));
    }
    plan.at("root.path");
    if !namespaces::has(container, NamespaceKind::Mount) {
        change_root(root, plan);
        plan.release(root);
        return Ok(());
    }
    match new_root {
        NewRoot::Pivot => pivot(container, root, plan)?,
        NewRoot::Move => over(container, host, root, plan)?,
    }
    plan.release(root);
    let propagation = propagation(container);
    if !is_private(propagation) {
        // Must not be earlier: a shared mount cannot become the root. A mount made shared while below the host's
        // mounts would also share with them.
        plan.at("linux.rootfsPropagation");
        plan.push(Step::MountChange { target: c"/", flags: flags(propagation) });
    }
    Ok(())
}

/// Stacks the old root on top of the new one and unmounts it there. So it needs no directory, and no path to it
/// remains.
fn pivot(container: &Container, root: Reg, plan: &mut Builder<'_>) -> Result<(), Error> {
    let is_private = is_private(propagation(container));
    let old = if is_private { None } else { Some(open_root(plan)?) };
    plan.push(Step::Fchdir { directory: root.into() });
    plan.push(Step::PivotRoot { new_root: c".", put_old: c"." });
    if let Some(old) = old {
        // Prevents the unmount from propagating to the host.
        let (mount, extent, change) = (old.into(), Extent::All, AttributeChange::NONE);
        let propagation = MountPropagationFlags::DOWNSTREAM;
        plan.push(Step::MountSetattr { mount, extent, change, propagation });
        plan.release(old);
    }
    plan.push(Step::UmountDetach { target: c"." });
    plan.push(Step::Chdir { path: c"/" });
    Ok(())
}

/// Moves the new root onto the old root, which stays beneath it. Only chroot then confines the program. If it
/// escaped the chroot, it could mount an uncovered procfs or sysfs, because the kernel permits that where one
/// exists already (fs/namespace.c, `mount_too_revealing`). So, as in runc, the host's are removed first.
fn over(container: &Container, host: &Host, root: Reg, plan: &mut Builder<'_>) -> Result<(), Error> {
    if propagation(container).kind == PropagationKind::Private {
        plan.at("linux.rootfsPropagation");
        return Err(plan.error("rootfsPropagation of [r]private is not safe without pivot_root"));
    }
    plan.at("--no-pivot");
    for path in &host.revealing {
        let path = plan.text(path)?;
        plan.push(Step::Hide { path });
    }
    plan.at("root.path");
    let old = open_root(plan)?;
    plan.push(Step::MoveMount { mount: root.into(), target: old.into() });
    plan.release(old);
    change_root(root, plan);
    Ok(())
}

fn open_root(plan: &mut Builder<'_>) -> Result<Reg, Error> {
    let old = plan.register()?;
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    plan.push(Step::Open { path: c"/", flags, mode: mode(0), out: old });
    Ok(old)
}

fn change_root(root: Reg, plan: &mut Builder<'_>) {
    plan.push(Step::Fchdir { directory: root.into() });
    plan.push(Step::Chroot { path: c"." });
    plan.push(Step::Chdir { path: c"/" });
}
