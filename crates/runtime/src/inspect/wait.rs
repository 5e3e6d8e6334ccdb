//! `wait`: until a container's process has ended, and how it did.
//!
//! Its status belongs to its parent, who need not be one of us: an engine, or whoever adopted it when `create` was
//! gone. Others learn it while nobody has waited for it yet, as a zombie, and since Linux 6.15 afterwards too, by
//! a pidfd that they had before.

use crate::error::Error;
use crate::store::Store;
use crate::store::process;
use husk_script::sys::Fd;
use husk_script::sys::process::ioctl_pidfd_exit;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

/// Waits until the container's process has ended. How it did, if that can be known.
///
/// # Errors
///
/// If it has no process yet.
pub fn wait(store: &Store, id: &str) -> Result<Option<ExitStatus>, Error> {
    let record = store.entry(id)?.read()?;
    let process = record.process.ok_or(Error::State("container not running"))?;
    let Some(pidfd) = process::open(process)? else {
        return Ok(process.end().or(record.ended.map(ExitStatus::from_raw)));
    };
    process::wait(&pidfd)?;
    Ok(process.end().or_else(|| {
        // Tolerated: a kernel that does not tell.
        let known = ioctl_pidfd_exit(Fd::of(&pidfd)).unwrap_or(None);
        known.map(ExitStatus::from_raw)
    }))
}
