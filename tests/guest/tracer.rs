//! Determines, for as long as it lives, what a process can access of those around it.
//!
//! Each item that it asks for identifies its own process, so the time of access does not matter. A process may exec
//! while it is examined. Opening `mem` and `pidfd_getfd` need the permission to attach as a debugger (ptrace(2),
//! `PTRACE_MODE_ATTACH`); the rest needs less. It writes to each socket that it obtains: the peer takes it for the
//! process.

use crate::others;
use rustix::net::SendFlags;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process, pidfd_getfd, pidfd_open};
use std::collections::BTreeSet;
use std::error::Error;
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

/// The request of a container's process to run its hooks.
const HOOKS: u8 = husk_spawn::Request::Hooks as u8;

/// Bytes that no other program has at this address.
static MARK: [u8; 16] = *b"whose is this me";

pub(crate) fn look() -> Result<(), Box<dyn Error>> {
    let mark = std::hint::black_box(&MARK).as_ptr().addr() as u64;
    let mut seen = BTreeSet::new();
    println!("begun");
    loop {
        for name in others()? {
            // The process belongs to our user, so we may stop it and take our time.
            let process = name.parse().ok().and_then(Pid::from_raw);
            let send = |signal| process.is_some_and(|process| kill_process(process, signal).is_ok());
            send(Signal::STOP);
            let obtained = accessible(&name, mark);
            send(Signal::CONT);
            for line in obtained {
                if seen.insert(line.clone()) {
                    println!("{line}");
                }
            }
        }
    }
}

/// Returns what can be accessed of one process. The process may end or exec at any moment.
fn accessible(name: &str, mark: u64) -> Vec<String> {
    let mut obtained = vec!["there".to_owned()];
    let pid = name.parse().ok().and_then(Pid::from_raw);
    if let Some(pidfd) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) {
        for number in 3..64 {
            if let Ok(fd) = pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()) {
                let target = fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
                if target.as_ref().is_ok_and(|target| target.to_string_lossy().starts_with("socket:")) {
                    // The peer may be gone and the socket may be full. Waiting here would leave the process stopped.
                    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                    rustix::net::send(&fd, &[HOOKS], flags).unwrap_or(0);
                }
                obtained.extend(foreign("stolen", &target.unwrap_or_else(|_| "something".into()), name));
            }
        }
    }
    if let Ok(exe) = fs::read_link(format!("/proc/{name}/exe")) {
        obtained.push(format!("exe {}", exe.display()));
    }
    if let Ok(memory) = File::open(format!("/proc/{name}/mem")) {
        let mut bytes = [0; MARK.len()];
        match memory.read_exact_at(&mut bytes, mark) {
            Ok(()) if bytes == MARK => obtained.push("memory of the guest".to_owned()),
            Ok(()) => obtained.push("memory of another".to_owned()),
            // Nothing is mapped at that address.
            Err(_) => {}
        }
    }
    for line in fs::read_to_string(format!("/proc/{name}/maps")).unwrap_or_default().lines() {
        if let Some(start) = line.find('/') {
            obtained.push(format!("maps {}", &line[start..]));
        }
    }
    for variable in fs::read(format!("/proc/{name}/environ")).unwrap_or_default().split(|byte| *byte == 0) {
        if !variable.is_empty() {
            obtained.push(format!("environ {}", String::from_utf8_lossy(variable)));
        }
    }
    // The targets cannot be recognized by name.
    let own = |directory: &str| fs::metadata(directory).map(|found| (found.dev(), found.ino())).ok();
    for directory in ["root", "cwd"] {
        let its = own(&format!("/proc/{name}/{directory}/"));
        if its.is_some() && its != own("/") {
            obtained.push(format!("{directory} of another"));
        }
    }
    for fd in fs::read_dir(format!("/proc/{name}/fd")).into_iter().flatten().flatten() {
        let number = fd.file_name().to_string_lossy().into_owned();
        if !["0", "1", "2"].contains(&&*number) {
            // A descriptor that is closed meanwhile tells nothing.
            obtained.extend(fs::read_link(fd.path()).ok().and_then(|target| foreign("fd", &target, name)));
        }
    }
    obtained
}

/// Stops a process that joins the container before it executes its program. Reports that and leaves it stopped.
pub(crate) fn stop_joining_process() -> Result<(), Box<dyn Error>> {
    println!("begun");
    loop {
        for name in others()? {
            let Some(process) = name.parse().ok().and_then(Pid::from_raw) else { continue };
            if kill_process(process, Signal::STOP).is_err() {
                continue;
            }
            // Only a stopped process can be identified reliably.
            let stat = |name: &str| fs::read_to_string(format!("/proc/{name}/stat")).unwrap_or_default();
            while stat(&name).contains(") R ") {}
            let command = fs::read(format!("/proc/{name}/cmdline")).unwrap_or_default();
            if stat(&name).contains(") T ") && !command.starts_with(b"/guest") {
                println!("stopped");
                loop {
                    std::thread::park();
                }
            }
            // The process may have ended.
            kill_process(process, Signal::CONT).unwrap_or(());
        }
    }
}

/// Holds a full socket whose peer never reads.
pub(crate) fn hold_full_socket() -> Result<(), Box<dyn Error>> {
    let (ours, _theirs) = std::os::unix::net::UnixStream::pair()?;
    while rustix::net::send(&ours, &[0; 4096], SendFlags::DONTWAIT).is_ok() {}
    println!("full");
    loop {
        std::thread::park();
    }
}

/// Describes a descriptor, unless it is the one with which our programs find their stack at startup.
fn foreign(how: &str, target: &Path, name: &str) -> Option<String> {
    let own = target == Path::new(&format!("/proc/{name}/maps"));
    (!own).then(|| format!("{how} {}", target.display()))
}
