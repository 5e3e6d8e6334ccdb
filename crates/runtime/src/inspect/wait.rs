//! `wait`: waits until a container's process has ended, and returns its exit status.
//!
//! The kernel gives the status to the parent, which may be an engine, or the process that adopted it after `create`
//! ended. Other processes can read it while the process is a zombie. Since Linux 6.15 a pidfd that was opened before
//! also gives it after the process was reaped.

use crate::error::Error;
use crate::store::Store;
use crate::store::process;
use husk_script::sys::Fd;
use husk_script::sys::process::ioctl_pidfd_exit;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

/// Waits until the container's process has ended. Returns its exit status, or `None` if that is unknown.
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
        // Tolerated: an older kernel does not tell.
        let known = ioctl_pidfd_exit(Fd::of(&pidfd)).unwrap_or(None);
        known.map(ExitStatus::from_raw)
    }))
}
