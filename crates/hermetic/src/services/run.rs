//! Services that all husks of a run share. Cargo starts one husk for each test binary, so a process of its own keeps them,
//! the *keeper*. The first husk that needs them starts it, and it ends with the run.
//!
//! ```text
//!  husk                                         keeper
//!    connect            ------------------->
//!                       <-------------------    the network's descriptors, with one byte
//!                       <-------------------    {"ready"} or {"failure": ..}, when it is known
//!    {"positions"}      ------------------->
//!                       <-------------------    {"positions": [..]}
//!    {"reports": [..]}  ------------------->
//!                       <-------------------    {"reports": [[name, end, log], ..]}
//! ```
//!
//! The socket is in a directory to which only the user can write. Its name contains the process that the run belongs
//! to, with its start time, and a digest of the services.

use super::{Service, ServiceReport};
use crate::error::{Error, MissingIsolation};
use crate::host::JoinedNetwork;
use crate::trust::distrust;
use husk_script::sys::{Fd, tolerate};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open, openat};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recv, recvmsg};
use rustix::process::{Pid, PidfdFlags, getegid, geteuid, pidfd_open};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A keeper answers at once. One that does not is stuck or stopped.
const PATIENCE: Duration = Duration::from_secs(60);

/// The most bytes of an error.
const MOST_WORDS: u64 = 16 << 10;

/// The file that is locked while a keeper is looked for and started.
const LOCK: &str = "lock";

/// A run whose husks share services, and how the first of them starts the keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The directory of the sockets.
    pub directory: PathBuf,
    /// The process whose end is the end of the run.
    pub process: u32,
    /// The name of the socket.
    pub name: String,
    /// The arguments of the husk that calls [`keep_services`](super::keep_services).
    pub arguments: Vec<OsString>,
}

/// Services that a keeper runs.
pub(crate) struct RunServices {
    pub(super) services: Vec<Service>,
    stream: UnixStream,
    user: Option<OwnedFd>,
    net: OwnedFd,
    is_ready: bool,
    failure: Option<String>,
    /// Whether the keeper has ended.
    is_lost: bool,
    /// Whether news have arrived since the last turn, such as with an answer.
    has_news: bool,
    losses: Vec<MissingIsolation>,
    /// The beginning of a line.
    line: Vec<u8>,
    answers: RefCell<Vec<Value>>,
}

impl RunServices {
    /// Connects to the keeper. Starts it if there is none.
    pub(super) fn join(services: &[Service], run: &Run) -> Result<Self, Error> {
        let name = services.iter().map(|service| service.name.as_str()).collect::<Vec<_>>().join(", ");
        let failed =
            |error: io::Error| Error::Look { act: format!("share service {name}"), reason: error.into() };
        let stream = run.connect().map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        let mut descriptors = receive(&stream).map_err(failed)?;
        let missing = || failed(io::Error::other("the process that keeps it has sent no network"));
        let net = descriptors.pop().ok_or_else(missing)?;
        Ok(Self {
            services: services.to_vec(),
            stream,
            user: descriptors.pop(),
            net,
            is_ready: false,
            failure: None,
            is_lost: false,
            has_news: false,
            losses: Vec::new(),
            line: Vec::new(),
            answers: RefCell::default(),
        })
    }

    pub(super) fn joined(&self) -> JoinedNetwork {
        JoinedNetwork { user: self.user.as_ref().map(Fd::of), net: Fd::of(&self.net) }
    }

    /// Returns the descriptor on which the keeper's messages arrive.
    pub(super) fn arriving(&self) -> Option<BorrowedFd<'_>> {
        (!self.is_lost).then(|| self.stream.as_fd())
    }

    pub(super) fn is_ready(&self) -> bool {
        self.is_ready && self.failure.is_none()
    }

    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    pub(super) fn losses(&self) -> &[MissingIsolation] {
        &self.losses
    }

    /// Returns no time if there are news, for which a descriptor need not wait.
    pub(super) fn wake(&self) -> Option<Duration> {
        self.has_news.then_some(Duration::ZERO)
    }

    /// Reads messages that have arrived.
    pub(super) fn turn(&mut self) {
        self.has_news = false;
        while !self.is_lost && self.read(RecvFlags::DONTWAIT) {}
    }

    pub(super) fn positions(&mut self) -> Vec<u64> {
        let answer = self.ask(&json!({ "positions": true }), "positions");
        let positions = answer.as_ref().and_then(Value::as_array);
        positions.into_iter().flatten().filter_map(Value::as_u64).collect()
    }

    pub(super) fn reports(&mut self, since: &[u64]) -> Vec<ServiceReport> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let report = |report: &Value| {
            let (name, log) = (text(&report[0])?, text(&report[2])?);
            Some(ServiceReport { name, end: text(&report[1]), log })
        };
        let answer = self.ask(&json!({ "reports": since }), "reports");
        let reports = answer.as_ref().and_then(Value::as_array);
        reports.and_then(|reports| reports.iter().map(report).collect()).unwrap_or_else(|| {
            let gone = |service: &Service| ServiceReport {
                name: service.name.clone(),
                end: Some("ended: the process that kept it for the run is gone".to_owned()),
                log: String::new(),
            };
            self.services.iter().map(gone).collect()
        })
    }

    /// Sends a request and waits for its answer; `None` if the keeper is gone.
    fn ask(&mut self, request: &Value, name: &str) -> Option<Value> {
        if self.is_lost || self.stream.write_all(format!("{request}\n").as_bytes()).is_err() {
            self.lose();
            return None;
        }
        loop {
            let answer = self.answers.get_mut().pop();
            if let Some(mut answer) = answer {
                return Some(answer[name].take());
            }
            if !self.read(RecvFlags::empty()) {
                self.lose();
                return None;
            }
        }
    }

    /// Reads once. Returns whether something was read.
    fn read(&mut self, flags: RecvFlags) -> bool {
        let mut buffer = [0; 16 << 10];
        let length = match recv(&self.stream, &mut buffer, flags) {
            Err(Errno::INTR) => return true,
            Err(Errno::AGAIN) if flags.contains(RecvFlags::DONTWAIT) => return false,
            Ok((length, _)) if length > 0 => length,
            _ => {
                self.lose();
                return false;
            }
        };
        for byte in buffer.get(..length).unwrap_or_default() {
            match byte {
                b'\n' => {
                    let line = std::mem::take(&mut self.line);
                    self.take(serde_json::from_slice(&line).unwrap_or_default());
                }
                byte => self.line.push(*byte),
            }
        }
        true
    }

    fn take(&mut self, message: Value) {
        if let Some(failure) = message["failure"].as_str() {
            (self.failure, self.has_news) = (Some(failure.to_owned()), true);
        } else if let Some(losses) = message["ready"].as_array() {
            (self.is_ready, self.has_news) = (true, true);
            let losses =
                losses.iter().filter_map(|loss| Some(MissingIsolation::Service(loss.as_str()?.to_owned())));
            self.losses = losses.collect();
        } else {
            self.answers.get_mut().push(message);
        }
    }

    fn lose(&mut self) {
        (self.is_lost, self.has_news) = (true, true);
        if !self.is_ready && self.failure.is_none() {
            let name = self.services.first().map_or("", |service| service.name.as_str());
            self.failure = Some(format!("service {name}: the process that keeps it for the run has ended"));
        }
    }
}

/// Receives the descriptors of the network.
fn receive(stream: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received =
        recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    if byte == *b"!" {
        let mut why = String::new();
        stream.take(MOST_WORDS).read_to_string(&mut why)?;
        return Err(io::Error::other(why));
    }
    if received.bytes != 1 || received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other("the process that keeps it has ended"));
    }
    let rights = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    Ok(rights.flatten().collect())
}

impl Run {
    fn connect(&self) -> io::Result<UnixStream> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = open(&self.directory, flags, Mode::empty())?;
        if let Some(why) = distrust(&fstat(&directory)?, (geteuid().as_raw(), getegid().as_raw())) {
            return Err(io::Error::other(format!("{} {why}", self.directory.display())));
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = openat(&directory, LOCK, flags, Mode::from_raw_mode(0o600))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        // The name of a socket may have 107 bytes, and the directory's may be longer.
        let directory = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        let socket = directory.join(&self.name);
        match UnixStream::connect(&socket) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {}
            connected => return connected,
        }
        remove_unused(&directory)?;
        let listener = UnixListener::bind(&socket)?;
        self.start(listener)?;
        UnixStream::connect(&socket)
    }

    /// Starts the keeper. It gets the listening socket as its standard input, and the run's process as its output.
    fn start(&self, listener: UnixListener) -> io::Result<()> {
        let process = Pid::from_raw(self.process.cast_signed()).ok_or(ErrorKind::InvalidInput)?;
        let process = pidfd_open(process, PidfdFlags::empty())?;
        let mut keeper = Command::new("/proc/self/exe");
        keeper.args(&self.arguments).stdin(OwnedFd::from(listener)).stdout(process).stderr(Stdio::null());
        keeper.spawn().map(drop)
    }
}

/// Removes the sockets at which no keeper listens.
fn remove_unused(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let refused = |path: &Path| {
            UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        };
        if path.file_name().is_some_and(|name| name != LOCK) && refused(&path) {
            tolerate(fs::remove_file(&path), "the socket stays until the next run");
        }
    }
    Ok(())
}
