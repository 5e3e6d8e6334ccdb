//! Builds mounts: creates file systems with their options, sets attributes, and attaches the result.

use crate::builder::{Builder, Error, LAYER};
use crate::host::Host;
use husk_bundle::Container;
use husk_bundle::container::{Mount, Propagation, PropagationKind};
use husk_script::sys::mount::{AttributeChange, Extent, MountAttributes, MountPropagationFlags};
use husk_script::{MountPoint, PathInRoot, Reg, Step};
use std::ffi::CStr;

/// Attributes that an outer user namespace can lock, besides those for access times.
const LOCKABLE: MountAttributes = MountAttributes::RDONLY
    .union(MountAttributes::NOSUID)
    .union(MountAttributes::NODEV)
    .union(MountAttributes::NOEXEC);

/// The parts that all mounts of a container share.
pub(crate) struct Around<'a> {
    pub(crate) container: &'a Container,
    pub(crate) host: &'a Host,
    pub(crate) root: Reg,
}

/// The options and attributes of a new file system.
pub(crate) struct New<'a> {
    pub(crate) fstype: &'a str,
    pub(crate) name: &'a str,
    pub(crate) options: &'a [String],
    pub(crate) attributes: MountAttributes,
    pub(crate) label: Option<(&'static str, &'a str)>,
}

impl New<'_> {
    /// Makes the file system and returns a detached mount of it.
    pub(crate) fn mount(&self, plan: &mut Builder<'_>) -> Result<Reg, Error> {
        let fs = self.configure(plan)?;
        plan.push(Step::Fsmount { fs, attributes: self.attributes });
        Ok(fs)
    }

    /// Sets the options of the file system without making it.
    pub(crate) fn configure(&self, plan: &mut Builder<'_>) -> Result<Reg, Error> {
        let fs = plan.register()?;
        let fstype = plan.text(self.fstype)?;
        plan.push(Step::Fsopen { fstype, out: fs });
        if !self.name.is_empty() {
            string(fs, c"source", self.name, plan)?;
        }
        options(fs, self.options, plan)?;
        if let Some((option, label)) = self.label {
            let key = plan.text(option)?;
            string(fs, key, label, plan)?;
        }
        if let Some(fd) = plan.pid_namespace.filter(|_| self.fstype == "proc") {
            plan.push(Step::FsconfigFd { fs, key: c"pidns", fd: fd.into() });
        }
        Ok(fs)
    }
}

/// Sets the options of a file system before it is made.
///
/// # Errors
///
/// Fails if an option contains a NUL byte or is longer than the kernel accepts.
pub fn options(fs: Reg, options: &[String], plan: &mut Builder<'_>) -> Result<(), Error> {
    for option in options {
        match option.split_once('=') {
            Some(("lowerdir", value)) if value.len() > LONGEST => layers(fs, value, plan)?,
            Some((key, value)) => {
                let key = plan.text(key)?;
                string(fs, key, value, plan)?;
            }
            None => {
                let key = plan.text(option)?;
                plan.push(Step::FsconfigFlag { fs, key });
            }
        }
    }
    Ok(())
}

/// The longest string that fsconfig(2) takes (fs/fsopen.c).
pub(crate) const LONGEST: usize = 255;

/// Sets a parameter to a string.
fn string<'b>(fs: Reg, key: &'b CStr, value: &str, plan: &mut Builder<'b>) -> Result<(), Error> {
    if value.len() > LONGEST {
        let (key, length) = (key.to_string_lossy(), value.len());
        return Err(
            plan.error(format!("{key}: the value has {length} bytes; the kernel accepts at most {LONGEST}"))
        );
    }
    let value = plan.text(value)?;
    plan.push(Step::FsconfigString { fs, key, value });
    Ok(())
}

/// Sets the layers of an overlay one by one, because together they exceed the limits of fsconfig(2) and mount(2).
/// A colon or backslash in a path needs no escape here. Layers after an empty one contain data only
/// (overlayfs.rst, "Data-only lower layers").
fn layers(fs: Reg, value: &str, plan: &mut Builder<'_>) -> Result<(), Error> {
    let (mut key, mut layer, mut is_escaped) = (LAYER, String::new(), false);
    for char in value.chars().chain([':']) {
        match char {
            ':' if !is_escaped && layer.is_empty() => key = c"datadir+",
            ':' if !is_escaped => string(fs, key, &std::mem::take(&mut layer), plan)?,
            '\\' if !is_escaped => {
                is_escaped = true;
                continue;
            }
            char => layer.push(char),
        }
        is_escaped = false;
    }
    Ok(())
}

/// Sets the attributes of an existing mount exactly, as in runc. An attribute that is not mentioned is cleared,
/// unless an outer user namespace has locked it. Without any attributes the mount stays as it is. As with
/// mount(2), access time handling changes only if an option names it.
pub(crate) fn change(mount: Reg, asked: AttributeChange, plan: &mut Builder<'_>) {
    if asked == AttributeChange::NONE {
        return;
    }
    let AttributeChange { set, clear } = asked;
    let named = set | clear;
    let names_times = named.intersects(MountAttributes::ATIME) || set.contains(MountAttributes::NODIRATIME);
    let times = if names_times {
        MountAttributes::ATIME | MountAttributes::NODIRATIME.without(set)
    } else {
        MountAttributes::EMPTY
    };
    let clear =
        clear.without(MountAttributes::NODIRATIME) | MountAttributes::NOSYMFOLLOW.without(set) | times;
    let unlocked = LOCKABLE.without(named);
    let change = AttributeChange { set, clear };
    plan.push(Step::MountSetattrUnlocked { mount: mount.into(), change, unlocked });
}

/// Sets attributes of a mount, without the mounts below it.
pub(crate) fn set_attributes(mount: Reg, attributes: MountAttributes, plan: &mut Builder<'_>) {
    let (mount, change) = (mount.into(), AttributeChange::set(attributes));
    let propagation = MountPropagationFlags::empty();
    plan.push(Step::MountSetattr { mount, extent: Extent::Top, change, propagation });
}

/// Changes the attributes of a mount and of all mounts below it.
pub(crate) fn change_all(mount: Reg, change: AttributeChange, plan: &mut Builder<'_>) {
    if change != AttributeChange::NONE {
        let (mount, propagation) = (mount.into(), MountPropagationFlags::empty());
        plan.push(Step::MountSetattr { mount, extent: Extent::All, change, propagation });
    }
}

/// Attaches a detached mount to its mount point.
pub(crate) fn put<'b>(
    tree: Reg,
    place: MountPoint,
    target: PathInRoot<'b>,
    mount: &Mount,
    root: Reg,
    plan: &mut Builder<'b>,
) {
    change_all(tree, mount.recursive_attributes, plan);
    plan.push(Step::Attach { mount: tree, root: root.into(), target, place });
    propagate(tree, mount, plan);
}

/// Sets the propagation in the given order, after attaching: a detached mount has no peers.
pub(crate) fn propagate(tree: Reg, mount: &Mount, plan: &mut Builder<'_>) {
    for propagation in &mount.propagation {
        let (mount, extent, change) = (tree.into(), propagation.extent, AttributeChange::NONE);
        let propagation = flags(*propagation).difference(MountPropagationFlags::REC);
        plan.push(Step::MountSetattr { mount, extent, change, propagation });
    }
}

/// Returns the flags of mount(2) for a propagation.
pub(crate) fn flags(propagation: Propagation) -> MountPropagationFlags {
    let kind = match propagation.kind {
        PropagationKind::Shared => MountPropagationFlags::SHARED,
        PropagationKind::Slave => MountPropagationFlags::DOWNSTREAM,
        PropagationKind::Private => MountPropagationFlags::PRIVATE,
        PropagationKind::Unbindable => MountPropagationFlags::UNBINDABLE,
    };
    match propagation.extent {
        Extent::Top => kind,
        Extent::All => kind | MountPropagationFlags::REC,
    }
}
