//! Ends the process that is creating a container, so that the container can be deleted.
//!
//! A creator writes its record late, and may wait long for a hook, a seccomp agent or the receiver of a terminal. So a
//! deleter does not rely on the record while there is a creator, which the kernel knows ([`Entry::creator`]). It ends
//! the creator first. Afterwards no process writes to the record any more, and it is complete.

use crate::error::Error;
use crate::host::files;
use crate::store::Entry;
use crate::store::process;
use husk_script::sys::signal::pidfd_send_signal;
use husk_script::sys::{Errno, Fd};
use husk_spawn::Signal;
use rustix::event::Timespec;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long a creator may take to clean up.
const PATIENCE: Duration = Duration::from_secs(3);

/// How often the deleter checks whether the container has been created after all. No descriptor reports that.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Ends the container's creator. Returns when there is none.
pub(crate) fn end_creator(entry: &Entry) -> Result<(), Error> {
    while let Some(creator) = open(entry)? {
        entry.mark_deleted();
        signal(&creator.process, Signal::TERM)?;
        if !leaves(entry, &creator.process)? {
            creator.kill_with_children()?;
        }
    }
    Ok(())
}

struct Creator {
    pid: Pid,
    process: OwnedFd,
}

impl Creator {
    /// Kills it and the processes that it has started: the container's first one, which may not be recorded yet, and
    /// hooks. The first process ends without its creator as soon as it runs, but it may be frozen or stopped.
    fn kill_with_children(&self) -> Result<(), Error> {
        let children = self.children()?;
        signal(&self.process, Signal::KILL)?;
        process::wait_patiently(&self.process)?;
        children.iter().try_for_each(process::order)?;
        children.iter().try_for_each(process::wait_patiently)
    }

    /// Opens pidfds of its children. Returns none if the kernel does not list children (`CONFIG_PROC_CHILDREN`).
    fn children(&self) -> Result<Vec<OwnedFd>, Error> {
        let mut opened = Vec::new();
        for pid in self.listed_children()? {
            match pidfd_open(pid, PidfdFlags::empty()) {
                Err(Errno::SRCH) => {}
                child => opened
                    .push((pid, child.map_err(|errno| Error::kernel("open a child of the creator", errno))?)),
            }
        }
        // Those that are still children have not been reaped, so their pids were not reused before they were opened.
        let still = self.listed_children()?;
        Ok(opened.into_iter().filter(|(pid, _)| still.contains(pid)).map(|(_, child)| child).collect())
    }

    fn listed_children(&self) -> Result<Vec<Pid>, Error> {
        let path = format!("/proc/{0}/task/{0}/children", self.pid);
        match files::read_procfs(&path) {
            Ok(pids) => {
                Ok(pids.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect())
            }
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::SRCH)) => {
                Ok(Vec::new())
            }
            Err(error) => Err(Error::file("read", path, error)),
        }
    }
}

/// Opens a pidfd of the creator.
fn open(entry: &Entry) -> Result<Option<Creator>, Error> {
    while let Some(pid) = entry.creator()? {
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(Errno::SRCH) => continue,
            process => process.map_err(|errno| Error::kernel("open the container's creator", errno))?,
        };
        // The creator still holds the mark, so its pid was not reused before it was opened.
        if entry.creator()? == Some(pid) {
            return Ok(Some(Creator { pid, process }));
        }
    }
    Ok(None)
}

fn signal(process: &OwnedFd, signal: Signal) -> Result<(), Error> {
    match pidfd_send_signal(Fd::of(process), signal) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(Error::kernel("end the container's creator", errno)),
    }
}

/// Returns whether the creator ends, or finishes creating the container, within [`PATIENCE`].
fn leaves(entry: &Entry, creator: &OwnedFd) -> Result<bool, Error> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if process::has_ended(creator, Some(&LOOK))? || entry.creator()?.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}
