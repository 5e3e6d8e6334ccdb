//! Checks that only root and the caller decide what is at a path.
//!
//! husk acts on a container's record: it runs its hooks and kills its cgroup. So no other user may write it, replace
//! it, or move a directory above it. Like sshd and sudo for their directories, `resolve` checks from `/` downwards. If
//! only root and the caller can change a directory, the names in it keep their meaning.
//!
//! In a user namespace the kernel shows all owners without an ID there as one overflow ID. Root of the host, who owns
//! `/` and `/run`, is one of them. The overflow ID may own directories above a store, because otherwise no rootless
//! engine could have a store. It may never own the store itself.

use crate::error::{Error, UntrustedReason};
use crate::host::files;
use crate::host::namespaces::is_first_user_namespace;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Stat, readlinkat, statat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

/// The number of symlinks that the kernel follows in one path (`MAXSYMLINKS`).
const MOST_LINKS: u32 = 40;

/// Checks that only root and the caller can change a directory and its entries.
pub(crate) fn check(found: &Stat) -> Result<(), UntrustedReason> {
    check_is_ours(found)?;
    let mode = Mode::from_raw_mode(found.st_mode);
    if mode.intersects(Mode::WGRP | Mode::WOTH) {
        return Err(UntrustedReason::Writable { mode: mode.bits() });
    }
    Ok(())
}

/// Checks that root or the caller owns the file.
pub(crate) fn check_is_ours(found: &Stat) -> Result<(), UntrustedReason> {
    let uid = found.st_uid;
    if uid == 0 || uid == geteuid().as_raw() { Ok(()) } else { Err(UntrustedReason::Owner { uid }) }
}

/// Resolves `path`, which is absolute, to a path without symlinks that no other user can redirect. Does not check the
/// directory at the path itself; the caller does so with [`check`].
pub(crate) fn resolve(path: &Path) -> Result<PathBuf, Error> {
    let failed = |errno| Error::file("open", path, errno);
    let top = || stat(Path::new("/")).map(|found| (PathBuf::from("/"), found)).map_err(failed);
    let (mut at, mut found) = top()?;
    let mut links = 0;
    let mut names = Vec::new();
    queue(&mut names, path);
    while let Some(name) = names.pop() {
        if name == ".." {
            at.pop();
            found = stat(&at).map_err(failed)?;
            continue;
        }
        check_above(&found).map_err(|why| distrusted(path, &at, why))?;
        let next = at.join(name);
        let next_found = stat(&next).map_err(failed)?;
        if FileType::from_raw_mode(next_found.st_mode) != FileType::Symlink {
            (at, found) = (next, next_found);
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(failed(Errno::LOOP));
        }
        check_owner(&next_found).map_err(|why| distrusted(path, &next, why))?;
        let target = readlinkat(CWD, &next, Vec::new()).map_err(failed)?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        if target.is_absolute() {
            (at, found) = top()?;
        }
        queue(&mut names, &target);
    }
    Ok(at)
}

/// Pushes the names of a path in reverse, so that the first is popped before the names that are queued already.
fn queue(names: &mut Vec<OsString>, path: &Path) {
    let parts = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    });
    names.extend(parts);
}

/// Checks that only root and the caller can change what the names in a directory refer to. In a sticky directory every
/// user may create names, but only their owners can change them.
fn check_above(found: &Stat) -> Result<(), UntrustedReason> {
    check_owner(found)?;
    let mode = Mode::from_raw_mode(found.st_mode);
    let group_is_ours = || {
        found.st_gid == 0 || found.st_gid == getegid().as_raw() || is_unmapped(found.st_gid, "overflowgid")
    };
    let is_writable = mode.contains(Mode::WOTH) || mode.contains(Mode::WGRP) && !group_is_ours();
    if is_writable && !mode.contains(Mode::SVTX) {
        return Err(UntrustedReason::Writable { mode: mode.bits() });
    }
    Ok(())
}

fn check_owner(found: &Stat) -> Result<(), UntrustedReason> {
    check_is_ours(found)
        .or_else(|why| if is_unmapped(found.st_uid, "overflowuid") { Ok(()) } else { Err(why) })
}

/// Returns whether an ID is the overflow ID, which stands for all that have none in this user namespace.
fn is_unmapped(id: u32, file: &str) -> bool {
    !is_first_user_namespace()
        && files::read_procfs(&format!("/proc/sys/kernel/{file}"))
            .is_ok_and(|overflow| overflow.trim().parse() == Ok(id))
}

fn stat(path: &Path) -> Result<Stat, Errno> {
    statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
}

fn distrusted(store: &Path, place: &Path, why: UntrustedReason) -> Error {
    Error::Distrusted { store: store.to_owned(), place: place.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    fn distrust(path: &Path) -> Option<(PathBuf, UntrustedReason)> {
        match resolve(path) {
            Ok(_) => None,
            Err(Error::Distrusted { place, why, .. }) => Some((place, why)),
            Err(error) => panic!("{error}"),
        }
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn writable_ancestor_is_refused_unless_it_is_sticky() {
        let directory = tempfile::tempdir().unwrap();
        let (above, store) = (directory.path().join("above"), directory.path().join("above/store"));
        fs::create_dir_all(&store).unwrap();
        assert_eq!(distrust(&store), None);
        mode(&above, 0o777);
        assert_eq!(distrust(&store), Some((above.clone(), UntrustedReason::Writable { mode: 0o777 })));
        mode(&above, 0o1777);
        assert_eq!(distrust(&store), None);
        mode(&above, 0o775);
        assert_eq!(distrust(&store), None, "a process may give files to its own group");
    }

    #[test]
    fn symlinks_are_resolved_and_loops_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("open/store")).unwrap();
        symlink("open/store", path("link")).unwrap();
        assert_eq!(resolve(&path("link")).unwrap(), fs::canonicalize(path("link")).unwrap());
        symlink("open/../link", path("up")).unwrap();
        assert_eq!(resolve(&path("up")).unwrap(), fs::canonicalize(path("up")).unwrap());
        mode(&path("open"), 0o777);
        assert_eq!(distrust(&path("up")), Some((path("open"), UntrustedReason::Writable { mode: 0o777 })));
        symlink("loop", path("loop")).unwrap();
        assert!(resolve(&path("loop")).unwrap_err().to_string().contains("symbolic links"));
    }

    #[test]
    fn directory_of_another_user_is_refused() {
        if !geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("store");
        fs::create_dir(&store).unwrap();
        chown(&store, Some(4711), None).unwrap();
        let found = stat(&store).unwrap();
        assert_eq!(check(&found), Err(UntrustedReason::Owner { uid: 4711 }));
        chown(&store, Some(0), None).unwrap();
        chown(directory.path(), Some(4711), None).unwrap();
        let place = directory.path().to_owned();
        assert_eq!(distrust(&store), Some((place, UntrustedReason::Owner { uid: 4711 })));
    }
}
