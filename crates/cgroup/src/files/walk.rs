//! Walking a tree of cgroups.
//!
//! How deep the tree is has been decided by whoever may make cgroups in it: a container, perhaps. So there is no recursion, and
//! however deep the walk is, it has two descriptors open: that of where it is, and that of what it enters or returns
//! to. It returns by `..`, which leads where it came from: a cgroup is never moved below another.

use crate::files;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

/// The function that [`walk`] calls for each cgroup.
pub(crate) trait Visitor {
    /// Comes to a cgroup. Returns the names of those below it that are to be walked, too.
    fn enter(&mut self, directory: BorrowedFd<'_>) -> Result<Vec<String>, Errno>;

    /// Has walked the cgroup `name` below `above`, with all below it.
    fn leave(&mut self, above: BorrowedFd<'_>, name: &str) -> Result<(), Errno>;
}

/// A cgroup on the way from the top to where the walk is.
struct Level {
    /// Its name in the one above.
    name: String,
    /// Those below the one above that are still to be walked.
    siblings: Vec<String>,
}

/// Walks `top` and all below it, each after the one above it. A cgroup that disappears meanwhile is passed over.
pub(crate) fn walk(top: BorrowedFd<'_>, visitor: &mut impl Visitor) -> Result<(), Errno> {
    let mut levels: Vec<Level> = Vec::new();
    let mut names = visitor.enter(top)?;
    // Where the walk is; `top` itself if nothing.
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
