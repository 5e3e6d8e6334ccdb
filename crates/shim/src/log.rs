//! The shim's log: lines that containerd copies to its own.

use husk_runtime::tolerate;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::write;
use std::os::fd::OwnedFd;

/// The FIFO `log` in the bundle, which containerd reads.
pub(crate) struct Log(Option<OwnedFd>);

impl Log {
    /// Opens the FIFO in the working directory. Opening it for reading as well waits for no reader.
    pub(crate) fn open() -> Self {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Self(open("log", flags, Mode::empty()).ok())
    }

    /// Writes a line in the format of containerd's log. If the FIFO is full, the line is lost.
    pub(crate) fn write(&self, level: &str, message: &str) {
        if let Some(fifo) = &self.0 {
            let line = format!("level={level} msg={message:?} runtime=io.containerd.husk.v1\n");
            tolerate(write(fifo, line.as_bytes()), "there is nowhere else to report it");
        }
    }
}
