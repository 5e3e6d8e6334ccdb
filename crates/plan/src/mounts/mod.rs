//! Everything that is mounted, and the root file system that it is mounted in. Here are `mounts`, one after the other:
//! made where nobody sees it, configured, put in place by descriptor.

pub(crate) mod attach;
mod cgroup;
pub(crate) mod devices;
mod legacy;
pub(crate) mod masks;
pub(crate) mod places;
pub(crate) mod rootfs;

use crate::builder::{Builder, Error};
use crate::namespaces;
use attach::{Around, New, attr, change, options, propagate, put};
use husk_bundle::container::{Attributes, Mount, MountIdMapping, NamespaceKind, Reconfiguration, Source};
use husk_script::sys::mount::Extent;
use husk_script::{Place, Reg, Step, Target};
use std::path::Path;
use std::rc::Rc;

/// Mounts that become read-only when everything is in them that belongs there.
#[derive(Default)]
pub(crate) struct Late(Vec<(Rc<str>, Reg)>);

impl Late {
    pub(crate) fn seal(self, plan: &mut Builder<'_>) {
        let (set, extent) = (attr::RDONLY, Extent::Top);
        for (origin, mount) in self.0 {
            plan.at(origin);
            plan.push(Step::MountSetattr { mount: mount.into(), extent, set, clear: 0, propagation: 0 });
            plan.release(mount);
        }
    }
}

/// Mounts everything. What is left to be done is to [seal](Late::seal) what is returned.
pub(crate) fn attach(around: &Around<'_>, plan: &mut Builder<'_>) -> Result<Late, Error> {
    let mut late = Late::default();
    for (index, mount) in around.container.mounts.iter().enumerate() {
        plan.at(format!("mounts[{index}] {}", mount.destination.display()));
        // As runc: a place that is written as it is on the host is meant to be that very one.
        let below = mount.destination.strip_prefix(&around.container.rootfs);
        let target = plan.target(below.unwrap_or(&mount.destination))?;
        let place = place(mount, target, plan)?;
        match &mount.source {
            Source::Bind { path, recursive } => {
                let extent = if *recursive { Extent::All } else { Extent::Top };
                let tree = open_tree(index, path, extent, mount.id_mapping.as_ref(), around, plan)?;
                change(tree, mount.attributes, plan);
                put(tree, place, target, mount, around.root, plan);
                plan.release(tree);
            }
            Source::New { fstype, name, options, copy_up } => {
                let is_late = mount.attributes.set & attr::RDONLY != 0 && is_filled(mount, fstype);
                let mut attributes = mount.attributes;
                if is_late {
                    attributes.set &= !attr::RDONLY;
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

/// Whether something is put into it after it is mounted: devices, or what is mounted below it.
fn is_filled(mount: &Mount, fstype: &str) -> bool {
    fstype == "tmpfs" || mount.destination == Path::new("/dev")
}

/// What a mount is put on, if it may be put there at all. What leads into procfs without saying so, the
/// child finds.
fn place(mount: &Mount, target: Target<'_>, plan: &Builder<'_>) -> Result<Place, Error> {
    /// What programs such as lxcfs stand in for, as every runtime has it.
    const STAND_INS: &[&str] = &[
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
        return Err(plan.error("a mount on top of the root file system"));
    }
    let is = |wanted| matches!(&mount.source, Source::New { fstype, .. } if fstype == wanted);
    match path.strip_prefix("proc").map(|below| below.strip_prefix('/').unwrap_or(below)) {
        Some("") => match &mount.source {
            _ if is("proc") => Ok(Place::Ordinary),
            Source::Bind { .. } | Source::Remount { .. } => Ok(Place::Procfs),
            _ => Err(plan.error("\"/proc\" cannot be mounted because it is not of type proc")),
        },
        Some(below) if path.as_bytes().get(4) == Some(&b'/') => {
            if STAND_INS.contains(&below) {
                return Ok(Place::StandIn);
            }
            Err(plan.error(format!("\"/{path}\" cannot be mounted because it is inside /proc")))
        }
        _ => Ok(match &mount.source {
            _ if is("proc") || is("sysfs") => Place::Ordinary,
            Source::Bind { .. } => Place::Alike,
            _ => Place::Directory,
        }),
    }
}

/// The label of its files, for the types that take one where they are mounted. procfs and sysfs label
/// their own, and mqueue takes one later.
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

/// Makes a new file system for a place.
fn make<'b>(new: &New<'_>, root: Reg, target: Target<'b>, plan: &mut Builder<'b>) -> Result<Reg, Error> {
    if let Some(data) = legacy::data(new, plan)? {
        return legacy::mount(new, &data, root, plan);
    }
    let fs = new.configure(plan)?;
    // As runc: what covers a directory of the image looks like it.
    if new.fstype == "tmpfs" && !new.options.iter().any(|option| option.starts_with("mode=")) {
        plan.push(Step::FsconfigModeOf { fs, root: root.into(), path: target.path });
    }
    plan.push(Step::Fsmount { fs, attributes: new.attributes.set });
    Ok(fs)
}

/// A copy of what is to be shown.
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
    let mount = u32::try_from(index).map_err(|_| plan.error("one mount too many"))?;
    let path = plan.text(path)?;
    plan.push(match ids {
        // It takes privileges over the file system.
        Some(_) => Step::RequestTree { mount, out },
        // The container's root is nobody on the host, who may not look everywhere.
        None if has_user_namespace && is_root => Step::OpenTreeOrRequest { path, extent, mount, out },
        None => Step::OpenTree { path, extent, out },
    });
    Ok(out)
}

/// Changes what is mounted already: its mount, and unless that is all that is meant its file system.
fn remount<'b>(
    mount: &Mount,
    file_system: Option<&Reconfiguration>,
    target: Target<'b>,
    root: Reg,
    late: &mut Late,
    plan: &mut Builder<'b>,
) -> Result<(), Error> {
    let out = plan.register()?;
    plan.push(Step::OpenInRoot { root: root.into(), path: target.path, out });
    let is_late = file_system.is_some_and(|changed| is_filled(mount, &changed.fstype));
    let mut attributes = mount.attributes;
    let is_read_only = attributes.set & attr::RDONLY != 0;
    if is_late {
        attributes.set &= !attr::RDONLY;
    }
    change(out, attributes, plan);
    let Attributes { set, clear } = mount.recursive_attributes;
    if (set, clear) != (0, 0) {
        plan.push(Step::MountSetattr { mount: out.into(), extent: Extent::All, set, clear, propagation: 0 });
    }
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
