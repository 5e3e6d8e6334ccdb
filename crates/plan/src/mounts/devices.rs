//! Plans `/dev`: the nodes that every container has, those of `linux.devices`, and the usual links.

use crate::builder::{Builder, Error, mode};
use crate::host::Host;
use crate::mounts::attach::attr;
use crate::namespaces;
use husk_bundle::Container;
use husk_bundle::container::{Device, DeviceKind, Mount, NamespaceKind, Source};
use husk_script::sys::at::Node;
use husk_script::sys::mount::Extent;
use husk_script::sys::{Errno, Gid, Uid};
use husk_script::{MountPoint, Reg, Step};
use std::ffi::CStr;
use std::path::{Path, PathBuf};

/// The nodes of every container (config-linux.md, "Default Devices").
const DEFAULTS: &[(&str, u32, u32)] =
    &[("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

/// The links in /dev that every program can expect, by their names (config-linux.md, "Default Devices").
pub const LINKS: [(&CStr, &CStr); 5] = [
    (c"fd", c"/proc/self/fd"),
    (c"stdin", c"/proc/self/fd/0"),
    (c"stdout", c"/proc/self/fd/1"),
    (c"stderr", c"/proc/self/fd/2"),
    (c"ptmx", c"pts/ptmx"),
];

/// Returns the paths of the nodes that every container has.
pub fn default_devices() -> impl Iterator<Item = PathBuf> {
    DEFAULTS.iter().map(|(name, ..)| Path::new("/dev").join(name))
}

pub(crate) fn create(
    container: &Container,
    host: &Host,
    root: Reg,
    plan: &mut Builder<'_>,
) -> Result<(), Error> {
    // If /dev is the host's, it has its nodes already and they must not be changed.
    let is_hosts =
        container.mounts.iter().any(|mount| covers_dev(mount) && matches!(mount.source, Source::Bind { .. }));
    // Without a mount namespace the nodes would be made in the image and stay there.
    if is_hosts || !namespaces::has(container, NamespaceKind::Mount) {
        plan.at("linux.devices");
        return match container.devices.is_empty() || is_hosts {
            true => Ok(()),
            false => Err(plan.error("is not possible without a private MNT namespace")),
        };
    }
    plan.at("linux.devices");
    let dev = plan.register()?;
    let target = plan.target(Path::new("/dev"))?;
    plan.push(Step::EnsureDirectory { root: root.into(), target, out: dev });
    let has_user_namespace = namespaces::has(container, NamespaceKind::User);
    let defaults = DEFAULTS.iter().map(|&(name, major, minor)| Device {
        path: Path::new("/dev").join(name),
        kind: DeviceKind::Character(major, minor),
        mode: 0o666,
        uid: 0,
        gid: 0,
    });
    let defaults =
        defaults.filter(|default| container.devices.iter().all(|device| device.path != default.path));
    let asked = container.devices.iter().cloned().enumerate();
    let asked = asked.map(|(index, device)| (Some(index), device));
    for (index, device) in defaults.map(|device| (None, device)).chain(asked) {
        // /dev/ptmx is one of the links made below.
        if device.path == Path::new("/dev/ptmx") {
            continue;
        }
        plan.at(format!("linux.devices {}", device.path.display()));
        if device.kind == DeviceKind::Fifo || makes_nodes(host) && !has_user_namespace {
            make(&device, root, dev, plan)?;
            continue;
        }
        let node = match index {
            // Every host has these nodes, with the numbers and permissions that a container needs.
            None => show(&device, &device.path, plan)?,
            Some(index) if makes_nodes(host) => request(container, index, plan)?,
            Some(index) => match host.nodes.get(index) {
                Some(Some(path)) => show(&device, path, plan)?,
                _ => {
                    let Device { kind, .. } = device;
                    let why = "has no node of it, and in a user namespace none can be made";
                    return Err(plan.error(format!("{kind}: the host {why}")));
                }
            },
        };
        let target = plan.target(&device.path)?;
        plan.push(Step::Attach { mount: node, root: root.into(), target, place: MountPoint::File });
        plan.release(node);
    }
    plan.at("linux.devices");
    // If the root is the host's own root, so is /dev, and nothing in it is removed.
    let stays = container.mounts.iter().any(covers_dev) || container.rootfs == Path::new("/");
    for (name, target) in LINKS {
        let directory = dev.into();
        if name == c"ptmx" && !stays {
            // A /dev/ptmx of the image would belong to another devpts instance.
            plan.push(Step::UnlinkIn { directory, name });
        }
        plan.push(Step::SymlinkIn { directory, name, target, tolerate: Some(Errno::EXIST) });
    }
    plan.release(dev);
    Ok(())
}

/// Whether the container's `/dev/null` is a null device that can be opened.
pub(crate) fn has_null(container: &Container) -> bool {
    const NULL: DeviceKind = DeviceKind::Character(1, 3);
    let dev = container.mounts.iter().rfind(|mount| covers_dev(mount));
    let is_ours =
        |mount: &Mount| matches!(mount.source, Source::New { .. }) && mount.attributes.set & attr::NODEV == 0;
    dev.is_some_and(is_ours)
        && container.devices.iter().all(|device| device.path != Path::new("/dev/null") || device.kind == NULL)
}

fn covers_dev(mount: &Mount) -> bool {
    mount.destination.components().eq(Path::new("/dev").components())
}

fn make(device: &Device, root: Reg, dev: Reg, plan: &mut Builder<'_>) -> Result<(), Error> {
    let parent = device.path.parent().unwrap_or(Path::new("/"));
    let Some(name) = device.path.file_name() else { return Err(plan.error("names no file")) };
    let name = plan.text(name)?;
    let directory = if parent == Path::new("/dev") {
        dev
    } else {
        let out = plan.register()?;
        let target = plan.target(parent)?;
        plan.push(Step::EnsureDirectory { root: root.into(), target, out });
        plan.release(out);
        out
    };
    let (uid, gid) = (Uid::from_raw(device.uid), Gid::from_raw(device.gid));
    let node = node(device);
    plan.push(Step::Mknod { directory: directory.into(), name, node, mode: mode(device.mode), uid, gid });
    Ok(())
}

/// Whether the caller can make device nodes, which requires root in the initial user namespace.
#[must_use]
pub fn makes_nodes(host: &Host) -> bool {
    host.euid == 0 && host.is_first_user_namespace
}

/// Opens a node of the host as a detached mount, which keeps the host's owner and mode.
fn show(device: &Device, path: &Path, plan: &mut Builder<'_>) -> Result<Reg, Error> {
    let (path, out) = (plan.text(path)?, plan.register()?);
    plan.push(Step::OpenDevice { path, node: node(device), out });
    // Read-only: if the host's root has an id in the container, the container's root could otherwise change the
    // device's owner and permissions. Writing to the device still works on a read-only mount.
    let (mount, set) = (out.into(), attr::RDONLY | attr::NOSUID | attr::NOEXEC);
    plan.push(Step::MountSetattr { mount, extent: Extent::Top, set, clear: 0, propagation: 0 });
    Ok(out)
}

/// Asks the parent to make a node, because the container's root cannot.
fn request(container: &Container, index: usize, plan: &mut Builder<'_>) -> Result<Reg, Error> {
    let out = plan.register()?;
    // Devices are numbered after the mounts.
    let mount = u32::try_from(container.mounts.len().saturating_add(index));
    let mount = mount.map_err(|_| plan.error("one device too many"))?;
    plan.push(Step::RequestTree { mount, out });
    Ok(out)
}

fn node(device: &Device) -> Node {
    match device.kind {
        DeviceKind::Character(major, minor) => Node::Character(major, minor),
        DeviceKind::Block(major, minor) => Node::Block(major, minor),
        DeviceKind::Fifo => Node::Fifo,
    }
}
