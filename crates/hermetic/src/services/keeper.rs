//! The keeper: the process that keeps the services of a run.

use super::group::OwnServices;
use super::{Service, ServiceReport};
use crate::error::Error;
use crate::profile::Profile;
use crate::sandbox::watch::{Held, watch};
use crate::sandbox::{Isolation, Machine};
use husk_script::sys::tolerate;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};
use rustix::process::{geteuid, setsid};
use serde_json::{Value, json};
use std::io::{self, IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

/// A husk that does not read its answers is dropped after this time.
const PATIENCE: Duration = Duration::from_secs(10);

/// No request is longer.
const MOST_BYTES: usize = 64 << 10;

/// A connected husk.
struct Client {
    stream: UnixStream,
    line: Vec<u8>,
    /// Whether it knows if the services are ready.
    is_told: bool,
}

/// Keeps services until the process of the run ends. `listener` is where husks connect, and `process` a pidfd.
///
/// # Errors
///
/// If the services cannot be watched. Services that cannot be started are an answer, and not an error.
pub fn keep(services: &[Service], how: Isolation, listener: OwnedFd, process: OwnedFd) -> Result<(), Error> {
    let failed = |error: io::Error| Error::Look { act: "keep services".to_owned(), reason: error.into() };
    // Signals of the terminal are for the run, which ends by them.
    setsid().map_err(|errno| failed(errno.into()))?;
    let listener = UnixListener::from(listener);
    listener.set_nonblocking(true).map_err(failed)?;
    let held = Held::all().map_err(|error| Error::Step { origin: "signals".to_owned(), error })?;
    let profile = Profile { services: services.to_vec(), ..Profile::default() };
    let started =
        Machine::of(&profile, how).and_then(|mut machine| OwnServices::start(&profile, &mut machine));
    let mut services = match started {
        Ok(services) => services,
        Err(error) => return refuse(&listener, &process, &held, &error),
    };
    let mut clients: Vec<Client> = Vec::new();
    while !held.is_interrupted() && !has_ended(&process) {
        while let Ok((stream, _)) = listener.accept() {
            // One that cannot be served has ended, or belongs to another user.
            clients.extend(Client::welcome(stream, &services));
        }
        clients.retain_mut(|client| client.turn(&mut services).is_ok());
        let wake = services.wake();
        let streams = clients.iter().map(|client| client.stream.as_fd());
        let outputs: Vec<_> = streams.chain([listener.as_fd(), process.as_fd()]).collect();
        if let Err(error) = services_turn(&mut services, &held, &outputs, wake) {
            services.fail(&error);
        }
    }
    Ok(())
}

/// Tells each husk why the services could not be started.
fn refuse(listener: &UnixListener, process: &OwnedFd, held: &Held, error: &Error) -> Result<(), Error> {
    while !held.is_interrupted() && !has_ended(process) {
        while let Ok((mut stream, _)) = listener.accept() {
            tolerate(write!(stream, "!{error}"), "a husk that has ended needs no answer");
        }
        let waited = watch([], held, &[listener.as_fd(), process.as_fd()], None);
        waited.map_err(|error| Error::Step { origin: "services".to_owned(), error })?;
    }
    Ok(())
}

fn services_turn(
    services: &mut OwnServices,
    held: &Held,
    outputs: &[BorrowedFd<'_>],
    wake: Option<Duration>,
) -> Result<(), Error> {
    let (sandboxes, logs) = services.watched();
    let outputs: Vec<_> = outputs.iter().copied().chain(logs).collect();
    let over = watch(sandboxes, held, &outputs, wake);
    services.ended(over.map_err(|error| Error::Step { origin: "services".to_owned(), error })?)?;
    services.turn()
}

fn has_ended(process: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)).is_ok_and(|count| count == 1)
}

impl Client {
    /// Sends the network's descriptors to a husk of the same user.
    fn welcome(stream: UnixStream, services: &OwnServices) -> Option<Self> {
        if socket_peercred(&stream).ok()?.uid != geteuid() {
            return None;
        }
        // An accepted socket does not inherit that the listener is not blocking.
        stream.set_write_timeout(Some(PATIENCE)).ok()?;
        let descriptors: Vec<_> = services.network_descriptors().collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return None;
        }
        sendmsg(&stream, &[IoSlice::new(b"n")], &mut ancillary, SendFlags::NOSIGNAL).ok()?;
        Some(Self { stream, line: Vec::new(), is_told: false })
    }

    /// Answers what has arrived. Fails if the husk is gone.
    fn turn(&mut self, services: &mut OwnServices) -> io::Result<()> {
        if !self.is_told {
            let news = match services.failure() {
                Some(why) => Some(json!({ "failure": why })),
                None if services.are_ready() => {
                    let losses: Vec<_> = services.losses().map(ToString::to_string).collect();
                    Some(json!({ "ready": losses }))
                }
                None => None,
            };
            if let Some(news) = news {
                self.is_told = true;
                self.send(&news)?;
            }
        }
        let mut buffer = [0; 4096];
        loop {
            let length = match recv(&self.stream, &mut buffer, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                received => received?.0,
            };
            if length == 0 || self.line.len() > MOST_BYTES {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            for byte in buffer.get(..length).unwrap_or_default() {
                match byte {
                    b'\n' => {
                        let line = std::mem::take(&mut self.line);
                        self.answer(&serde_json::from_slice(&line)?, services)?;
                    }
                    byte => self.line.push(*byte),
                }
            }
        }
    }

    fn answer(&mut self, request: &Value, services: &mut OwnServices) -> io::Result<()> {
        let Some(since) = request["reports"].as_array() else {
            return self.send(&json!({ "positions": services.positions() }));
        };
        let since: Vec<_> = since.iter().filter_map(Value::as_u64).collect();
        let report = |ServiceReport { name, end, log }| json!([name, end, log]);
        let reports: Vec<_> = services.reports(&since).into_iter().map(report).collect();
        self.send(&json!({ "reports": reports }))
    }

    fn send(&mut self, message: &Value) -> io::Result<()> {
        self.stream.write_all(format!("{message}\n").as_bytes())
    }
}
