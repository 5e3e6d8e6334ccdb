//! The file system of a program whose inputs are declared. It begins empty and gets the files of a view.
//!
//! Like an image, it becomes the root last. Nothing of the host remains: its mounts are unmounted, and a path that is not
//! in the view does not exist.

use super::files::{DEVICES, HostPath, attach, cover, fill_dev, hide, overlay, own, proc, put, read_only};
use super::landlock::LandlockRules;
use super::layers::{make_read_only, mkdir, mount_on_own, set_all};
use super::view::{self, Cover};
use crate::bundle::ALWAYS;
use crate::cache::view::View;
use crate::host::{Host, HostFile, Procfs};
use crate::profile::{PathAccess, Profile};
use husk_plan::{Builder, Error, Origin};
use husk_script::sys::Errno;
use husk_script::sys::file::{Mode, OFlags};
use husk_script::sys::mount::Extent;
use husk_script::{MountPoint, Reg, Step};
use std::ffi::CStr;
use std::path::Path;

/// The name of the root in the program's own file system.
const ROOT: &str = "root";

/// A machine's own file may have its name, which differs between containers.
const HOSTS: &[u8] = b"127.0.0.1\tlocalhost\n::1\tlocalhost\n";

/// Builds the file system of a view and enters the working directory. Returns the null device, open for reading and
/// writing.
pub(super) fn files(
    profile: &Profile,
    view: &View,
    host: &Host,
    rules: &LandlockRules,
    plan: &mut Builder<'_>,
) -> Result<Reg, Error> {
    let covers = view::covers(host);
    let mut places = view::covers(host);
    // Everything that is not below another cover.
    places.push(Cover { path: Path::new("/"), name: ROOT, mode: 0o755 });
    let proc_tree = HostFile { path: "/proc".into(), is_directory: true, mode: 0o755 };

    let mut asked = Vec::new();
    let shown = || profile.shown.iter().zip(&host.found);
    for (_, found) in shown().filter(|(show, _)| show.access == PathAccess::Write) {
        plan.at(Origin::with_path("write", &found.path));
        let tree = HostPath::open(found, None, plan)?;
        set_all(tree.mount, ALWAYS, plan);
        rules.allow(tree.mount, plan);
        asked.push(tree);
    }
    let devices = open_devices(host, plan)?;
    let host_root = read_only(plan)?;
    plan.release(host_root);

    let is_tree = |path: &Path| view.trees.iter().any(|tree| path.starts_with(&tree.path));
    // A socket or device is shown only on request. No key contains it, so its test is not remembered.
    let special = shown().filter(|(show, found)| show.access == PathAccess::Read && !found.is_directory);
    for (_, found) in special.filter(|(_, found)| !is_tree(&found.path)) {
        plan.at(Origin::with_path("read", &found.path));
        let tree = HostPath::open(found, None, plan)?;
        rules.allow_sockets(tree.mount, plan);
        asked.push(tree);
    }
    let is_asked = |path: &Path| asked.iter().any(|tree| path.starts_with(tree.path));
    let callers_proc = (host.procfs == Procfs::Callers).then_some(&proc_tree);
    let overlays = shown().filter(|(show, _)| show.access == PathAccess::Overlay);
    let overlays: Vec<_> = overlays.map(|(_, found)| found).collect();
    let is_in_overlay = |tree: &&HostFile| {
        overlays.iter().any(|found| tree.path != found.path && tree.path.starts_with(&found.path))
    };
    let below = overlays.iter().copied().filter(|found| !is_tree(&found.path));
    let trees = view.trees.iter().filter(|tree| !is_in_overlay(tree)).chain(below).chain(callers_proc);
    let trees: Vec<_> = trees.filter(|tree| !is_asked(&tree.path)).collect();
    let points = trees.iter().map(|tree| (tree.path.as_path(), tree.is_directory));
    let points: Vec<_> = points.chain(asked.iter().map(|tree| (tree.path, tree.is_directory))).collect();
    let links: Vec<_> = view.links.iter().filter(|link| !is_asked(&link.path)).collect();
    // No input is in /dev, and the devices are open.
    own((profile, c"/dev"), host, &places, &points, &links, plan)?;
    plan.at("inputs");
    hosts(plan)?;
    let empty = empty_directories(view, plan)?;

    let root = plan.register()?;
    plan.push(Step::OpenTree { path: c"root", extent: Extent::Top, out: root });
    mount_on_own(root, ROOT, plan)?;
    let dev = cover(&covers, root, true, rules, plan)?;
    plan.at("inputs");
    // The names still lead to the host's files, which are read-only now.
    for tree in trees {
        let tree = HostPath::open(tree, None, plan)?;
        attach(tree.mount, tree.path, root, plan)?;
        plan.release(tree.mount);
    }
    for tree in &asked {
        put(tree, root, plan)?;
    }
    for (index, found) in overlays.into_iter().enumerate() {
        plan.at(Origin::with_path("overlay", &found.path));
        overlay(&index.to_string(), found, root, rules, plan)?;
    }
    plan.at("inputs");
    for (path, mount) in empty {
        rules.allow(mount, plan);
        let target = plan.target(path)?;
        plan.push(Step::Attach { mount, root: root.into(), target, place: MountPoint::Ordinary });
    }
    let null = fill_dev(dev, devices, host, rules, plan)?;
    if host.procfs == Procfs::Own {
        proc(profile, host, (root, null), rules, plan)?;
    }
    // Inputs that are hidden are not in the view. Only directories of the system are still shown.
    let is_system = |path: &Path| view.system.iter().any(|system| path.starts_with(system));
    for (_, found) in
        shown().filter(|(show, found)| show.access == PathAccess::Hide && is_system(&found.path))
    {
        hide(found, root, null, plan)?;
    }
    plan.at("cwd");
    let (target, cwd) = (plan.target(&host.cwd)?, plan.register()?);
    plan.push(Step::EnsureDirectory { root: root.into(), target, out: cwd });
    plan.at("inputs");
    make_read_only(root, plan);
    plan.push(Step::Fchdir { directory: root.into() });
    // The old root lands on top of the new one, and is unmounted before any other step.
    plan.push(Step::PivotRoot { new_root: c".", put_old: c"." });
    plan.push(Step::UmountDetach { target: c"." });
    plan.at("cwd").push(Step::Fchdir { directory: cwd.into() });
    plan.release(root);
    plan.release(cwd);
    Ok(null)
}

/// Opens the devices that every program can expect, with their names in `/dev`.
pub(super) fn open_devices(host: &Host, plan: &mut Builder<'_>) -> Result<Vec<(&'static CStr, Reg)>, Error> {
    plan.at("dev");
    let mut devices = Vec::with_capacity(DEVICES.len());
    for &(path, name) in DEVICES {
        let mount = plan.register()?;
        plan.push(Step::OpenTree { path, extent: Extent::Top, out: mount });
        // The devices belong to host root, which could change their permissions without a capability. A read-only mount
        // prevents that, and still allows writing to a device.
        if host.uid == 0 {
            make_read_only(mount, plan);
        }
        devices.push((name, mount));
    }
    Ok(devices)
}

/// Writes /etc/hosts with the names that a sandbox can resolve.
fn hosts(plan: &mut Builder<'_>) -> Result<(), Error> {
    let (directory, out) = (plan.text(Path::new(ROOT).join("etc"))?, plan.register()?);
    let (mode, tolerate) = (Mode::from_raw_mode(0o755), Some(Errno::EXIST));
    plan.push(Step::Mkdir { path: directory, mode, tolerate });
    let path = plan.text(Path::new(ROOT).join("etc/hosts"))?;
    let flags = OFlags::CREATE | OFlags::WRONLY;
    plan.push(Step::Open { path, flags, mode: Mode::from_raw_mode(0o644), out });
    let bytes = plan.slice(HOSTS);
    plan.push(Step::Write { fd: out.into(), bytes });
    plan.push(Step::Close { fd: out.into() });
    plan.release(out);
    Ok(())
}

/// Makes the empty directories of a view in the program's own file system, and opens them.
fn empty_directories<'v>(view: &'v View, plan: &mut Builder<'_>) -> Result<Vec<(&'v Path, Reg)>, Error> {
    let mut opened = Vec::new();
    for (index, path) in view.empty.iter().enumerate() {
        let name = format!("empty-{index}");
        mkdir(Path::new(&name), 0o755, plan)?;
        let (path_of_own, out) = (plan.text(&*name)?, plan.register()?);
        plan.push(Step::OpenTree { path: path_of_own, extent: Extent::Top, out });
        opened.push((path.as_path(), out));
    }
    Ok(opened)
}
