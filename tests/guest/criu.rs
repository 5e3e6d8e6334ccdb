//! A stand-in for CRIU, which few machines have. It records requests in CRIU's protocol and imitates their few effects
//! that are visible from outside. It is written from the protocol (criu, images/rpc.proto), and checks that messages
//! conform to it.
//!
//! `STAND_IN` names the directory for its records. A file `version` or `lacks` there determines what it reports about
//! itself. If there is a fifo `hangs`, a restore writes a byte to it and never ends, and a dump ends when the caller hangs
//! up. If there is a file `fails`, a dump fails. It records in `frozen` whether the container's cgroup was frozen then.

#[path = "../../crates/runtime/src/criu/wire.rs"]
mod wire;

use husk_sys::Fd;
use husk_sys::file::{read, write};
use rustix::process::{Pid, Signal, kill_process};
use std::error::Error;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use wire::{ProtobufMessage, fields};

const DUMP: i32 = 1;
const RESTORE: i32 = 2;
const PRE_DUMP: i32 = 4;
const NOTIFY: i32 = 6;
const FEATURE_CHECK: i32 = 9;
const VERSION: i32 = 10;

/// Fields that are messages: the options, and those of them that hold a pair or a list.
const MESSAGES: [&str; 7] = ["2", "5", "2.11", "2.23", "2.25", "2.27", "2.39"];

/// A request as text, one field a line.
#[derive(Default)]
struct Told(String);

impl Told {
    fn add(&mut self, prefix: &str, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
        for (field, value) in fields(bytes).ok_or("no message")? {
            let name = format!("{prefix}{field}");
            match (value.bytes(), value.number()) {
                (Some(inner), _) if MESSAGES.contains(&&*name) => self.add(&format!("{name}."), inner)?,
                (Some(text), _) => writeln!(self.0, "{name}={}", String::from_utf8_lossy(text))?,
                (_, Some(number)) => writeln!(self.0, "{name}={number}")?,
                _ => return Err(format!("{name} is too large").into()),
            }
        }
        Ok(())
    }

    fn find(&self, field: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix('='))
    }

    fn number(&self, field: &str) -> Option<i32> {
        self.find(field)?.parse().ok()
    }
}

fn place(name: &str) -> Result<PathBuf, Box<dyn Error>> {
    Ok(PathBuf::from(std::env::var_os("STAND_IN").ok_or("no directory")?).join(name))
}

fn socket() -> Fd {
    Fd::new(3).expect("a number")
}

fn hear() -> Result<Told, Box<dyn Error>> {
    let mut bytes = vec![0; 64 << 10];
    let length = read(socket(), &mut bytes)?;
    let mut told = Told::default();
    told.add("", &bytes[..length])?;
    Ok(told)
}

/// Returns an answer, to which more fields may be added.
fn answer(kind: i32, success: bool) -> ProtobufMessage {
    let mut answer = ProtobufMessage::default();
    answer.number(1, kind).flag(2, success);
    answer
}

fn say(message: &ProtobufMessage) -> Result<(), Box<dyn Error>> {
    write(socket(), message.as_bytes())?;
    Ok(())
}

/// Reports a stage and waits for permission to continue.
fn notify(script: &str, pid: i32) -> Result<(), Box<dyn Error>> {
    let mut about = ProtobufMessage::default();
    about.bytes(1, script).number(2, pid);
    say(answer(NOTIFY, true).message(5, &about))?;
    let told = hear()?;
    if (told.number("1"), told.number("3")) != (Some(NOTIFY), Some(1)) {
        return Err(format!("not told to go on: {}", told.0).into());
    }
    Ok(())
}

/// Records whether the container is frozen, like the first look of CRIU, which sleeps if it is not.
fn look(told: &Told) -> Result<(), Box<dyn Error>> {
    let Some(freezer) = told.find("2.44").map(PathBuf::from) else { return Ok(()) };
    let state = match fs::read_to_string(freezer.join("freezer.state")) {
        Ok(state) => state,
        // Version 2.
        Err(_) => fs::read_to_string(freezer.join("cgroup.events"))?,
    };
    fs::write(place("frozen")?, state)?;
    Ok(())
}

/// Serves one request and returns the exit code.
pub(crate) fn serve() -> Result<u8, Box<dyn Error>> {
    let told = hear()?;
    let kind = told.number("1").ok_or("no kind")?;
    OpenOptions::new().append(true).create(true).open(place("told")?)?.write_all(told.0.as_bytes())?;
    match kind {
        VERSION => {
            let said = fs::read_to_string(place("version")?).unwrap_or("3.17".to_owned());
            let (major, minor) = said.split_once('.').ok_or("no version")?;
            let mut version = ProtobufMessage::default();
            version.number(1, major.parse::<i32>()?).number(2, minor.parse::<i32>()?);
            say(answer(kind, true).message(10, &version))?;
        }
        FEATURE_CHECK => {
            let mut features = ProtobufMessage::default();
            let lacks = place("lacks")?.exists();
            features.flag(1, told.number("5.1") == Some(1) && !lacks);
            features.flag(2, told.number("5.2") == Some(1) && !lacks);
            say(answer(kind, true).message(8, &features))?;
        }
        DUMP => {
            let pid = told.number("2.2").ok_or("no process")?;
            notify("pre-dump", pid)?;
            look(&told)?;
            let hangs = place("hangs")?;
            if hangs.exists() {
                fs::write(hangs, "x")?;
                hear()?;
                return Ok(1);
            }
            if place("fails")?.exists() {
                say(answer(kind, false).number(7, 16))?;
                return Ok(1);
            }
            ["network-lock", "status-ready", "post-dump"]
                .iter()
                .try_for_each(|script| notify(script, pid))?;
            if told.number("2.3") != Some(1) {
                kill_process(Pid::from_raw(pid).ok_or("no pid")?, Signal::KILL)?;
            }
            say(&answer(kind, true))?;
        }
        PRE_DUMP => {
            look(&told)?;
            say(&answer(kind, true))?;
            // The caller may send another request.
            hear()?;
            return Ok(1);
        }
        RESTORE => {
            // The request names the log's directory by a descriptor of our parent.
            let directory = told.find("2.17").or(told.find("2.1")).ok_or("no directory")?;
            let parent = rustix::process::getppid().ok_or("no parent")?;
            let log = format!("/proc/{parent}/fd/{directory}/{}", told.find("2.10").ok_or("no log")?);
            File::create(log)?.write_all(b"(0.1) fine\n(0.2) Error (stand-in:1): no\x1b[31m, thanks\n")?;
            let mounts = fs::read_to_string("/proc/self/mountinfo")?;
            fs::write(place("mounts")?, mounts)?;
            notify("setup-namespaces", std::process::id().cast_signed())?;
            let hangs = place("hangs")?;
            if hangs.exists() {
                // Like a CRIU that waits for the other end of a fifo among the images.
                fs::write(hangs, "x")?;
                loop {
                    std::thread::park();
                }
            }
            say(answer(kind, false).number(7, 17))?;
        }
        _ => return Err("an unknown request".into()),
    }
    Ok(0)
}
