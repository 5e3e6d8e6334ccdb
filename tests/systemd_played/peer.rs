//! A bus with a systemd on it that creates and removes cgroups as the real one does, and records its calls.

use super::wire::{self, ERROR_NAME, INTERFACE, MEMBER, Message, MessageType, PATH, REPLY_SERIAL};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use tempfile::TempDir;

/// How this systemd answers a request for a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    /// Creates the unit. The job ends before the reply names it.
    Willing,
    /// A unit of this name exists and has failed.
    HasFailedOne,
    /// A unit of this name exists and is running.
    HasOne,
    /// The job ends with this result.
    Ends(&'static str),
    /// Closes the connection.
    Leaves,
}

/// The state that all connections share.
struct State {
    mood: Mood,
    running: BTreeSet<String>,
    calls: Vec<(String, Vec<Value>)>,
}

/// A listening systemd, for the lifetime of the test.
pub(super) struct Systemd {
    directory: TempDir,
    state: Arc<Mutex<State>>,
    /// The slice of the test.
    slice: String,
}

impl Systemd {
    pub(super) fn new(mood: Mood) -> Self {
        let directory = TempDir::new().unwrap();
        let name = directory.path().file_name().unwrap().to_string_lossy().replace(['.', '-', '_'], "");
        let slice = format!("husktest{name}.slice");
        let listener = UnixListener::bind(directory.path().join("bus")).unwrap();
        let state = State { mood, running: BTreeSet::new(), calls: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let (ours, its) = (state.clone(), slice.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (state, slice) = (ours.clone(), its.clone());
                thread::spawn(move || {
                    Connection { stream: stream.unwrap(), state, slice, hears: false }.serve()
                });
            }
        });
        Self { directory, state, slice }
    }

    /// Makes the command connect to this systemd.
    pub(super) fn finds_it(&self, mut command: Command) -> Command {
        let address = format!("unix:path={}", self.directory.path().join("bus").display());
        command.env("DBUS_SYSTEM_BUS_ADDRESS", address);
        command
    }

    /// Returns `linux.cgroupsPath` of the test's container.
    pub(super) fn cgroups_path(&self) -> String {
        format!("{}:husk:c", self.slice)
    }

    /// Returns the container's cgroup in each tree that systemd manages.
    pub(super) fn directories(&self) -> Vec<PathBuf> {
        directories(&self.slice, UNIT)
    }

    /// Returns the calls since this was last asked, with their arguments.
    pub(super) fn calls(&self) -> Vec<(String, Vec<Value>)> {
        std::mem::take(&mut self.state.lock().unwrap().calls)
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        for tree in trees() {
            // Tolerated: a failed test may leave a cgroup in the slice.
            fs::remove_dir(tree.join(&self.slice)).unwrap_or(());
        }
    }
}

/// The scope of the container `c`.
pub(super) const UNIT: &str = "husk-c.scope";

/// Returns every tree that may contain a cgroup of the test.
fn trees() -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    if root.join("cgroup.procs").exists() {
        return vec![root.to_owned()];
    }
    fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
}

/// Returns the unit's cgroup in the trees in which systemd creates one: its own, and those of the version 1 controllers
/// that it uses for accounting.
fn directories(slice: &str, unit: &str) -> Vec<PathBuf> {
    let its = ["systemd", "unified", "memory", "cpu", "cpuacct", "pids", "blkio", "devices", "cgroup"];
    let trees = trees().into_iter().filter(|tree| its.iter().any(|name| tree.ends_with(name)));
    // An empty directory is the mount point of a tree that is not mounted.
    let trees = trees.filter(|tree| tree.join("cgroup.procs").exists());
    trees.map(|tree| tree.join(slice).join(unit)).collect()
}

struct Connection {
    stream: UnixStream,
    state: Arc<Mutex<State>>,
    slice: String,
    /// Whether the client has subscribed to the ends of jobs.
    hears: bool,
}

impl Connection {
    fn serve(mut self) {
        for (heard, said) in [("AUTH EXTERNAL\r\n", "DATA\r\n"), ("DATA\r\n", "OK 00\r\n"), ("BEGIN\r\n", "")]
        {
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") {
                let mut byte = [0];
                self.stream.read_exact(&mut byte).unwrap();
                line.push(byte[0]);
            }
            assert_eq!(String::from_utf8(line).unwrap().trim_start_matches('\0'), heard);
            self.stream.write_all(said.as_bytes()).unwrap();
        }
        while let Ok(call) = wire::read(&mut self.stream) {
            self.state.lock().unwrap().calls.push((call.member.clone(), call.body.clone()));
            if self.answer(&call).is_none() {
                return;
            }
        }
    }

    fn say(&mut self, kind: MessageType, fields: &[(u8, char, Value)], body: &[(char, Value)]) {
        // Tolerated: a client that has its answer may have closed the connection.
        self.stream.write_all(&wire::message(kind, fields, body)).unwrap_or(());
    }

    fn reply(&mut self, call: &Message, body: &[(char, Value)]) {
        self.say(MessageType::Return, &[(REPLY_SERIAL, 'u', json!(call.serial))], body);
    }

    fn refuse(&mut self, call: &Message, name: &str) {
        let name = format!("org.freedesktop.systemd1.{name}");
        let fields = [(REPLY_SERIAL, 'u', json!(call.serial)), (ERROR_NAME, 's', json!(name))];
        self.say(MessageType::Error, &fields, &[('s', json!("it is so"))]);
    }

    /// Signals the end of a job to a subscribed client, then replies with the job.
    fn end_job(&mut self, call: &Message, unit: &str, result: &str) {
        let job = "/org/freedesktop/systemd1/job/7";
        if self.hears {
            let fields = [
                (PATH, 'o', json!("/org/freedesktop/systemd1")),
                (INTERFACE, 's', json!("org.freedesktop.systemd1.Manager")),
                (MEMBER, 's', json!("JobRemoved")),
            ];
            let body = [('u', json!(7)), ('o', json!(job)), ('s', json!(unit)), ('s', json!(result))];
            self.say(MessageType::Signal, &fields, &body);
        }
        self.reply(call, &[('o', json!(job))]);
    }

    /// Returns `None` if the connection is to be closed.
    fn answer(&mut self, call: &Message) -> Option<()> {
        let text = |index: usize| call.body.get(index).and_then(Value::as_str).unwrap_or_default();
        let unit = text(0);
        let mood = self.state.lock().unwrap().mood;
        match (call.member.as_str(), mood) {
            ("Hello", _) => self.reply(call, &[('s', json!(":1.1"))]),
            ("AddMatch", _) => {
                self.hears |= unit.contains("member='JobRemoved'");
                self.reply(call, &[]);
            }
            ("Get", _) => self.reply(call, &[('v', json!("257.4-1"))]),
            ("StartTransientUnit", Mood::Leaves) => return None,
            ("StartTransientUnit", Mood::HasFailedOne | Mood::HasOne) => self.refuse(call, "UnitExists"),
            ("StartTransientUnit", Mood::Ends(result)) => self.end_job(call, unit, result),
            ("StartTransientUnit", Mood::Willing) => {
                self.make(unit, &call.body[2]);
                self.end_job(call, unit, "done");
            }
            ("StopUnit", _) if self.state.lock().unwrap().running.remove(unit) => {
                for directory in directories(&self.slice, unit) {
                    fs::remove_dir(directory).unwrap();
                }
                self.end_job(call, unit, "done");
            }
            ("ResetFailedUnit", Mood::HasFailedOne) => {
                self.state.lock().unwrap().mood = Mood::Willing;
                self.reply(call, &[]);
            }
            ("ResetFailedUnit", _) if unit == UNIT => self.reply(call, &[]),
            ("SetUnitProperties", _) => self.reply(call, &[]),
            _ => self.refuse(call, "NoSuchUnit"),
        }
        Some(())
    }

    fn make(&self, unit: &str, properties: &Value) {
        self.state.lock().unwrap().running.insert(unit.to_owned());
        let pid = property(properties, "PIDs").expect("a scope has a process")[0].to_string();
        for directory in directories(&self.slice, unit) {
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("cgroup.procs"), &pid).unwrap();
        }
    }
}

/// Returns the value of a property in an array of them.
pub(super) fn property<'v>(properties: &'v Value, name: &str) -> Option<&'v Value> {
    // The last one wins.
    properties.as_array()?.iter().rev().find(|property| property[0] == name).map(|property| &property[1])
}
