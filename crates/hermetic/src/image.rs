//! A program in the file system of an image.
//!
//! The image becomes the root of the program's mount namespace, with the program's own directories and what its
//! bundle mounts on it, and the host's files are gone from there. Places below the new root are looked up in it,
//! whatever symlinks an image has. Places that it lacks are made in a layer above, unless it is to be written to.

use crate::bundle::is_own;
use crate::host::Host;
use crate::plan::{NODEV, NOSUID, RDONLY, layer, open};
use crate::profile::{Access, Image};
use crate::view::Cover;
use husk_bundle::container::{Mount, Source};
use husk_plan::{Builder, Error};
use husk_script::sys::file::{Mode, OFlags};
use husk_script::sys::mount::{Extent, MountPropagationFlags};
use husk_script::{Place, Reg, Step};
use std::ffi::CStr;
use std::path::Path;

const PRIVATE: u64 = MountPropagationFlags::PRIVATE.bits() as u64;

/// What an image consists of, opened before anything of the host is covered.
pub(crate) struct Opened<'p> {
    image: &'p Image,
    tree: Reg,
    /// What is bound, with its place in the list of mounts.
    binds: Vec<(usize, Reg)>,
}

/// An image whose root is the program's.
pub(crate) struct Entered<'p> {
    opened: Opened<'p>,
    root: Reg,
    is_layered: bool,
}

/// The mounts of an image's bundle that are not the sandbox's own.
pub(crate) fn mounts(image: &Image) -> impl Iterator<Item = (usize, &Mount)> {
    let mounts = image.bundle.iter().flat_map(|container| container.mounts.iter().enumerate());
    mounts.filter(|(_, mount)| !is_own(mount) && mount.source != Source::Cgroup)
}

impl<'p> Opened<'p> {
    pub(crate) fn new(image: &'p Image, plan: &mut Builder<'_>) -> Result<Self, Error> {
        let mut binds = Vec::new();
        for (index, mount) in mounts(image) {
            let Source::Bind { path, recursive } = &mount.source else { continue };
            plan.at(format!("mounts[{index}] {}", mount.destination.display()));
            let (path, out) = (plan.text(path)?, plan.register()?);
            let extent = if *recursive { Extent::All } else { Extent::Top };
            plan.push(Step::OpenTree { path, extent, out });
            let set = mount.attributes.set | NOSUID | NODEV;
            let (mount, clear) = (out.into(), mount.attributes.clear);
            plan.push(Step::MountSetattr { mount, extent, set, clear, propagation: PRIVATE });
            binds.push((index, out));
        }
        plan.at("rootfs");
        let tree = open(&image.directory, plan)?;
        let set = if image.access == Access::Write { NOSUID | NODEV } else { RDONLY | NOSUID | NODEV };
        set_all(tree, set, plan);
        // No mount that others hear of can be left behind (pivot_root(2)).
        let host = directory(c"/", plan)?;
        set_all(host, 0, plan);
        plan.release(host);
        Ok(Self { image, tree, binds })
    }

    /// Makes it the root, from within the directory that has the program's own. That stays the working directory;
    /// the host's files stay beneath it until [`Entered::leave`].
    pub(crate) fn enter(
        self,
        host: &Host,
        covers: &[Cover],
        plan: &mut Builder<'_>,
    ) -> Result<Entered<'p>, Error> {
        let access = self.image.access;
        let is_layered = access == Access::Overlay || (access == Access::Read && host.lacks_places);
        plan.at("rootfs");
        if covers.iter().all(|cover| cover.path != Path::new("/dev")) {
            return Err(plan.error("has something else than a directory at /dev"));
        }
        let own = directory(c".", plan)?;
        plan.push(Step::Mkdir { path: c"root", mode: Mode::from_raw_mode(0o755), tolerate: None });
        let place = directory(c"root", plan)?;
        plan.push(Step::MoveMount { mount: self.tree.into(), target: place.into() });
        plan.release(place);
        plan.release(self.tree);
        if is_layered {
            layer("root", Path::new("root"), plan)?;
        }
        let root = directory(c"root", plan)?;
        for cover in covers {
            let (path, out) = (plan.text(cover.name)?, plan.register()?);
            plan.push(Step::OpenTree { path, extent: Extent::Top, out });
            let target = plan.target(&cover.path)?;
            plan.push(Step::Attach { mount: out, root: root.into(), target, place: Place::Alike });
            plan.release(out);
        }
        if access != Access::Read || is_layered {
            for path in ["/proc".as_ref(), host.cwd.as_path()] {
                let (target, out) = (plan.target(path)?, plan.register()?);
                plan.push(Step::EnsureDirectory { root: root.into(), target, out });
                plan.release(out);
            }
        }
        // The old root lands on top of the new one.
        plan.push(Step::Fchdir { directory: root.into() });
        plan.push(Step::PivotRoot { new_root: c".", put_old: c"." });
        plan.push(Step::Fchdir { directory: own.into() });
        plan.release(own);
        Ok(Entered { opened: self, root, is_layered })
    }
}

impl Entered<'_> {
    /// What its bundle mounts and covers.
    pub(crate) fn furnish(&self, plan: &mut Builder<'_>) -> Result<(), Error> {
        let image = self.opened.image;
        for (index, mount) in mounts(image) {
            plan.at(format!("mounts[{index}] {}", mount.destination.display()));
            let bound = self.opened.binds.iter().find(|(bound, _)| *bound == index);
            let made = match (&mount.source, bound) {
                (Source::New { fstype, options, .. }, _) => new(fstype, options, mount.attributes.set, plan)?,
                (_, Some((_, out))) => *out,
                _ => continue,
            };
            let target = plan.target(&mount.destination)?;
            plan.push(Step::Attach { mount: made, root: self.root.into(), target, place: Place::Alike });
            plan.release(made);
        }
        let Some(container) = &image.bundle else { return Ok(()) };
        if !container.masked_paths.is_empty() {
            plan.at("linux.maskedPaths");
            let (null, empty) = (plan.register()?, plan.fresh_register()?);
            let (flags, mode) = (OFlags::PATH, Mode::empty());
            plan.push(Step::Open { path: c"/dev/null", flags, mode, out: null });
            for path in &container.masked_paths {
                let path = plan.target(path)?.path;
                plan.push(Step::Mask { root: self.root.into(), path, null: null.into(), empty });
            }
            plan.release(null);
        }
        plan.at("linux.readonlyPaths");
        for path in &container.readonly_paths {
            let path = plan.target(path)?.path;
            plan.push(Step::ReadOnly { root: self.root.into(), path });
        }
        Ok(())
    }

    /// Takes the host's files away.
    pub(crate) fn leave(self, plan: &mut Builder<'_>) {
        plan.at("rootfs");
        if self.is_layered && self.opened.image.access == Access::Read {
            let (mount, extent) = (self.root.into(), Extent::Top);
            plan.push(Step::MountSetattr { mount, extent, set: RDONLY, clear: 0, propagation: 0 });
        }
        plan.push(Step::Chdir { path: c"/" });
        plan.push(Step::UmountDetach { target: c"." });
        plan.release(self.root);
    }
}

fn set_all(tree: Reg, set: u64, plan: &mut Builder<'_>) {
    let (mount, extent) = (tree.into(), Extent::All);
    plan.push(Step::MountSetattr { mount, extent, set, clear: 0, propagation: PRIVATE });
}

fn directory(path: &'static CStr, plan: &mut Builder<'_>) -> Result<Reg, Error> {
    let out = plan.register()?;
    plan.push(Step::Open { path, flags: OFlags::PATH | OFlags::DIRECTORY, mode: Mode::empty(), out });
    Ok(out)
}

/// A new file system that is nowhere yet.
fn new(fstype: &str, options: &[String], set: u64, plan: &mut Builder<'_>) -> Result<Reg, Error> {
    let (fstype, fs) = (plan.text(fstype)?, plan.register()?);
    plan.push(Step::Fsopen { fstype, out: fs });
    husk_plan::options(fs, options, plan)?;
    plan.push(Step::Fsmount { fs, attributes: set | NOSUID | NODEV });
    Ok(fs)
}
