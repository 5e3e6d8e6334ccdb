//! Opens terminals of the container's own devpts.

use crate::sys::at::openat2_directory_in_root;
use crate::sys::clone::InChild;
use crate::sys::terminal::{ioctl_tiocgptpeer, ioctl_tiocsptlck_unlock, is_devpts, open_ptmx};
use crate::sys::{Errno, Fd, Result, file};
use core::ffi::CStr;

/// Opens both ends of a new terminal in the devpts at `path`. The file system is checked before any file in it is
/// opened: the path may lead into an image, and opening a device has effects.
pub(crate) fn open(child: &InChild, root: Fd, path: &CStr) -> Result<(Fd, Fd)> {
    let devpts = openat2_directory_in_root(root, path)?;
    let master = match is_devpts(devpts) {
        Ok(true) => open_ptmx(devpts),
        Ok(false) => Err(Errno::NODEV),
        Err(errno) => Err(errno),
    };
    file::close(child, devpts);
    let master = master?;
    match ioctl_tiocsptlck_unlock(master).and_then(|()| ioctl_tiocgptpeer(master)) {
        Ok(slave) => Ok((master, slave)),
        Err(errno) => {
            file::close(child, master);
            Err(errno)
        }
    }
}
