//! Pseudo terminals of one instance of devpts, which is known by its directory.
//!
//! Nothing is found by the name of a terminal: an image could have prepared it, and another instance of devpts
//! means another terminal by the same name.

use crate::{Errno, Fd, Result, at, raw};
use rustix::fs::{FileType, OFlags, ResolveFlags};
use rustix::termios::Winsize;

/// `DEVPTS_SUPER_MAGIC` (linux/magic.h).
const DEVPTS: u64 = 0x1cd1;

/// Whether `directory` is one of a devpts, and of no other file system.
///
/// # Errors
///
/// See fstatfs(2).
pub fn is_devpts(directory: Fd) -> Result<bool> {
    let found = rustix::fs::fstatfs(directory.lend())?;
    Ok(u64::try_from(found.f_type) == Ok(DEVPTS))
}

/// `openat2(O_RDWR | O_NOCTTY)` of `ptmx` in the directory of a devpts: the master of a new terminal. In
/// such a file system nobody but the kernel makes files, so what has this name and is not mounted over
/// is the multiplexer; its numbers are looked at nevertheless.
///
/// # Errors
///
/// `EXDEV` if something is mounted there, `ENODEV` if it is not the multiplexer, `ENOSPC` if there are too
/// many terminals; for the rest see openat2(2).
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

/// `ioctl(TIOCSPTLCK)`: the other end of `master` may be opened.
///
/// # Errors
///
/// `ENOTTY` if it is no master.
pub fn ioctl_tiocsptlck_unlock(master: Fd) -> Result {
    rustix::pty::unlockpt(master.lend())
}

/// `ioctl(TIOCGPTPEER)`: the other end of `master`, opened without its name, and not as the controlling
/// terminal.
///
/// # Errors
///
/// `EIO` while it is locked.
pub fn ioctl_tiocgptpeer(master: Fd) -> Result<Fd> {
    raw::ioctl_tiocgptpeer(master, (OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC).bits())
}

/// `ioctl(TIOCSWINSZ)`: the terminal is this large.
///
/// # Errors
///
/// `ENOTTY` if it is none.
pub fn ioctl_tiocswinsz(terminal: Fd, rows: u16, columns: u16) -> Result {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(terminal.lend(), size)
}
