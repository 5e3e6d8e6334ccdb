//! Plans the container's mounts and its root file system. `mounts` are handled one after the other: each is
//! created detached, configured, and attached by descriptor.

pub(crate) mod attach;
mod cgroup;
pub(crate) mod devices;
mod legacy;
pub(crate) mod masks;
pub(crate) mod places;
pub(crate) mod rootfs;

use crate::builder::{Builder, Error};
use crate::namespaces;
use crate::origin::Origin;
use attach::{Around, New, change, change_all, options, propagate, put, set_attributes};
use husk_bundle::container::{Mount, MountIdMapping, NamespaceKind, Reconfiguration, Source};
use husk_script::sys::mount::{Extent, MountAttributes};
use husk_script::{MountPoint, PathInRoot, Reg, Step};
use std::path::Path;

/// Mounts that become read-only after everything inside them has been created.
#[derive(Default)]
pub(crate) struct Late(Vec<(Origin, Reg)>);

impl Late {
    pub(crate) fn seal(self, plan: &mut Builder<'_>) {
        for (origin, mount) in self.0 {
            plan.at(origin);
            set_attributes(mount, MountAttributes::RDONLY, plan);
            plan.release(mount);
        }
    }
}

/// Mounts everything. The caller must [seal](Late::seal) the result later.
pub(crate) fn attach(around: &Around<'_>, plan: &mut Builder<'_>) -> Result<Late, Error> {
    let mut late = Late::default();
    for (index, mount) in around.container.mounts.iter().enumerate() {
        plan.at(Origin::mount(index, &mount.destination));
        // As in runc, a destination below the rootfs's path on the host means that path itself.
        let below = mount.destination.strip_prefix(&around.container.rootfs);
        let target = plan.target(below.unwrap_or(&mount.destination))?;
        let place = place(mount, target, plan)?;
        match &mount.source {
            Source::Bind { path, extent } => {
                let tree = open_tree(index, path, *extent, mount.id_mapping.as_ref(), around, plan)?;
                change(tree, mount.attributes, plan);
                put(tree, place, target, mount, around.root, plan);
                plan.release(tree);
            }
            Source::New { fstype, name, options, copy_up } => {
                let mut attributes = mount.attributes.set;
                let is_late = attributes.contains(MountAttributes::RDONLY) && is_filled(mount, fstype);
                if is_late {
                    attributes = attributes.without(MountAttributes::RDONLY);
                }
                if let Some(path) = cgroup::hosts(fstype, around) {
                    cgroup::show(path, mount, target, around, plan)?;
                    continue;
                }
                let new = New { fstype, name, options, attributes, label: label(fstype, around, plan)? };
                let tree = make(&new, around.root, target, plan)?;
                if fstype == "mqueue"
                    && let Some(label) = &around.container.mount_label
                {
                    let label = plan.slice(label.as_bytes());
                    plan.push(Step::Label { mount: tree, label });
                }
                if *copy_up {
                    let (root, path) = (around.root.into(), target.path);
                    plan.push(Step::CopyUp { root, path, mount: tree });
                }
                put(tree, place, target, mount, around.root, plan);
                if is_late { late.0.push((plan.origin(), tree)) } else { plan.release(tree) }
            }
            Source::Remount { file_system } => {
                remount(mount, file_system.as_ref(), target, around.root, &mut late, plan)?;
            }
            Source::Cgroup { options } => cgroup::attach(mount, options, target, around, plan)?,
        }
    }
    Ok(late)
}

/// Whether devices or other mounts are created in this mount after it is attached.
fn is_filled(mount: &Mount, fstype: &str) -> bool {
    fstype == "tmpfs" || mount.destination == Path::new("/dev")
}

/// Returns what the mount point must be, if a mount is allowed there. The child detects a path that leads into
/// procfs through links.
fn place(mount: &Mount, target: PathInRoot<'_>, plan: &Builder<'_>) -> Result<MountPoint, Error> {
    /// Files in procfs that programs such as lxcfs replace; every runtime allows them.
    const PROCFS_FILES: &[&str] = &[
        "cpuinfo",
        "diskstats",
        "meminfo",
        "stat",
        "swaps",
        "uptime",
        "loadavg",
        "slabinfo",
        "sys/kernel/ns_last_pid",
        "sys/crypto/fips_enabled",
    ];
    let path = target.path.to_string_lossy();
    if path == "." {
        return Err(plan.error("cannot be mounted on top of the root file system"));
    }
    let is = |wanted| matches!(&mount.source, Source::New { fstype, .. } if fstype == wanted);
    match path.strip_prefix("proc").map(|below| below.strip_prefix('/').unwrap_or(below)) {
        Some("") => match &mount.source {
            _ if is("proc") => Ok(MountPoint::Ordinary),
            Source::Bind { .. } | Source::Remount { .. } => Ok(MountPoint::ProcfsKind),
            _ => Err(plan.error("\"/proc\" cannot be mounted because it is not of type proc")),
        },
        Some(below) if path.as_bytes().get(4) == Some(&b'/') => {
            if PROCFS_FILES.contains(&below) {
                return Ok(MountPoint::ProcfsFile);
            }
            Err(plan.error(format!("\"/{path}\" cannot be mounted because it is inside /proc")))
        }
        _ => Ok(match &mount.source {
            _ if is("proc") || is("sysfs") => MountPoint::Ordinary,
            Source::Bind { .. } => MountPoint::Alike,
            _ => MountPoint::Directory,
        }),
    }
}

/// Returns the label of the files, for file system types that take one as a mount option. procfs and sysfs label
/// their files themselves, and mqueue is labelled after mounting.
fn label<'a>(
    fstype: &str,
    around: &Around<'a>,
    plan: &Builder<'_>,
) -> Result<Option<(&'static str, &'a str)>, Error> {
    let Some(label) = around.container.mount_label.as_deref() else { return Ok(None) };
    if around.host.selinux == crate::Selinux::Off {
        let reason = "selinux label is specified in config, but selinux is disabled or not supported";
        return Err(plan.error(format!("linux.mountLabel: {reason}")));
    }
    Ok((!matches!(fstype, "proc" | "sysfs" | "mqueue" | "cgroup" | "cgroup2"))
        .then_some((around.container.mount_context.name(), label)))
}

/// Makes a new file system for a mount point.
fn make<'b>(new: &New<'_>, root: Reg, target: PathInRoot<'b>, plan: &mut Builder<'b>) -> Result<Reg, Error> {
    if let Some(data) = legacy::data(new, plan)? {
        return legacy::mount(new, &data, root, plan);
    }
    let fs = new.configure(plan)?;
    // As in runc, a tmpfs that covers a directory of the image takes the mode of that directory.
    if new.fstype == "tmpfs" && !new.options.iter().any(|option| option.starts_with("mode=")) {
        plan.push(Step::FsconfigModeOf { fs, root: root.into(), path: target.path });
    }
    plan.push(Step::Fsmount { fs, attributes: new.attributes });
    Ok(fs)
}

/// Returns a detached copy of the tree to bind mount.
fn open_tree(
    index: usize,
    path: &Path,
    extent: Extent,
    ids: Option<&MountIdMapping>,
    around: &Around<'_>,
    plan: &mut Builder<'_>,
) -> Result<Reg, Error> {
    let is_root = around.host.euid == 0;
    let has_user_namespace = namespaces::has(around.container, NamespaceKind::User);
    if let Some(ids) = ids {
        if !is_root {
            return Err(plan.error("id-mapped mounts are not supported for rootless containers"));
        }
        if ids.uids.is_empty() && !has_user_namespace {
            return Err(plan.error("id-mapped mounts must have both uid and gid mappings specified"));
        }
    }
    let out = plan.register()?;
    let mount = u32::try_from(index).map_err(|_| plan.error("too many mounts"))?;
    let path = plan.text(path)?;
    plan.push(match ids {
        // An idmapped mount needs privileges over the file system.
        Some(_) => Step::RequestTree { mount, out },
        // The container's root is an unprivileged user on the host and may not be able to open the path.
        None if has_user_namespace && is_root => Step::OpenTreeOrRequest { path, extent, mount, out },
        None => Step::OpenTree { path, extent, out },
    });
    Ok(out)
}

/// Changes an existing mount, and also its file system if the options require it.
fn remount<'b>(
    mount: &Mount,
    file_system: Option<&Reconfiguration>,
    target: PathInRoot<'b>,
    root: Reg,
    late: &mut Late,
    plan: &mut Builder<'b>,
) -> Result<(), Error> {
    let out = plan.register()?;
    plan.push(Step::OpenInRoot { root: root.into(), path: target.path, out });
    let is_late = file_system.is_some_and(|changed| is_filled(mount, &changed.fstype));
    let mut attributes = mount.attributes;
    let is_read_only = attributes.set.contains(MountAttributes::RDONLY);
    if is_late {
        attributes.set = attributes.set.without(MountAttributes::RDONLY);
    }
    change(out, attributes, plan);
    change_all(out, mount.recursive_attributes, plan);
    propagate(out, mount, plan);
    if let Some(changed) = file_system {
        let fs = plan.register()?;
        plan.push(Step::Fspick { mount: out.into(), out: fs });
        options(fs, &changed.options, plan)?;
        let key = if is_read_only && !is_late { c"ro" } else { c"rw" };
        plan.push(Step::FsconfigFlag { fs, key });
        plan.push(Step::Reconfigure { fs });
        plan.release(fs);
    }
    if is_late && is_read_only {
        late.0.push((plan.origin(), out));
    } else {
        plan.release(out);
    }
    Ok(())
}
