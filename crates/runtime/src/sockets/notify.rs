//! `NOTIFY_SOCKET`: a container that reports itself when it is ready (sd_notify(3)).
//!
//! If the variable is set for husk, a service manager waits for `READY=1`. It accepts that from husk but not from a
//! process in a container. So husk gives the container a socket of its own. It forwards that the container is ready,
//! and tells the service manager the container's pid. Nothing else is forwarded: the rest of the protocol tells the
//! service manager what to do with descriptors, watchdogs and pids of its own namespace.
//!
//! If the variable is not set, none of this is done.

use crate::error::Error;
use crate::store::Entry;
use husk_bundle::container::{Container, Mount};
use husk_bundle::{Field, Warning};
use husk_listing::Cause;
use husk_script::sys::Fd;
use husk_script::sys::file::sendmsg_with;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::Duration;

/// The mount point of the socket's directory in the container.
const DIRECTORY: &str = "/run/notify";
const SOCKET: &str = "notify.sock";
const VARIABLE: &str = "NOTIFY_SOCKET=/run/notify/notify.sock";

/// How long the service manager may take to confirm the messages. Not every one supports `BARRIER`.
const LONGEST_BARRIER: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// How long the service manager may leave messages unread.
const LONGEST_SEND: Duration = Duration::from_secs(30);

/// Returns the socket of the service manager, if one is set.
fn asked() -> Option<OsString> {
    env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty())
}

/// Connects to the service manager. An unreachable one is a warning, because the container runs whether or not its
/// readiness is reported. The variable may come from a service manager that is gone.
fn listener(warn: &mut impl FnMut(&[Warning])) -> Option<UnixDatagram> {
    let theirs = asked()?;
    let connected = connect(&theirs);
    if let Err(reason) = &connected {
        let reason = Cause::from(reason);
        let text = format!("connect {}: {reason}; readiness will not be reported", theirs.display());
        warn(&[Warning::new(Field::new("NOTIFY_SOCKET"), text)]);
    }
    connected.ok()
}

/// If a service manager listens, gives the container a directory for its own socket, and NOTIFY_SOCKET.
pub(crate) fn offer(
    entry: &Entry,
    container: &mut Container,
    warn: &mut impl FnMut(&[Warning]),
) -> Result<(), Error> {
    let Some(process) = container.process.as_mut() else { return Ok(()) };
    if listener(warn).is_none() {
        return Ok(());
    }
    let ours = entry.notify();
    DirBuilder::new()
        .mode(0o755)
        .create(&ours)
        // Independent of husk's umask, because the container's users are other users.
        .and_then(|()| fs::set_permissions(&ours, Permissions::from_mode(0o755)))
        .map_err(|reason| Error::file("mkdir", &ours, reason))?;
    container.mounts.push(mount(entry));
    // A variable of the configuration is kept.
    if !process.env.iter().any(|variable| variable.as_bytes().starts_with(b"NOTIFY_SOCKET=")) {
        process.env.extend(std::ffi::CString::new(VARIABLE));
    }
    Ok(())
}

/// Adds the socket's mount to the configuration of a container that was [offered](offer) one.
pub(crate) fn show_again(entry: &Entry, container: &mut Container) {
    if entry.notify().exists() {
        container.mounts.push(mount(entry));
    }
}

fn mount(entry: &Entry) -> Mount {
    let options = ["bind", "nosuid", "noexec", "nodev", "ro"];
    husk_bundle::bind_mount(&entry.notify_source(), Path::new(DIRECTORY), options)
}

/// The event after which messages are no longer forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenUntil {
    /// The container is ready.
    Ready,
    /// The container's process has ended.
    End,
}

/// The container's socket, and the service manager's to which messages are forwarded.
pub(crate) struct Proxy {
    ours: UnixDatagram,
    theirs: UnixDatagram,
}

impl Proxy {
    /// Opens both sockets, if the container was [offered](offer) one and there is a service manager.
    pub(crate) fn open(entry: &Entry, warn: &mut impl FnMut(&[Warning])) -> Result<Option<Self>, Error> {
        if !entry.notify().exists() {
            return Ok(None);
        }
        let Some(theirs) = listener(warn) else { return Ok(None) };
        // A service manager that does not read must not block husk for ever.
        theirs
            .set_write_timeout(Some(LONGEST_SEND))
            .map_err(|reason| Error::kernel("NOTIFY_SOCKET: set the time limit for sending", reason))?;
        let path = entry.notify().join(SOCKET);
        // A `start` that failed may have left the socket.
        match fs::remove_file(&path) {
            Err(reason) if reason.kind() != io::ErrorKind::NotFound => {
                return Err(Error::file("remove", path, reason));
            }
            _ => {}
        }
        let ours = UnixDatagram::bind(&path);
        let ours = ours.map_err(|reason| Error::file("NOTIFY_SOCKET: bind", &path, reason))?;
        fs::set_permissions(&path, Permissions::from_mode(0o777))
            .map_err(|reason| Error::file("NOTIFY_SOCKET: chmod", &path, reason))?;
        Ok(Some(Self { ours, theirs }))
    }

    /// Forwards the container's messages. `main` is the pid that the service manager is to watch.
    pub(crate) fn run(&self, process: BorrowedFd<'_>, main: u32, until: ListenUntil) -> Result<(), Error> {
        self.tell_on(process, main, until)
            .map_err(|reason| Error::kernel("NOTIFY_SOCKET: report readiness", reason))
    }

    fn tell_on(&self, process: BorrowedFd<'_>, main: u32, until: ListenUntil) -> io::Result<()> {
        let mut bytes = [0; 4096];
        loop {
            let said = PollFd::from_borrowed_fd(self.ours.as_fd(), PollFlags::IN);
            let mut events = [said, PollFd::from_borrowed_fd(process, PollFlags::IN)];
            retry_on_intr(|| poll(&mut events, None))?;
            // Messages that were sent before the process ended are read first.
            if events[0].revents().is_empty() {
                return Ok(());
            }
            let length = self.ours.recv(&mut bytes)?;
            let mut lines = bytes[..length].split(|byte| *byte == b'\n');
            if let Some(ready) = lines.find(|line| line.starts_with(b"READY=")) {
                self.tell(ready, main)?;
                if until == ListenUntil::Ready {
                    return Ok(());
                }
            }
        }
    }

    /// Reports that the container is ready, and waits until the service manager has read it. The service manager
    /// looks up the sender by pid, so husk must not end before that.
    fn tell(&self, ready: &[u8], main: u32) -> io::Result<()> {
        self.theirs.send(&[ready, b"\n"].concat())?;
        self.theirs.send(format!("MAINPID={main}\n").as_bytes())?;
        let (reader, writer) = io::pipe()?;
        sendmsg_with(Fd::of(&self.theirs), b"BARRIER=1", Fd::of(&writer))?;
        drop(writer);
        let mut events = [PollFd::new(&reader, PollFlags::IN)];
        retry_on_intr(|| poll(&mut events, Some(&LONGEST_BARRIER)))?;
        Ok(())
    }
}

fn connect(to: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match to.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(to)?,
    }
    Ok(socket)
}
