//! Protects the host's null device when it is a standard stream of a container's process.

use crate::error::Error;
use husk_plan::Host;
use husk_script::sys::at::is_null_device;
use husk_script::sys::mount::{
    AttributeChange, Extent, MountAttributes, MountPropagationFlags, mount_setattr,
};
use husk_script::sys::{Errno, Fd};
use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use std::os::fd::{AsRawFd as _, OwnedFd};

/// Reopens standard streams that are the null device, through a read-only mount of it.
///
/// A privileged process can change the owner and mode of a file through a descriptor. The kernel refuses that if the
/// file was opened through a read-only mount. A device on such a mount can still be read and written.
pub(crate) fn shield(host: &Host) -> Result<(), Error> {
    if host.null_streams.is_empty() || host.euid != 0 {
        return Ok(());
    }
    let null = match open_read_only() {
        // husk lacks CAP_SYS_ADMIN over its mount namespace. Outside the first user namespace it then cannot have
        // made a container that maps the host's root.
        Err(Errno::PERM) if !host.is_first_user_namespace => return Ok(()),
        opened => opened.map_err(|errno| Error::kernel("open /dev/null read-only", errno))?,
    };
    for stream in &host.null_streams {
        let replaced = match *stream {
            Fd::STDIN => dup2_stdin(&null),
            Fd::STDOUT => dup2_stdout(&null),
            _ => dup2_stderr(&null),
        };
        replaced.map_err(|errno| Error::kernel("replace a standard stream", errno))?;
    }
    Ok(())
}

fn open_read_only() -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = open_tree(CWD, c"/dev/null", flags)?;
    let read_only = AttributeChange::set(MountAttributes::RDONLY);
    mount_setattr(Fd::of(&mount), Extent::Top, read_only, MountPropagationFlags::empty())?;
    let path = format!("/proc/self/fd/{}", mount.as_raw_fd());
    let null = open(path, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    if is_null_device(Fd::of(&null))? { Ok(null) } else { Err(Errno::NODEV) }
}
