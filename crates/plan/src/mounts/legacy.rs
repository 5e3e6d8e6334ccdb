//! Makes file systems with mount(2), for options that fsconfig(2) does not take.
//!
//! fsconfig(2) takes at most 255 bytes for a value, but an overlay of many layers needs more. mount(2) takes a
//! page for all options together. It needs a mount point in the tree. So a tmpfs covers the container's root for a
//! moment, and the new file system is mounted in it. A copy of the mount is kept; the mount and the tmpfs are
//! removed.

use crate::builder::{Builder, Error, mode};
use crate::mounts::attach::{LONGEST, New};
use husk_script::sys::mount::{AttributeChange, Extent, MountAttributes, MountFlags, MountPropagationFlags};
use husk_script::{Reg, Step};

/// The kernel reads one page of options, and the last byte ends the string (fs/namespace.c, `copy_mount_options`).
const PAGE: usize = 4095;

/// Returns the options of a file system as a string for mount(2), if fsconfig(2) does not take one of them.
/// Overlay layers that do not fit in a page are left to fsconfig(2), which takes them one by one.
pub(crate) fn data(new: &New<'_>, plan: &Builder<'_>) -> Result<Option<String>, Error> {
    // These need steps of their own between setting options and mounting.
    if matches!(new.fstype, "tmpfs" | "proc") {
        return Ok(None);
    }
    let is_long = |option: &String| option.split_once('=').is_some_and(|(_, value)| value.len() > LONGEST);
    if new.name.len() <= LONGEST && !new.options.iter().any(is_long) {
        return Ok(None);
    }
    let options = new.options.iter().filter(|option| flag(option).is_none()).cloned();
    // A label may contain commas, so it is quoted.
    let label = new.label.map(|(option, label)| format!("{option}=\"{label}\""));
    let data = options.chain(label).collect::<Vec<_>>().join(",");
    match data.len() {
        ..=PAGE => Ok(Some(data)),
        _ if data.contains("lowerdir=") => Ok(None),
        length => Err(plan
            .error(format!("the options have {length} bytes in total; the kernel accepts at most {PAGE}"))),
    }
}

/// Makes a file system and returns a mount that is not attached anywhere.
pub(crate) fn mount(new: &New<'_>, data: &str, root: Reg, plan: &mut Builder<'_>) -> Result<Reg, Error> {
    let (tmpfs, out) = (plan.register()?, plan.register()?);
    plan.push(Step::Fsopen { fstype: c"tmpfs", out: tmpfs });
    let attributes = MountAttributes::NOSUID | MountAttributes::NODEV | MountAttributes::NOEXEC;
    plan.push(Step::Fsmount { fs: tmpfs, attributes });
    plan.push(Step::MoveMount { mount: tmpfs.into(), target: root.into() });
    plan.push(Step::Fchdir { directory: tmpfs.into() });
    plan.push(Step::Mkdir { path: c"new", mode: mode(0o700), tolerate: None });
    let flags = new.options.iter().filter_map(|option| flag(option)).collect();
    let (source, fstype, data) = (plan.text(new.name)?, plan.text(new.fstype)?, plan.text(data)?);
    plan.push(Step::Mount { source, target: c"new", fstype, flags, data });
    plan.push(Step::OpenTree { path: c"new", extent: Extent::Top, out });
    plan.push(Step::UmountDetach { target: c"." });
    plan.push(Step::Close { fd: tmpfs.into() });
    plan.release(tmpfs);
    let mut change = AttributeChange::set(new.attributes);
    if change.set.intersects(MountAttributes::ATIME) {
        change.clear = MountAttributes::ATIME;
    }
    if change != AttributeChange::NONE {
        let (extent, propagation) = (Extent::Top, MountPropagationFlags::empty());
        plan.push(Step::MountSetattr { mount: out.into(), extent, change, propagation });
    }
    Ok(out)
}

/// Returns the mount(2) flag for an option that does not go into the option string. Options that undo a flag
/// return an empty set.
fn flag(option: &str) -> Option<MountFlags> {
    Some(match option {
        "sync" => MountFlags::SYNCHRONOUS,
        "dirsync" => MountFlags::DIRSYNC,
        "lazytime" => MountFlags::LAZYTIME,
        "mand" => MountFlags::PERMIT_MANDATORY_FILE_LOCKING,
        "async" | "nolazytime" | "nomand" => MountFlags::empty(),
        _ => return None,
    })
}
