//! Walks a tree of cgroups.
//!
//! A container may decide how deep the tree is, so the walk is not recursive. At any depth the walk holds two
//! descriptors: the current cgroup and the one that it enters or returns to. It returns by `..`, which is safe
//! because a cgroup is never moved below another.

use crate::files;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

/// The callbacks of [`walk`].
pub(crate) trait Visitor {
    /// Returns the names of the children to walk. The walk calls it on entering a cgroup.
    fn enter(&mut self, directory: BorrowedFd<'_>) -> Result<Vec<String>, Errno>;

    /// Handles the end of the walk of the cgroup `name` in `above` and all cgroups below it.
    fn leave(&mut self, above: BorrowedFd<'_>, name: &str) -> Result<(), Errno>;
}

/// A cgroup between the top and the current one.
struct Level {
    /// Its name in the parent.
    name: String,
    /// The parent's other children that are still to be walked.
    siblings: Vec<String>,
}

/// Walks `top` and all below it, parents first. Cgroups that disappear meanwhile are skipped.
pub(crate) fn walk(top: BorrowedFd<'_>, visitor: &mut impl Visitor) -> Result<(), Errno> {
    let mut levels: Vec<Level> = Vec::new();
    let mut names = visitor.enter(top)?;
    // The current cgroup; `None` is `top`.
    let mut below: Option<OwnedFd> = None;
    loop {
        let current = below.as_ref().map_or(top, AsFd::as_fd);
        if let Some(name) = names.pop() {
            let directory = match files::open_directory(current, &*name) {
                Ok(directory) => directory,
                Err(Errno::NOENT | Errno::NODEV) => continue,
                Err(errno) => return Err(errno),
            };
            let inner = visitor.enter(directory.as_fd())?;
            levels.push(Level { name, siblings: std::mem::replace(&mut names, inner) });
            below = Some(directory);
        } else {
            let Some(level) = levels.pop() else { return Ok(()) };
            let above = if levels.is_empty() { None } else { Some(files::open_directory(current, "..")?) };
            visitor.leave(above.as_ref().map_or(top, AsFd::as_fd), &level.name)?;
            (names, below) = (level.siblings, above);
        }
    }
}
