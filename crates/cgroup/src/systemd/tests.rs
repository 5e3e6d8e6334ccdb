//! Tests the client against a fake systemd. One connection is a socket, where the tests control every byte. The
//! other is a real bus, which checks the messages itself.

use super::message::{Message, MessageType};
use super::*;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A fake systemd: its units, and the calls that it received.
#[derive(Debug, Default)]
struct Fake {
    running: BTreeSet<String>,
    failed: BTreeSet<String>,
    /// The result of jobs.
    result: &'static str,
    /// Whether a job ends before the reply that names it.
    hasty: bool,
    jobs: u32,
    calls: Vec<String>,
}

impl Fake {
    fn new() -> Self {
        Self { result: "done", ..Self::default() }
    }

    /// Returns the answers to a call.
    fn answer(&mut self, call: &Message) -> Vec<Message> {
        let member = call.member.clone().expect("a member");
        let text =
            |index: usize| call.body.get(index).and_then(Value::as_text).unwrap_or_default().to_owned();
        let reply = |body| Message {
            reply_to: Some(call.serial),
            destination: call.sender.clone(),
            body,
            ..Message::new(MessageType::Return)
        };
        let error = |name: &str| Message {
            error: Some(format!("org.freedesktop.systemd1.{name}")),
            ..Message { kind: MessageType::Error, ..reply(vec![Value::text("no")]) }
        };
        let unit = text(0);
        self.calls.push(format!("{member} {unit}"));
        match member.as_str() {
            "Hello" => vec![reply(vec![Value::text(":1.1")])],
            "AddMatch" | "SetUnitProperties" | "AttachProcessesToUnit" => vec![reply(vec![])],
            "Get" => vec![reply(vec![Value::Variant(Box::new(Value::text("257.4-1")))])],
            "StartTransientUnit" if self.running.contains(&unit) || self.failed.contains(&unit) => {
                vec![error("UnitExists")]
            }
            "StartTransientUnit" => {
                self.running.insert(unit.clone());
                self.job(&unit, reply)
            }
            "StopUnit" if self.running.remove(&unit) => self.job(&unit, reply),
            "ResetFailedUnit" if self.failed.remove(&unit) || self.running.contains(&unit) => {
                vec![reply(vec![])]
            }
            _ => vec![error("NoSuchUnit")],
        }
    }

    fn job(&mut self, unit: &str, reply: impl Fn(Vec<Value>) -> Message) -> Vec<Message> {
        self.jobs += 1;
        let path = |number| Value::Path(format!("/org/freedesktop/systemd1/job/{number}"));
        let removed = |number, result| Message {
            path: Some("/org/freedesktop/systemd1".to_owned()),
            interface: Some("org.freedesktop.systemd1.Manager".to_owned()),
            member: Some("JobRemoved".to_owned()),
            body: vec![Value::U32(number), path(number), Value::text(unit), Value::text(result)],
            ..Message::new(MessageType::Signal)
        };
        // A job of another caller fails in between.
        let other = removed(9999, "failed");
        let (reply, ours) = (reply(vec![path(self.jobs)]), removed(self.jobs, self.result));
        if self.hasty { vec![ours, other, reply] } else { vec![reply, other, ours] }
    }

    /// Answers until the client hangs up, and returns the final state.
    fn serve(mut self, mut bus: Bus) -> Self {
        let mut serial = 100;
        while let Ok(message) = bus.hear() {
            if message.kind != MessageType::Call {
                continue;
            }
            for answer in self.answer(&message) {
                serial += 1;
                let answer = Message { serial, ..answer };
                // Splits the answer in two, so that the client must assemble messages.
                let bytes = answer.bytes();
                let (first, second) = bytes.split_at(bytes.len() / 2);
                bus.say(first).and_then(|()| bus.say(second)).expect("heard");
            }
        }
        self
    }

    /// Plays a bus with systemd at one end of a socket, and connects to it.
    fn connected(self) -> (Systemd, JoinHandle<Self>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let server = thread::spawn(move || {
            let mut bus = Bus::other_end(theirs);
            bus.line("\0AUTH").unwrap();
            bus.say(b"DATA\r\n").unwrap();
            bus.line("DATA").unwrap();
            bus.say(b"OK 1234deadbeef\r\n").unwrap();
            bus.line("BEGIN").unwrap();
            self.serve(bus)
        });
        (Systemd::over(Bus::of_stream(ours, true).unwrap()), server)
    }
}

fn unit() -> Unit {
    Unit::new(Some("a.slice:husk:x"), "x", Owner::Host).unwrap()
}

const NAME: &str = "husk-x.scope";

#[test]
fn start_returns_when_its_own_job_has_ended() {
    for hasty in [false, true] {
        let (mut systemd, server) = Fake { hasty, ..Fake::new() }.connected();
        assert_eq!(systemd.version().unwrap(), Version(257));
        let resources = crate::Resources { pids_limit: Some(5), ..crate::Resources::default() };
        let properties =
            start_properties(&unit(), Some(1), Hierarchy::V2, Version(257), &resources, &[]).unwrap();
        systemd.start(&unit(), &properties).unwrap();
        systemd.set(&unit(), &resources_v2(&resources, Version(257)).unwrap()).unwrap();
        systemd.attach(&unit(), "../a", &[1]).unwrap();
        systemd.stop(&unit()).unwrap();
        // Succeeds although the unit no longer exists.
        systemd.stop(&unit()).unwrap();
        drop(systemd);
        let calls = server.join().unwrap().calls;
        let expected = [
            "Hello ".to_owned(),
            calls[1].clone(),
            "Get org.freedesktop.systemd1.Manager".to_owned(),
            format!("StartTransientUnit {NAME}"),
            format!("SetUnitProperties {NAME}"),
            format!("AttachProcessesToUnit {NAME}"),
            format!("StopUnit {NAME}"),
            format!("ResetFailedUnit {NAME}"),
            format!("StopUnit {NAME}"),
        ];
        assert!(calls[1].starts_with("AddMatch type='signal'"), "{calls:?}");
        assert_eq!(calls, expected);
    }
}

#[test]
fn failed_unit_is_reset_and_start_is_retried() {
    let failed = [NAME.to_owned()].into();
    let (mut systemd, server) = Fake { failed, ..Fake::new() }.connected();
    systemd.start(&unit(), &[]).unwrap();
    drop(systemd);
    assert!(server.join().unwrap().running.contains(NAME));
}

#[test]
fn start_fails_if_the_unit_exists() {
    let running = [NAME.to_owned()].into();
    let (mut systemd, server) = Fake { running, ..Fake::new() }.connected();
    let error = systemd.start(&unit(), &[]).unwrap_err().to_string();
    assert_eq!(error, "systemd: StartTransientUnit: no (org.freedesktop.systemd1.UnitExists)");
    drop(systemd);
    let starts = server.join().unwrap().calls.iter().filter(|call| call.starts_with("Start")).count();
    assert_eq!(starts, 2, "exactly one retry");
}

#[test]
fn failed_job_is_an_error() {
    let (mut systemd, server) = Fake { result: "failed", ..Fake::new() }.connected();
    let error = systemd.start(&unit(), &[]).unwrap_err().to_string();
    assert_eq!(error, "systemd: unit husk-x.scope: job failed");
    drop(systemd);
    assert!(server.join().unwrap().calls.contains(&format!("ResetFailedUnit {NAME}")));
}

#[test]
fn rejected_authentication_is_an_error() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(b"REJECTED EXTERNAL\r\n").unwrap();
    let error = Bus::of_stream(ours, true).unwrap_err().to_string();
    assert_eq!(error, "the bus rejects the authentication: REJECTED EXTERNAL");
}

/// A connection whose peer accepts the authentication and then sends `says`.
fn authenticated(says: &[u8]) -> (Systemd, UnixStream) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    // Accepts at once, as systemd did before version 246.
    theirs.write_all(b"OK x\r\n").unwrap();
    let bus = Bus::of_stream(ours, false).unwrap();
    theirs.write_all(says).unwrap();
    (Systemd::over(bus), theirs)
}

#[test]
fn malformed_missing_and_closed_replies_are_errors() {
    let (mut systemd, other) = authenticated(&[0xff; 64]);
    assert!(matches!(systemd.stop(&unit()), Err(Error::Malformed(_))));
    drop(other);
    let (mut systemd, mut other) = authenticated(b"l\x02");
    other.flush().unwrap();
    drop(other);
    assert!(matches!(systemd.stop(&unit()), Err(Error::Broken { .. })));
    let (mut systemd, other) = authenticated(b"");
    systemd.bus.set_patience(Duration::from_millis(1));
    let error = systemd.control_group().unwrap_err();
    assert!(matches!(&error, Error::Deadline { act } if act == "Get"), "{error}");
    drop(other);
}

/// A private bus daemon, if installed, which is killed on drop.
struct Daemon(Child, Address);

impl Daemon {
    fn start() -> Option<Self> {
        let mut command = Command::new("dbus-daemon");
        command.args(["--session", "--nofork", "--nopidfile", "--print-address"]);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::null()).spawn().ok()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take()?).read_line(&mut line).ok()?;
        let address = Address::parse(line.trim());
        let Some(address) = address else {
            child.kill().ok();
            child.wait().ok();
            return None;
        };
        Some(Self(child, address))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.0.kill().expect("the bus");
        self.0.wait().expect("the bus");
    }
}

#[test]
fn real_dbus_daemon_accepts_the_messages() {
    let Some(daemon) = Daemon::start() else {
        std::io::stderr()
            .write_all(b"skipped: real_dbus_daemon_accepts_the_messages: needs dbus-daemon\n")
            .unwrap();
        return;
    };
    let mut server = Bus::connect(&daemon.1).unwrap();
    server.take_name("org.freedesktop.systemd1").unwrap();
    let server = thread::spawn(move || Fake::new().serve(server));
    let mut systemd = Systemd::over(Bus::connect(&daemon.1).unwrap());
    assert_eq!(systemd.version().unwrap(), Version(257));
    let annotations = [("org.systemd.property.After".to_owned(), "['a.service']".to_owned())].into();
    let annotations = from_annotations(&annotations).unwrap();
    let rules = crate::devices::built_in().to_vec();
    let resources = crate::Resources { devices: rules, pids_limit: Some(5), ..crate::Resources::default() };
    let properties =
        start_properties(&unit(), Some(1), Hierarchy::V2, Version(257), &resources, &annotations);
    // The bus validates every byte, forwards the messages and adds the sender.
    systemd.start(&unit(), &properties.unwrap()).unwrap();
    systemd.stop(&unit()).unwrap();
    // The fake does not know this method, so its error must be returned.
    let error = systemd.bus.call("Nonsense", vec![]).unwrap_err().to_string();
    assert_eq!(error, "systemd: Nonsense: no (org.freedesktop.systemd1.NoSuchUnit)");
    drop(systemd);
    drop(daemon);
    let fake = server.join().unwrap();
    assert!(fake.running.is_empty() && fake.jobs == 2, "{fake:?}");
}
