//! A connection to a D-Bus daemon, or directly to systemd.

use super::message::{Message, MessageType};
use super::unit::Owner;
use super::value::Value;
use crate::error::{Malformed, SYSTEMD_PATIENCE as PATIENCE, SystemdError as Error};
use std::io::{self, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const BUS: &str = "org.freedesktop.DBus";
const SYSTEMD: &str = "org.freedesktop.systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";

/// How many times to try to connect to a bus whose queue of connections is full. The pauses start with
/// `FIRST_PAUSE` and double each time.
const CONNECTS: u32 = 7;
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest line of the authentication that is accepted.
const LONGEST_LINE: usize = 4096;

/// The address of a bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A socket at a path.
    Path(PathBuf),
    /// A socket in the kernel's abstract namespace.
    Abstract(String),
    /// The host's bus, or systemd's own socket if no bus is running.
    System,
}

impl Address {
    /// Returns the address of the host's bus, or of the user's from the environment.
    ///
    /// # Errors
    ///
    /// If the environment does not name the user's bus.
    pub fn find(owner: Owner) -> Result<Self, Error> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        match owner {
            Owner::Host => {
                let parsed = variable("DBUS_SYSTEM_BUS_ADDRESS").and_then(|text| Self::parse(&text));
                Ok(parsed.unwrap_or(Self::System))
            }
            Owner::User => {
                if let Some(address) =
                    variable("DBUS_SESSION_BUS_ADDRESS").and_then(|text| Self::parse(&text))
                {
                    return Ok(address);
                }
                let path = variable("XDG_RUNTIME_DIR").map(|directory| Path::new(&directory).join("bus"));
                path.filter(|path| path.exists()).map(Self::Path).ok_or(Error::NoUserBus)
            }
        }
    }

    /// Returns the first usable address of a list (D-Bus specification, "Server Addresses").
    #[must_use]
    pub fn parse(list: &str) -> Option<Self> {
        list.split(';').filter_map(|address| address.strip_prefix("unix:")).find_map(|pairs| {
            pairs.split(',').filter_map(|pair| pair.split_once('=')).find_map(|(key, value)| {
                let value = unescape(value)?;
                match key {
                    "path" => Some(Self::Path(value.into())),
                    "abstract" => Some(Self::Abstract(value)),
                    _ => None,
                }
            })
        })
    }

    fn name(&self) -> String {
        match self {
            Self::Path(path) => path.display().to_string(),
            Self::Abstract(name) => format!("@{name}"),
            Self::System => SYSTEM_BUS.to_owned(),
        }
    }
}

const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";
/// Systemd's own socket, which only root may use.
const PRIVATE: &str = "/run/systemd/private";

/// Decodes `%` and two hexadecimal digits in an address.
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'%' => {
                let (digits, after) = rest.split_first_chunk::<2>()?;
                bytes.push(u8::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()?);
                rest = after;
            }
            byte => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).ok()
}

/// An authenticated connection.
#[derive(Debug)]
pub struct Bus {
    stream: UnixStream,
    serial: u32,
    /// Bytes that were received but not parsed yet.
    input: Vec<u8>,
    /// The paths and results of jobs that have ended.
    ended: Vec<(String, String)>,
    /// How long a call may take.
    patience: Duration,
}

impl Bus {
    /// Connects and authenticates.
    ///
    /// # Errors
    ///
    /// If nothing listens at the address, or the bus rejects us.
    pub fn connect(address: &Address) -> Result<Self, Error> {
        let path = |path: &Path| SocketAddr::from_pathname(path);
        let connected = match address {
            Address::Path(it) => path(it).and_then(|it| patiently(&it)),
            Address::Abstract(name) => SocketAddr::from_abstract_name(name).and_then(|it| patiently(&it)),
            Address::System => match path(Path::new(SYSTEM_BUS)).and_then(|it| patiently(&it)) {
                Ok(stream) => Ok(stream),
                // Without a bus, as during boot: systemd listens itself, and needs no `Hello`.
                Err(error) => match UnixStream::connect(PRIVATE) {
                    Ok(stream) => return Self::authenticated(stream),
                    Err(_) => Err(error),
                },
            },
        };
        let connected =
            connected.map_err(|error| Error::Connect { address: address.name(), reason: error.into() })?;
        let mut bus = Self::authenticated(connected)?;
        bus.enter()?;
        Ok(bus)
    }

    const fn new(stream: UnixStream) -> Self {
        Self { stream, serial: 0, input: Vec::new(), ended: Vec::new(), patience: PATIENCE }
    }

    /// Returns the deadline of a call that starts now.
    fn end(&self) -> Instant {
        Instant::now() + self.patience
    }

    /// Authenticates with the credentials that the kernel reports.
    fn authenticated(stream: UnixStream) -> Result<Self, Error> {
        let mut bus = Self::new(stream);
        let end = bus.end();
        // We send no uid, so the peer asks the kernel: in a user namespace we do not know our uid as the peer
        // sees it.
        bus.send(b"\0AUTH EXTERNAL\r\n", end)?;
        let line = bus.read_line(end)?;
        // Systemd before version 246 does not ask for data.
        if first_word(&line) != "OK" {
            expect("DATA", line)?;
            bus.send(b"DATA\r\n", end)?;
            expect("OK", bus.read_line(end)?)?;
        }
        bus.send(b"BEGIN\r\n", end)?;
        Ok(bus)
    }

    /// Registers with the bus, and subscribes to the ends of jobs.
    fn enter(&mut self) -> Result<(), Error> {
        self.request(BUS, "/org/freedesktop/DBus", BUS, "Hello", Vec::new())?;
        let rule = format!(
            "type='signal',sender='{SYSTEMD}',path='{MANAGER_PATH}',interface='{MANAGER}',member='JobRemoved'"
        );
        self.request(BUS, "/org/freedesktop/DBus", BUS, "AddMatch", vec![Value::Text(rule)]).map(drop)
    }

    /// Calls a method of systemd's manager.
    pub(super) fn call(&mut self, member: &'static str, body: Vec<Value>) -> Result<Vec<Value>, Error> {
        self.request(SYSTEMD, MANAGER_PATH, MANAGER, member, body)
    }

    /// Reads a text property of systemd's manager.
    pub(super) fn manager_property(&mut self, name: &str) -> Result<String, Error> {
        let body = vec![Value::text(MANAGER), Value::text(name)];
        let interface = "org.freedesktop.DBus.Properties";
        let found = self.request(SYSTEMD, MANAGER_PATH, interface, "Get", body)?;
        found.first().and_then(Value::as_text).map(ToOwned::to_owned).ok_or_else(|| Malformed.into())
    }

    /// Calls a method that starts a job, and returns the job's result.
    pub(super) fn job(&mut self, member: &'static str, body: Vec<Value>) -> Result<String, Error> {
        let end = self.end();
        let reply = self.call(member, body)?;
        let Some(Value::Path(job)) = reply.first() else { return Err(Malformed.into()) };
        loop {
            // The job may have ended before the reply came.
            if let Some(index) = self.ended.iter().position(|(path, _)| path == job) {
                return Ok(self.ended.swap_remove(index).1);
            }
            let message = self.receive(end, member)?;
            self.note(message);
        }
    }

    /// Calls a method and returns the body of its reply.
    fn request(
        &mut self,
        destination: &str,
        path: &str,
        interface: &str,
        member: &'static str,
        body: Vec<Value>,
    ) -> Result<Vec<Value>, Error> {
        let end = self.end();
        self.serial += 1;
        let call = Message {
            serial: self.serial,
            path: Some(path.to_owned()),
            interface: Some(interface.to_owned()),
            member: Some(member.to_owned()),
            destination: Some(destination.to_owned()),
            body,
            ..Message::new(MessageType::Call)
        };
        self.send(&call.bytes(), end)?;
        loop {
            let message = self.receive(end, member)?;
            if message.reply_to != Some(call.serial) {
                self.note(message);
                continue;
            }
            return match message.kind {
                MessageType::Error => {
                    let text = message.body.first().and_then(Value::as_text).unwrap_or_default().to_owned();
                    Err(Error::Call { member, name: message.error.unwrap_or_default(), text })
                }
                _ => Ok(message.body),
            };
        }
    }

    /// Records the end of a job; drops all other messages.
    fn note(&mut self, message: Message) {
        if message.kind == MessageType::Signal && message.member.as_deref() == Some("JobRemoved") {
            // Number, job, unit, result.
            if let [_, Value::Path(job), _, Value::Text(result)] = message.body.as_slice() {
                self.ended.push((job.clone(), result.clone()));
            }
        }
    }

    fn send(&mut self, bytes: &[u8], end: Instant) -> Result<(), Error> {
        let act = "send";
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let written = self.stream.set_write_timeout(Some(left)).and_then(|()| self.stream.write_all(bytes));
        written.map_err(|error| broken(act, error))
    }

    /// Receives more bytes into `input`.
    fn fill(&mut self, end: Instant, act: &str) -> Result<(), Error> {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::Deadline { act: act.to_owned() });
        }
        let mut room = [0; 4096];
        let read = self.stream.set_read_timeout(Some(left)).and_then(|()| self.stream.read(&mut room));
        match read {
            Ok(0) => Err(broken("receive", io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                self.input.extend(room.get(..count).unwrap_or_default());
                Ok(())
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(())
            }
            Err(error) => Err(broken("receive", error)),
        }
    }

    /// Returns the next message of a known kind.
    fn receive(&mut self, end: Instant, act: &str) -> Result<Message, Error> {
        loop {
            let length = Message::length(&self.input)?.filter(|length| *length <= self.input.len());
            let Some(length) = length else {
                self.fill(end, act)?;
                continue;
            };
            let bytes: Vec<u8> = self.input.drain(..length).collect();
            if let Some(message) = Message::read(&bytes)? {
                return Ok(message);
            }
        }
    }

    /// Returns the next line of the authentication.
    fn read_line(&mut self, end: Instant) -> Result<String, Error> {
        loop {
            if let Some(length) = self.input.windows(2).position(|bytes| bytes == b"\r\n") {
                let line: Vec<u8> = self.input.drain(..length + 2).collect();
                return Ok(String::from_utf8_lossy(line.get(..length).unwrap_or_default()).into_owned());
            }
            if self.input.len() > LONGEST_LINE {
                return Err(Malformed.into());
            }
            self.fill(end, "authenticate")?;
        }
    }
}

fn first_word(line: &str) -> &str {
    line.split(' ').next().unwrap_or_default()
}

/// Checks that the line begins with this word.
fn expect(word: &str, line: String) -> Result<(), Error> {
    if first_word(&line) == word { Ok(()) } else { Err(Error::Refused(line)) }
}

fn broken(act: &'static str, error: io::Error) -> Error {
    Error::Broken { act, reason: error.into() }
}

/// Connects; tries again while the bus's queue of connections is full.
fn patiently(address: &SocketAddr) -> io::Result<UnixStream> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..CONNECTS {
        match UnixStream::connect_addr(address) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(pause),
            connected => return connected,
        }
        pause *= 2;
    }
    UnixStream::connect_addr(address)
}

/// For tests, which play both ends.
#[cfg(test)]
impl Bus {
    /// Authenticates with the other end, which may be a bus or systemd itself.
    pub(super) fn of_stream(stream: UnixStream, is_bus: bool) -> Result<Self, Error> {
        let mut bus = Self::authenticated(stream)?;
        if is_bus {
            bus.enter()?;
        }
        Ok(bus)
    }

    /// Plays the other end, before anything has been sent.
    pub(super) const fn other_end(stream: UnixStream) -> Self {
        Self::new(stream)
    }

    pub(super) const fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    pub(super) fn line(&mut self, word: &str) -> Result<(), Error> {
        expect(word, self.read_line(self.end())?)
    }

    pub(super) fn say(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.send(bytes, self.end())
    }

    pub(super) fn hear(&mut self) -> Result<Message, Error> {
        self.receive(self.end(), "hear")
    }

    pub(super) fn take_name(&mut self, name: &str) -> Result<Vec<Value>, Error> {
        // 4 is `DBUS_NAME_FLAG_DO_NOT_QUEUE`: get the name now or fail.
        let body = vec![Value::text(name), Value::U32(4)];
        self.request(BUS, "/org/freedesktop/DBus", BUS, "RequestName", body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_bus_addresses_is_parsed() {
        let table = [
            ("unix:path=/run/user/1000/bus", Some(Address::Path("/run/user/1000/bus".into()))),
            ("tcp:host=x;unix:guid=1,path=/a%20b", Some(Address::Path("/a b".into()))),
            ("unix:abstract=/tmp/x,guid=2", Some(Address::Abstract("/tmp/x".to_owned()))),
            ("unix:path=%zz", None),
            ("launchd:env=X", None),
        ];
        for (text, expected) in table {
            assert_eq!(Address::parse(text), expected, "{text}");
        }
    }
}
