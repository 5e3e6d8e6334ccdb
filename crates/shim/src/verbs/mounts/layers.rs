//! The lower directories of an overlay.

use super::options::Ids;
use husk_script::sys::Fd;
use husk_script::sys::mount::{
    AttributeChange, Extent, MountAttributes, MountPropagationFlags, mount_setattr, mount_setattr_idmap,
};
use husk_script::sys::tolerate;
use rustix::fs::{CWD, Mode, mkdir};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const OPTION: &str = "lowerdir=";

/// Shortens the paths of lower directories: makes them relative to a directory that contains all of them, and returns
/// that directory. Returns `None`, and changes nothing, if there is none.
pub(super) fn shorten(data: &mut [String]) -> Option<PathBuf> {
    let option = find(data)?;
    let (common, names) = split(&option[OPTION.len()..])?;
    *option = format!("{OPTION}{}", names.join(":"));
    Some(common)
}

/// A mount through which the files of lower directories have other owners. The overlay keeps a clone of it, so it is
/// needed only until the overlay is mounted.
pub(super) struct MappedLayers(PathBuf);

impl MappedLayers {
    /// Mounts the directory that contains all lower directories on `place`, a new directory, with mapped ids. Makes the
    /// option use that mount. Overlayfs takes lower directories only from mounts of its own mount namespace
    /// (fs/namespace.c, `clone_private_mount`), so a detached mount would not do.
    pub(super) fn mount(data: &mut [String], ids: &Ids, place: PathBuf) -> io::Result<Self> {
        let option = find(data).ok_or(Errno::INVAL)?;
        let (common, names) = split(&option[OPTION.len()..]).ok_or(Errno::INVAL)?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, &common, flags)?;
        let read_only = AttributeChange::set(MountAttributes::RDONLY);
        mount_setattr(Fd::of(&tree), Extent::Top, read_only, MountPropagationFlags::PRIVATE)?;
        map_ids(&tree, Extent::Top, ids)?;
        match mkdir(&place, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mapped = Self(place);
        let place = &mapped.0;
        move_mount(&tree, "", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        let paths: Vec<String> = names.iter().map(|name| place.join(name).display().to_string()).collect();
        *option = format!("{OPTION}{}", paths.join(":"));
        Ok(mapped)
    }
}

impl Drop for MappedLayers {
    fn drop(&mut self) {
        let why = "it is in the bundle, and `delete` unmounts it";
        tolerate(unmount(&self.0, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH), why);
        tolerate(fs::remove_dir(&self.0), why);
    }
}

/// Maps the ids of a detached mount's files.
pub(super) fn map_ids(tree: &impl std::os::fd::AsFd, extent: Extent, ids: &Ids) -> io::Result<()> {
    let users = husk_runtime::user_namespace(&ids.uids, &ids.gids);
    let users = users.map_err(|cause| io::Error::other(format!("create a user namespace: {cause}")))?;
    Ok(mount_setattr_idmap(Fd::of(tree), extent, Fd::of(&users))?)
}

fn find(data: &mut [String]) -> Option<&mut String> {
    data.iter_mut().find(|option| option.starts_with(OPTION))
}

/// Splits paths into the nearest directory that contains them all, and their paths below it. `None` if that is the
/// root directory or a path is not absolute.
fn split(paths: &str) -> Option<(PathBuf, Vec<&str>)> {
    let mut common = paths.split(':').next().and_then(|first| Path::new(first).parent())?;
    while !paths.split(':').all(|path| is_below(path, common)) {
        common = common.parent()?;
    }
    if !common.is_absolute() || common == Path::new("/") {
        return None;
    }
    let names = paths.split(':').map(|path| Path::new(path).strip_prefix(common).ok()?.to_str());
    Some((common.to_owned(), names.collect::<Option<_>>()?))
}

fn is_below(path: &str, directory: &Path) -> bool {
    Path::new(path) != directory && Path::new(path).starts_with(directory)
}

#[cfg(test)]
mod tests {
    use super::shorten;
    use std::path::Path;

    #[test]
    fn lower_directories_are_shortened_by_what_they_share() {
        for (paths, common, names) in [
            ("/v/snapshots/12/fs:/v/snapshots/1/fs", "/v/snapshots", "12/fs:1/fs"),
            ("/v/a:/v/a/b", "/v", "a:a/b"),
            ("/v/one/fs", "/v/one", "fs"),
        ] {
            let mut data = vec!["index=off".to_owned(), format!("lowerdir={paths}")];
            assert_eq!(shorten(&mut data).as_deref(), Some(Path::new(common)));
            assert_eq!(data, ["index=off".to_owned(), format!("lowerdir={names}")]);
        }
    }

    #[test]
    fn lower_directories_without_a_common_one_stay() {
        for paths in ["/a/fs:/b/fs", "a/fs:b/fs", "/a", ""] {
            let mut data = vec![format!("lowerdir={paths}")];
            assert_eq!(shorten(&mut data), None, "{paths}");
            assert_eq!(data, [format!("lowerdir={paths}")]);
        }
        assert_eq!(shorten(&mut ["upperdir=/u/fs".to_owned()]), None);
    }
}
