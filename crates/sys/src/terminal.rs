//! Opens pseudoterminals of one devpts instance, which is given as its directory.
//!
//! No terminal is found by its name. An image could have prepared the name, and in another devpts instance the name
//! means another terminal.

use crate::{Errno, Fd, Result, at, raw};
use rustix::fs::{FileType, OFlags, ResolveFlags};
use rustix::termios::Winsize;

/// `DEVPTS_SUPER_MAGIC` (linux/magic.h).
const DEVPTS: u64 = 0x1cd1;

/// Returns whether `directory` is on a devpts.
pub fn is_devpts(directory: Fd) -> Result<bool> {
    let found = rustix::fs::fstatfs(directory.lend())?;
    Ok(u64::try_from(found.f_type) == Ok(DEVPTS))
}

/// Opens the master of a new terminal, with `openat2(O_RDWR | O_NOCTTY)` of `ptmx` in a devpts. Only the kernel
/// creates files in a devpts, so a file with this name that is not mounted over is the multiplexer. Its device numbers
/// are checked nevertheless.
///
/// # Errors
///
/// `EXDEV` if there is a mount over it, `ENODEV` if it is not the multiplexer, `ENOSPC` if there are too many
/// terminals. For the rest see openat2(2).
pub fn open_ptmx(devpts: Fd) -> Result<Fd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let master = at::openat2(Some(devpts), c"ptmx", OFlags::RDWR | OFlags::NOCTTY, resolve)?;
    match rustix::fs::fstat(master.lend()) {
        Ok(stat)
            if FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
                && stat.st_rdev == rustix::fs::makedev(5, 2) =>
        {
            Ok(master)
        }
        other => {
            raw::close(master);
            Err(other.err().unwrap_or(Errno::NODEV))
        }
    }
}

/// Unlocks the other end of `master`, with `ioctl(TIOCSPTLCK)`.
///
/// # Errors
///
/// `ENOTTY` if `master` is not a master.
pub fn ioctl_tiocsptlck_unlock(master: Fd) -> Result {
    rustix::pty::unlockpt(master.lend())
}

/// Opens the other end of `master` without its name, and not as the controlling terminal, with `ioctl(TIOCGPTPEER)`.
///
/// # Errors
///
/// `EIO` while it is locked.
pub fn ioctl_tiocgptpeer(master: Fd) -> Result<Fd> {
    raw::ioctl_tiocgptpeer(master, (OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC).bits())
}

/// Sets the size of the terminal, with `ioctl(TIOCSWINSZ)`.
///
/// # Errors
///
/// `ENOTTY` if it is not a terminal.
pub fn ioctl_tiocswinsz(terminal: Fd, rows: u16, columns: u16) -> Result {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(terminal.lend(), size)
}
