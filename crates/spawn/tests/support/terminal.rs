//! Opens pseudoterminals.

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// A terminal that hangs up when dropped.
pub(crate) struct Terminal {
    _master: OwnedFd,
    /// The path of the device that programs use.
    pub(crate) path: PathBuf,
}

impl Terminal {
    pub(crate) fn new() -> Self {
        super::watch();
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).expect("a terminal");
        grantpt(&master).expect("a terminal");
        unlockpt(&master).expect("an unlocked terminal");
        let name = ptsname(&master, Vec::new()).expect("its name");
        let path = Path::new(OsStr::from_bytes(name.as_bytes())).to_owned();
        Self { _master: master, path }
    }

    /// Opens the device without making it this process's controlling terminal.
    pub(crate) fn slave(&self) -> OwnedFd {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        open(&self.path, flags, Mode::empty()).expect("the device")
    }
}
