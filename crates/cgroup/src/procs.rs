//! The processes of a cgroup.

use crate::file;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

/// Those in `directory` and below, in no order. What disappears meanwhile has none.
pub(crate) fn all(directory: &OwnedFd) -> Result<Vec<i32>, Errno> {
    let mut pids = Vec::new();
    collect(directory, &mut pids)?;
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

fn collect(directory: &OwnedFd, pids: &mut Vec<i32>) -> Result<(), Errno> {
    match own(directory) {
        Ok(own) => pids.extend(own),
        Err(Errno::NOENT | Errno::NODEV) => return Ok(()),
        Err(errno) => return Err(errno),
    }
    file::each_directory(directory, |name| match file::open_directory(directory.as_fd(), name) {
        Ok(below) => collect(&below, pids),
        Err(Errno::NOENT | Errno::NODEV) => Ok(()),
        Err(errno) => Err(errno),
    })
}

/// Those in `directory` alone. A process of another pid namespace than ours reads as 0 and is not
/// one that we could do anything to.
fn own(directory: &OwnedFd) -> Result<Vec<i32>, Errno> {
    let text = match file::text(directory.as_fd(), "cgroup.procs") {
        // A cgroup of threads has those of its processes in `cgroup.threads` only.
        Err(Errno::OPNOTSUPP) => file::text(directory.as_fd(), "cgroup.threads")?,
        text => text?,
    };
    Ok(text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0).collect())
}
