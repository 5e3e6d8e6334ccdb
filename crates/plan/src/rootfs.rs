//! The root file system: a mount of its own at first, the root in the end.

use crate::builder::{Builder, Error, mode};
use husk_bundle::Container;
use husk_bundle::container::{Access, Propagation, PropagationKind};
use husk_script::sys::file::OFlags;
use husk_script::sys::mount::{Extent, MountPropagationFlags};
use husk_script::{Reg, Step};

/// `MOUNT_ATTR_RDONLY`.
const RDONLY: u64 = 0x1;

/// What every runtime takes where nothing is said: mounts of the host arrive, ours do not leave.
const DEFAULT_PROPAGATION: Propagation = Propagation { kind: PropagationKind::Slave, recursive: true };

/// Mounts the root file system over itself and leaves its descriptor in a register.
pub(crate) fn attach(container: &Container, plan: &mut Builder<'_>) -> Result<Reg, Error> {
    let propagation = container.rootfs_propagation.unwrap_or(DEFAULT_PROPAGATION);
    plan.at("linux.rootfsPropagation");
    if propagation.kind == PropagationKind::Shared {
        return Err(plan.error("a shared root file system is not supported yet"));
    }
    plan.push(Step::MountChange { target: c"/", flags: flags(propagation) });

    plan.at("root.path");
    let path = plan.text(&container.rootfs)?;
    let place = plan.register()?;
    let root = plan.register()?;
    plan.push(Step::Open {
        path,
        flags: OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW,
        mode: mode(0),
        out: place,
    });
    plan.push(Step::OpenTree { path, extent: Extent::All, out: root });
    plan.push(Step::MoveMount { mount: root.into(), target: place.into() });
    plan.release(place);
    Ok(root)
}

/// Makes it the root. The old root lands on top of the new one and is taken away from there, so no
/// directory is needed for it and no name of it is left.
pub(crate) fn pivot(container: &Container, root: Reg, plan: &mut Builder<'_>) {
    if container.rootfs_access == Access::ReadOnly {
        plan.at("root.readonly").push(Step::MountSetattr {
            mount: root.into(),
            extent: Extent::Top,
            set: RDONLY,
            clear: 0,
            propagation: 0,
        });
    }
    plan.at("root.path");
    plan.push(Step::Fchdir { directory: root.into() });
    plan.push(Step::PivotRoot { new_root: c".", put_old: c"." });
    plan.push(Step::UmountDetach { target: c"." });
    plan.push(Step::Chdir { path: c"/" });
    plan.release(root);
}

pub(crate) fn flags(propagation: Propagation) -> MountPropagationFlags {
    let kind = match propagation.kind {
        PropagationKind::Shared => MountPropagationFlags::SHARED,
        PropagationKind::Slave => MountPropagationFlags::DOWNSTREAM,
        PropagationKind::Private => MountPropagationFlags::PRIVATE,
        PropagationKind::Unbindable => MountPropagationFlags::UNBINDABLE,
    };
    if propagation.recursive { kind | MountPropagationFlags::REC } else { kind }
}
