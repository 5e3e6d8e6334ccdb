//! Runs the program in the file system of an image.
//!
//! The image is mounted below the program's own file system. It gets the program's own directories and its bundle's
//! mounts, and then becomes the root of the mount namespace, which removes the host's files.
//!
//! It does not become the root earlier. While the old root is still mounted on the new one, `..` in the new root leads
//! to the host's files. `RESOLVE_IN_ROOT` does not prevent this (fs/namei.c, `follow_dotdot`).
//!
//! Paths below the new root are resolved in it, whatever symlinks the image has. Missing mount points are created in a
//! layer above, unless the image is writable.

use super::landlock::LandlockRules;
use super::layers::{layer, make_read_only, mount_on_own, set_all};
use super::stack::stack;
use crate::bundle::{ALWAYS, is_own};
use crate::host::{Host, HostFile};
use crate::profile::{Image, PathAccess, Root, Show};
use husk_bundle::container::{Mount, Source};
use husk_plan::Origin;
use husk_plan::{Builder, Error};
use husk_script::sys::file::{Mode, OFlags};
use husk_script::sys::mount::{AttributeChange, Extent, MountAttributes, MountPropagationFlags};
use husk_script::{MountPoint, Reg, Step};
use std::path::Path;

/// The parts of an image, opened before any part of the host is covered.
pub(crate) struct Opened<'p> {
    image: &'p Image,
    files: Files<'p>,
    /// The bind mounts, each with its index in the list of mounts.
    binds: Vec<(usize, Reg)>,
    /// The host's paths that the image shows.
    shown: Vec<(&'p Show, Reg)>,
}

/// The opened files of an image.
enum Files<'p> {
    /// A detached copy of its mounts.
    Tree(Reg),
    /// The directory above all of these layers.
    Layers(Reg, &'p [std::path::PathBuf]),
}

/// A mounted image that will become the program's root.
pub(crate) struct Placed<'p> {
    opened: Opened<'p>,
    pub(crate) root: Reg,
    is_layered: bool,
}

/// Returns the mounts of an image's bundle that the sandbox does not provide itself, with their indices.
pub(crate) fn mounts(image: &Image) -> impl Iterator<Item = (usize, &Mount)> {
    let mounts = image.bundle.iter().flat_map(|container| container.mounts.iter().enumerate());
    mounts.filter(|(_, mount)| !is_own(mount) && !matches!(mount.source, Source::Cgroup { .. }))
}

/// Returns whether a mount shows the devices of a network namespace.
pub(crate) fn is_sysfs(mount: &Mount) -> bool {
    matches!(&mount.source, Source::New { fstype, .. } if fstype == "sysfs")
}

/// Opens the root of an image on the host, or the directory above its layers.
pub(crate) fn open(image: &Image, plan: &mut Builder<'_>) -> Result<Reg, Error> {
    let path = match &image.root {
        Root::Directory(directory) => directory,
        Root::Layers(layers) => super::stack::above(layers),
    };
    let (path, out) = (plan.at("rootfs").text(path)?, plan.register()?);
    plan.push(Step::Open { path, flags: OFlags::PATH | OFlags::DIRECTORY, mode: Mode::empty(), out });
    Ok(out)
}

/// Refuses to show a path of an image of layers in a way that is not possible. Others share the layers, and before they
/// are stacked the path leads to nothing.
pub(crate) fn check<'s>(
    image: &Image,
    shown: impl Iterator<Item = (&'s Show, &'s HostFile)>,
    is_covered: impl Fn(&Path) -> bool,
    plan: &mut Builder<'_>,
) -> Result<(), Error> {
    if !image.has_layers() {
        return Ok(());
    }
    const WRITTEN: &str = "no change to the image can be kept, because others share its layers; it is writable \
                           without --write, and husk discards the changes";
    if image.access == PathAccess::Write {
        return Err(plan.at("rootfs").error(WRITTEN));
    }
    for (show, found) in shown {
        let origin = |field| Origin::with_path(field, &found.path);
        match show.access {
            PathAccess::Write => return Err(plan.at(origin("write")).error(WRITTEN)),
            PathAccess::Read | PathAccess::Overlay if is_covered(&found.path) => {
                return Err(plan
                    .at(origin("read"))
                    .error("a private directory covers these files of the image"));
            }
            _ => {}
        }
    }
    Ok(())
}

impl<'p> Opened<'p> {
    pub(crate) fn new(image: &'p Image, root: Reg, plan: &mut Builder<'_>) -> Result<Self, Error> {
        let mut binds = Vec::new();
        for (index, mount) in mounts(image) {
            let Source::Bind { path, extent } = &mount.source else { continue };
            plan.at(Origin::mount(index, &mount.destination));
            let (path, extent, out) = (plan.text(path)?, *extent, plan.register()?);
            plan.push(Step::OpenTree { path, extent, out });
            let AttributeChange { set, clear } = mount.attributes;
            let change = AttributeChange { set: set | ALWAYS, clear };
            let (mount, propagation) = (out.into(), MountPropagationFlags::PRIVATE);
            plan.push(Step::MountSetattr { mount, extent, change, propagation });
            binds.push((index, out));
        }
        let mut shown = Vec::new();
        for show in &image.shown {
            plan.at(Origin::with_path("show", &show.path));
            let (path, out) = (plan.text(&show.path)?, plan.register()?);
            plan.push(Step::OpenTree { path, extent: Extent::All, out });
            set_all(out, ALWAYS | MountAttributes::RDONLY, plan);
            shown.push((show, out));
        }
        plan.at("rootfs");
        let files = match &image.root {
            Root::Layers(layers) => Files::Layers(root, layers),
            Root::Directory(_) => {
                let tree = plan.register()?;
                plan.push(Step::OpenTreeOf { fd: root.into(), extent: Extent::All, out: tree });
                let is_written = image.access == PathAccess::Write;
                let set = if is_written { ALWAYS } else { ALWAYS | MountAttributes::RDONLY };
                set_all(tree, set, plan);
                plan.release(root);
                Files::Tree(tree)
            }
        };
        Ok(Self { image, files, binds, shown })
    }

    /// Mounts the image below the program's own file system, which is the working directory.
    pub(crate) fn place(
        self,
        host: &Host,
        rules: &LandlockRules,
        plan: &mut Builder<'_>,
    ) -> Result<Placed<'p>, Error> {
        let access = self.image.access;
        let is_layered = access == PathAccess::Overlay || (access == PathAccess::Read && host.lacks_places);
        plan.at("rootfs");
        plan.push(Step::Mkdir { path: c"root", mode: Mode::from_raw_mode(0o755), tolerate: None });
        let tree = match self.files {
            Files::Tree(tree) => tree,
            Files::Layers(above, layers) => {
                let root = stack(layers, above, plan)?;
                if access == PathAccess::Overlay {
                    rules.allow(root, plan);
                }
                return Ok(Placed { opened: self, root, is_layered: true });
            }
        };
        mount_on_own(tree, "root", plan)?;
        if !is_layered {
            if access == PathAccess::Write {
                rules.allow(tree, plan);
            }
            return Ok(Placed { opened: self, root: tree, is_layered });
        }
        plan.release(tree);
        let root = layer("root", "root", 0o755, plan)?;
        if access == PathAccess::Overlay {
            rules.allow(root, plan);
        }
        mount_on_own(root, "root", plan)?;
        Ok(Placed { opened: self, root, is_layered })
    }
}

impl<'p> Placed<'p> {
    /// Returns the paths of the host that the image shows.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &'p Show> + use<'p> {
        self.opened.image.shown.iter()
    }

    /// Creates the working directory if it is missing and the image can be written to.
    pub(crate) fn make_places(&self, host: &Host, plan: &mut Builder<'_>) -> Result<(), Error> {
        if self.opened.image.access == PathAccess::Read && !self.is_layered {
            return Ok(());
        }
        let (target, out) = (plan.target(&host.cwd)?, plan.register()?);
        plan.push(Step::EnsureDirectory { root: self.root.into(), target, out });
        plan.release(out);
        Ok(())
    }

    /// Applies the mounts, masked paths and read-only paths of the bundle. `sysfs` is one that has already been created.
    pub(crate) fn furnish(
        &self,
        null: Reg,
        sysfs: Option<Reg>,
        rules: &LandlockRules,
        plan: &mut Builder<'_>,
    ) -> Result<(), Error> {
        let image = self.opened.image;
        let mut sysfs = sysfs;
        for &(show, mount) in &self.opened.shown {
            let target = plan.at(Origin::with_path("show", &show.path)).target(&show.path)?;
            let root = self.root.into();
            plan.push(Step::Attach { mount, root, target, place: MountPoint::Alike });
        }
        self.opened.shown.iter().for_each(|(_, mount)| plan.release(*mount));
        for (index, mount) in mounts(image) {
            plan.at(Origin::mount(index, &mount.destination));
            let bound = self.opened.binds.iter().find(|(bound, _)| *bound == index);
            let made = match (&mount.source, bound) {
                (Source::New { .. }, _) if is_sysfs(mount) && sysfs.is_some() => match sysfs.take() {
                    Some(sysfs) => sysfs,
                    None => continue,
                },
                (Source::New { fstype, options, .. }, _) => new(fstype, options, mount.attributes.set, plan)?,
                (_, Some((_, out))) => *out,
                _ => continue,
            };
            rules.allow_mount(made, mount.attributes.set, plan);
            let target = plan.target(&mount.destination)?;
            plan.push(Step::Attach { mount: made, root: self.root.into(), target, place: MountPoint::Alike });
            plan.release(made);
        }
        let Some(container) = &image.bundle else { return Ok(()) };
        if !container.masked_paths.is_empty() {
            plan.at("linux.maskedPaths");
            let empty = plan.fresh_register()?;
            for path in &container.masked_paths {
                let path = plan.target(path)?.path;
                plan.push(Step::Mask { root: self.root.into(), path, null: null.into(), empty });
            }
        }
        plan.at("linux.readonlyPaths");
        for path in &container.readonly_paths {
            let path = plan.target(path)?.path;
            plan.push(Step::ReadOnly { root: self.root.into(), path });
        }
        Ok(())
    }

    /// Makes the image the root and unmounts the host's files.
    pub(crate) fn enter(self, plan: &mut Builder<'_>) {
        plan.at("rootfs");
        if self.is_layered && self.opened.image.access == PathAccess::Read {
            make_read_only(self.root, plan);
        }
        plan.push(Step::Fchdir { directory: self.root.into() });
        // The old root lands on top of the new one, and is unmounted before any other step.
        plan.push(Step::PivotRoot { new_root: c".", put_old: c"." });
        plan.push(Step::UmountDetach { target: c"." });
    }
}

/// Creates a file system and returns its detached mount.
fn new(fstype: &str, options: &[String], set: MountAttributes, plan: &mut Builder<'_>) -> Result<Reg, Error> {
    let (fstype, fs) = (plan.text(fstype)?, plan.register()?);
    plan.push(Step::Fsopen { fstype, out: fs });
    husk_plan::options(fs, options, plan)?;
    plan.push(Step::Fsmount { fs, attributes: set | ALWAYS });
    Ok(fs)
}
