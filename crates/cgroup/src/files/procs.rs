//! Lists the processes of a cgroup.

use crate::files;
use crate::files::walk::{Visitor, walk};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::io::Errno;

/// Returns the processes in `directory` and below it, sorted. Cgroups that disappear meanwhile are skipped.
pub(crate) fn all(directory: &OwnedFd) -> Result<Vec<i32>, Errno> {
    let mut collected = Collected(Vec::new());
    walk(directory.as_fd(), &mut collected)?;
    let Collected(mut pids) = collected;
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

struct Collected(Vec<i32>);

impl Visitor for Collected {
    fn enter(&mut self, directory: BorrowedFd<'_>) -> Result<Vec<String>, Errno> {
        match own(directory) {
            Ok(own) => self.0.extend(own),
            Err(Errno::NOENT | Errno::NODEV) => return Ok(Vec::new()),
            Err(errno) => return Err(errno),
        }
        files::directories(directory)
    }

    fn leave(&mut self, _: BorrowedFd<'_>, _: &str) -> Result<(), Errno> {
        Ok(())
    }
}

/// Returns the processes in `directory` alone. Those outside our pid namespace read as 0 and are left out: we
/// could not signal them.
fn own(directory: BorrowedFd<'_>) -> Result<Vec<i32>, Errno> {
    let text = match files::text(directory, "cgroup.procs") {
        // A threaded cgroup lists its processes in `cgroup.threads` only.
        Err(Errno::OPNOTSUPP) => files::text(directory, "cgroup.threads")?,
        text => text?,
    };
    Ok(text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0).collect())
}
