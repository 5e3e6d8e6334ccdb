//! `mounts`, one after the other: made where nobody sees it, configured, put in place by descriptor.

use crate::builder::{Builder, Error};
use crate::host::{CgroupMount, FileKind, Host};
use crate::rootfs;
use husk_bundle::Container;
use husk_bundle::container::{Attributes, Mount, NamespaceKind, Source};
use husk_script::sys::mount::{Extent, MountPropagationFlags};
use husk_script::{Place, Reg, Step};
use std::path::{Path, PathBuf};

pub(crate) fn attach(
    container: &Container,
    host: &Host,
    root: Reg,
    plan: &mut Builder<'_>,
) -> Result<(), Error> {
    let own_cgroups = container.namespaces.iter().any(|namespace| namespace.kind == NamespaceKind::Cgroup);
    for (index, mount) in container.mounts.iter().enumerate() {
        plan.at(format!("mounts[{index}] {}", mount.destination.display()));
        if mount.id_mapping.is_some() {
            return Err(plan.error("an idmapped mount is not supported yet"));
        }
        match &mount.source {
            Source::Bind { path, recursive } => {
                let extent = if *recursive { Extent::All } else { Extent::Top };
                let kind = host.sources.get(index).copied().unwrap_or(FileKind::Missing);
                bind(path, extent, kind, mount, root, plan)?;
            }
            Source::New { copy_up: true, .. } => return Err(plan.error("tmpcopyup is not supported yet")),
            Source::New { fstype, name, options, .. } => {
                let tree = new(fstype, name, options, mount.attributes, plan)?;
                place(tree, FileKind::Directory, mount, root, plan)?;
            }
            Source::Remount => return Err(plan.error("remount is not supported yet")),
            Source::Cgroup => match &host.cgroup {
                CgroupMount::V2 => {
                    let tree = new("cgroup2", "cgroup", &[], mount.attributes, plan)?;
                    place(tree, FileKind::Directory, mount, root, plan)?;
                }
                CgroupMount::V1(hierarchies) => cgroup_v1(hierarchies, own_cgroups, mount, root, plan)?,
            },
        }
    }
    Ok(())
}

/// A new file system with its own options.
fn new(
    fstype: &str,
    name: &str,
    options: &[String],
    attributes: Attributes,
    plan: &mut Builder<'_>,
) -> Result<Reg, Error> {
    let fs = plan.register()?;
    let fstype = plan.text(fstype)?;
    plan.push(Step::Fsopen { fstype, out: fs });
    if !name.is_empty() {
        let value = plan.text(name)?;
        plan.push(Step::FsconfigString { fs, key: c"source", value });
    }
    for option in options {
        match option.split_once('=') {
            Some((key, value)) => {
                let (key, value) = (plan.text(key)?, plan.text(value)?);
                plan.push(Step::FsconfigString { fs, key, value });
            }
            None => {
                let key = plan.text(option)?;
                plan.push(Step::FsconfigFlag { fs, key });
            }
        }
    }
    if let Some(fd) = plan.pid_namespace.filter(|_| fstype == c"proc") {
        plan.push(Step::FsconfigFd { fs, key: c"pidns", fd: fd.into() });
    }
    plan.push(Step::Fsmount { fs, attributes: attributes.set });
    Ok(fs)
}

fn bind(
    path: &Path,
    extent: Extent,
    kind: FileKind,
    mount: &Mount,
    root: Reg,
    plan: &mut Builder<'_>,
) -> Result<(), Error> {
    if kind == FileKind::Missing {
        return Err(plan.error(format!("{}: No such file or directory", path.display())));
    }
    let tree = plan.register()?;
    let path = plan.text(path)?;
    plan.push(Step::OpenTree { path, extent, out: tree });
    if mount.attributes != Attributes::default() {
        let Attributes { set, clear } = mount.attributes;
        plan.push(Step::MountSetattr { mount: tree.into(), extent: Extent::Top, set, clear, propagation: 0 });
    }
    place(tree, kind, mount, root, plan)
}

/// Puts a mount that is nowhere yet where it belongs, and gives the register back.
fn place(tree: Reg, kind: FileKind, mount: &Mount, root: Reg, plan: &mut Builder<'_>) -> Result<(), Error> {
    let Attributes { set, clear } = mount.recursive_attributes;
    if (set, clear) != (0, 0) {
        plan.push(Step::MountSetattr { mount: tree.into(), extent: Extent::All, set, clear, propagation: 0 });
    }
    let target = plan.target(&mount.destination)?;
    let place = match kind {
        FileKind::Directory => Place::Directory,
        FileKind::File | FileKind::Missing => Place::File,
    };
    plan.push(Step::Attach { mount: tree, root: root.into(), target, place });
    // In their order, and only once it is in place: an unattached mount has no peers.
    for propagation in &mount.propagation {
        let extent = if propagation.recursive { Extent::All } else { Extent::Top };
        let flags = rootfs::flags(*propagation).difference(MountPropagationFlags::REC);
        let propagation = u64::from(flags.bits());
        plan.push(Step::MountSetattr { mount: tree.into(), extent, set: 0, clear: 0, propagation });
    }
    plan.release(tree);
    Ok(())
}

/// The hierarchies of cgroup v1 side by side on a tmpfs, each of them as the container's own root
/// where it has a cgroup namespace, else the caller's cgroup of it, read-only as the tmpfs is.
fn cgroup_v1(
    hierarchies: &[(String, PathBuf)],
    own: bool,
    mount: &Mount,
    root: Reg,
    plan: &mut Builder<'_>,
) -> Result<(), Error> {
    const RDONLY: u64 = 0x1;
    let writable = Attributes { set: mount.attributes.set & !RDONLY, clear: 0 };
    let tmpfs = new("tmpfs", "tmpfs", &["mode=755".to_owned()], writable, plan)?;
    let (target, place) = (plan.target(&mount.destination)?, Place::Directory);
    plan.push(Step::Attach { mount: tmpfs, root: root.into(), target, place });
    for (name, path) in hierarchies {
        let tree = if own {
            let options: Vec<_> = match name.strip_prefix("name=") {
                Some(_) => vec![name.clone(), "none".to_owned()],
                None => name.split(',').map(str::to_owned).collect(),
            };
            new("cgroup", "cgroup", &options, mount.attributes, plan)?
        } else {
            let tree = plan.register()?;
            let path = plan.text(path)?;
            plan.push(Step::OpenTree { path, extent: Extent::Top, out: tree });
            let Attributes { set, clear } = mount.attributes;
            let (extent, set) = (Extent::Top, set | RDONLY);
            plan.push(Step::MountSetattr { mount: tree.into(), extent, set, clear, propagation: 0 });
            tree
        };
        let target = plan.target(Path::new(name.strip_prefix("name=").unwrap_or(name)))?;
        plan.push(Step::Attach { mount: tree, root: tmpfs.into(), target, place });
        plan.release(tree);
    }
    if mount.attributes.set & RDONLY != 0 {
        let extent = Extent::Top;
        plan.push(Step::MountSetattr { mount: tmpfs.into(), extent, set: RDONLY, clear: 0, propagation: 0 });
    }
    plan.release(tmpfs);
    Ok(())
}
