//! A logging program: `binary://` in the name of standard output.
//!
//! It reads the container's output at descriptors 3 and 4 (containerd's core/runtime/v2/logging). It closes descriptor 5
//! when it is ready. The shim does not wait for that, because a pipe keeps what is written before.

use crate::streams::pump::Pump;
use husk_spawn::{Command, Stdio};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

#[derive(Debug)]
pub(crate) struct Logger {
    pub(crate) pid: u32,
    /// The pipes that it reads. They stay open in the shim, so that its death does not kill the program by SIGPIPE.
    pipes: [OwnedFd; 2],
}

impl Logger {
    /// Starts the program. Returns the container's ends of its pipes, too.
    pub(crate) fn start(
        path: &Path,
        arguments: &[String],
        id: &str,
        namespace: &str,
    ) -> io::Result<(Self, OwnedFd, OwnedFd)> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC);
        let ((out_reader, out), (err_reader, err), (_, ready)) = (pipe()?, pipe()?, pipe()?);
        let mut command = Command::new(path);
        command.args(arguments).env_clear().env("CONTAINER_ID", id).env("CONTAINER_NAMESPACE", namespace);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.fd(3, out_reader.try_clone()?).fd(4, err_reader.try_clone()?).fd(5, ready);
        let child = command.spawn_and_exec().map_err(|error| {
            io::Error::other(format!("failed to start binary process {}: {error}", path.display()))
        })?;
        let pid = child.id();
        // The loop reaps it.
        child.let_go();
        Ok((Self { pid, pipes: [out_reader, err_reader] }, out, err))
    }

    /// Reads on in place of the program, which has died.
    pub(crate) fn replaced(self) -> io::Result<Vec<Pump>> {
        let pump = |pipe| {
            fcntl_setfl(&pipe, OFlags::NONBLOCK)?;
            Ok(Pump::into_nowhere(pipe))
        };
        self.pipes.into_iter().map(pump).collect()
    }
}
