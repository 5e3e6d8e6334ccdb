//! Mounts the layers of an image as one overlay.
//!
//! overlayfs takes names, not descriptors, and a private directory may already cover the layers. So each layer gets a short
//! name in the program's own file system. All names together must fit in a page, which mount(2) takes; fsconfig(2) takes
//! 255 bytes. The names are below the old root, which is unmounted later.

use super::layers::mkdir;
use husk_plan::{Builder, Error};
use husk_script::sys::file::{Mode, OFlags};
use husk_script::sys::mount::{Extent, MountFlags};
use husk_script::{Reg, Step};
use std::path::{Path, PathBuf};

/// The directory of the changes, in the program's own file system.
pub(crate) const UPPER: &str = "upper-root";

/// Returns the nearest directory above all layers.
pub(super) fn above(layers: &[PathBuf]) -> &Path {
    let first = layers.first().and_then(|layer| layer.parent()).unwrap_or(Path::new("/"));
    let is_above = |path: &&Path| layers.iter().all(|layer| layer.starts_with(path) && layer != path);
    first.ancestors().find(is_above).unwrap_or(Path::new("/"))
}

/// Stacks layers, from the highest to the lowest, below a layer for changes. `above` is the opened directory above them.
/// The overlay is mounted on `root` in the program's own file system, which is the working directory.
pub(super) fn stack(layers: &[PathBuf], above: Reg, plan: &mut Builder<'_>) -> Result<Reg, Error> {
    let own = open_here(c".", plan)?;
    for name in [UPPER, "work-root", "layers"] {
        mkdir(Path::new(name), 0o755, plan)?;
    }
    let names: Vec<_> = (0..layers.len()).map(|number| number.to_string()).collect();
    for name in &names {
        mkdir(&Path::new("layers").join(name), 0o755, plan)?;
    }
    let directory = self::above(layers);
    plan.push(Step::Fchdir { directory: above.into() });
    for (name, layer) in names.iter().zip(layers) {
        let path = plan.text(layer.strip_prefix(directory).unwrap_or(layer))?;
        let (tree, place) = (plan.register()?, plan.register()?);
        plan.push(Step::OpenTree { path, extent: Extent::Top, out: tree });
        let path = plan.text(Path::new("layers").join(name))?;
        plan.push(Step::OpenInRoot { root: own.into(), path, out: place });
        plan.push(Step::MoveMount { mount: tree.into(), target: place.into() });
        plan.release(place);
        plan.release(tree);
    }
    plan.release(above);
    plan.push(Step::Fchdir { directory: own.into() });
    plan.push(Step::Chdir { path: c"layers" });
    let lower = names.join(":");
    let data = plan.text(format!("lowerdir={lower},upperdir=../{UPPER},workdir=../work-root,userxattr"))?;
    let (source, target, flags) = (c"overlay", c"../root", MountFlags::NOSUID | MountFlags::NODEV);
    plan.push(Step::Mount { source, target, fstype: c"overlay", flags, data });
    plan.push(Step::Fchdir { directory: own.into() });
    plan.release(own);
    open_here(c"root", plan)
}

/// Opens a directory of the program's own file system.
fn open_here(path: &'static std::ffi::CStr, plan: &mut Builder<'_>) -> Result<Reg, Error> {
    let out = plan.register()?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    plan.push(Step::Open { path, flags, mode: Mode::empty(), out });
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::above;
    use std::path::{Path, PathBuf};

    #[test]
    fn directory_above_contains_all_layers() {
        let above_of = |layers: &[&str]| {
            let layers: Vec<_> = layers.iter().map(PathBuf::from).collect();
            above(&layers).to_owned()
        };
        assert_eq!(above_of(&["/store/all/a/files", "/store/all/b/files"]), Path::new("/store/all"));
        assert_eq!(above_of(&["/store/all/a/files"]), Path::new("/store/all/a"));
        assert_eq!(above_of(&["/a/b", "/a"]), Path::new("/"));
        assert_eq!(above_of(&["/a", "/b"]), Path::new("/"));
    }
}
