//! Plans mounts of type `cgroup`, which show whatever hierarchies the host has.

use crate::builder::{Builder, Error};
use crate::host::CgroupMount;
use crate::mounts::attach::{Around, New, change, put, set_attributes};
use crate::namespaces;
use husk_bundle::container::{Mount, NamespaceKind};
use husk_script::sys::Errno;
use husk_script::sys::mount::{Extent, MountAttributes};
use husk_script::{MountPoint, PathInRoot, Reg, Step};
use std::path::{Path, PathBuf};

/// The attributes of every cgroup v1 mount, whatever the configuration asks for, as in runc.
const ALWAYS: MountAttributes =
    MountAttributes::NOSUID.union(MountAttributes::NODEV).union(MountAttributes::NOEXEC);

pub(crate) fn attach<'b>(
    mount: &Mount,
    options: &[String],
    target: PathInRoot<'b>,
    around: &Around<'_>,
    plan: &mut Builder<'b>,
) -> Result<(), Error> {
    let has_own = namespaces::has(around.container, NamespaceKind::Cgroup);
    match &around.host.cgroup {
        // A new mount would change the flags of the host's hierarchy: see `hosts`.
        CgroupMount::V2 if !has_own => show(Path::new("/sys/fs/cgroup"), mount, target, around, plan)?,
        CgroupMount::V2 => {
            let attributes = mount.attributes.set;
            let new = New { fstype: "cgroup2", name: "cgroup", options, attributes, label: None };
            let tree = new.mount(plan)?;
            put(tree, MountPoint::Directory, target, mount, around.root, plan);
            plan.release(tree);
        }
        CgroupMount::V1(hierarchies) => {
            let tmpfs = v1(hierarchies, has_own, mount, target, around.root, plan)?;
            plan.release(tmpfs);
        }
    }
    Ok(())
}

/// Returns the host's cgroup v2 mount that a mount of type `cgroup2` shows, if the container shares the host's
/// cgroup namespace. A new mount there would set the flags of the host's hierarchy (kernel/cgroup/cgroup.c,
/// `apply_cgroup_root_flags`), and the host would lose `memory_recursiveprot`. A process in a user namespace
/// cannot mount it there at all.
pub(crate) fn hosts<'a>(fstype: &str, around: &Around<'a>) -> Option<&'a Path> {
    let has_own = namespaces::has(around.container, NamespaceKind::Cgroup);
    around.host.cgroup2.as_deref().filter(|_| fstype == "cgroup2" && !has_own)
}

/// Bind mounts a mount of the host.
pub(crate) fn show<'b>(
    path: &Path,
    mount: &Mount,
    target: PathInRoot<'b>,
    around: &Around<'_>,
    plan: &mut Builder<'b>,
) -> Result<(), Error> {
    let (tree, path) = (plan.register()?, plan.text(path)?);
    plan.push(Step::OpenTree { path, extent: Extent::Top, out: tree });
    change(tree, mount.attributes, plan);
    put(tree, MountPoint::Directory, target, mount, around.root, plan);
    plan.release(tree);
    Ok(())
}

/// Mounts the hierarchies of cgroup v1 side by side on a tmpfs. With a cgroup namespace each shows the container's
/// own root, otherwise the caller's cgroup. They are read-only if the mount is.
fn v1<'b>(
    hierarchies: &[(String, PathBuf)],
    own: bool,
    mount: &Mount,
    target: PathInRoot<'b>,
    root: Reg,
    plan: &mut Builder<'b>,
) -> Result<Reg, Error> {
    let read_only = mount.attributes.set.intersection(MountAttributes::RDONLY);
    let options = ["mode=755".to_owned()];
    let new = New { fstype: "tmpfs", name: "tmpfs", options: &options, attributes: ALWAYS, label: None };
    let tmpfs = new.mount(plan)?;
    put(tmpfs, MountPoint::Directory, target, mount, root, plan);
    for (name, path) in hierarchies {
        let tree = if own {
            let attributes = ALWAYS | read_only;
            let options: Vec<_> = match name.strip_prefix("name=") {
                Some(_) => vec![name.clone(), "none".to_owned()],
                None => name.split(',').map(str::to_owned).collect(),
            };
            New { fstype: "cgroup", name: "cgroup", options: &options, attributes, label: None }
                .mount(plan)?
        } else {
            let tree = plan.register()?;
            let path = plan.text(path)?;
            plan.push(Step::OpenTree { path, extent: Extent::Top, out: tree });
            change(tree, mount.attributes, plan);
            tree
        };
        let shown = name.strip_prefix("name=").unwrap_or(name);
        let target = plan.target(Path::new(shown))?;
        plan.push(Step::Attach { mount: tree, root: tmpfs.into(), target, place: MountPoint::Directory });
        plan.release(tree);
        // Programs look for a controller by its own name, even if it shares a hierarchy.
        for controller in shown.split(',').filter(|controller| *controller != shown) {
            let (name, target) = (plan.text(controller)?, plan.text(shown)?);
            let (directory, tolerate) = (tmpfs.into(), Some(Errno::EXIST));
            plan.push(Step::SymlinkIn { directory, name, target, tolerate });
        }
    }
    if !read_only.is_empty() {
        set_attributes(tmpfs, read_only, plan);
    }
    Ok(tmpfs)
}
