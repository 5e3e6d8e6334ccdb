//! Serves the listener of an observed sandbox: looks at each call, and lets it go on.
//!
//! The program is hostile. Its memory may change while it is read, so its memory only yields hints, and decides
//! nothing. Only names and addresses are read, and files are only looked at, with the caller's rights. The notes have
//! a limited size. When the observer ends, its listener is closed, and the kernel answers the remaining calls.

use super::answers::Answers;
use super::calls::{Access, Act, Calls, PathArgument, Shape};
use super::sight::{Inside, LastLink, Outside, Root, is_virtual, look_outside};
use crate::plan::filter::{self, NATIVE};
use husk_script::sys::process::{
    CallAnswer, NotifiedCall, ioctl_seccomp_id_valid, ioctl_seccomp_receive, ioctl_seccomp_send,
};
use husk_script::sys::{Errno, Fd, tolerate};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, statvfs};
use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, pipe_with};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

/// Something that the program met and that may be a denial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Observed {
    /// A path that does not allow this act inside.
    Path { act: Act, path: PathBuf, inside: Inside, outside: Outside },
    /// A program that exists inside.
    Ran(PathBuf),
    /// An address that the program sends to or connects to.
    Address(SocketAddr),
    /// An address of the loopback device at which only a program outside listens.
    Service(SocketAddr),
    /// An address that it listens at.
    Bound(SocketAddr),
    /// A call that is refused. Whether the process has a user namespace of its own.
    Call { name: &'static str, is_nested: bool },
    /// A process opens the map of user ids of a user namespace of its own, to write to it.
    IdMap,
    /// The program's own file system was full when a process ended.
    DiskFull,
    /// A process had as many open files as it may have.
    FilesFull,
    /// There were as many processes and threads as there may be when a process ended.
    ProcessesFull,
}

/// The facts about the sandbox that the observer needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sandboxed {
    /// Paths that the profile hides.
    pub(crate) hidden: Vec<PathBuf>,
    /// The limit of open files.
    pub(crate) files: Option<u64>,
    pub(crate) processes: ProcessLimit,
    /// Whether paths mean the same as on the host.
    pub(crate) has_host_paths: bool,
}

/// The number of processes and threads that a sandbox may have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessLimit {
    pub(crate) most: u64,
    /// Those with lower numbers do not count.
    pub(crate) first: u32,
}

/// An observed sandbox.
pub(crate) struct Observer {
    /// The write end of a pipe. Closing it ends the thread.
    stop: OwnedFd,
    thread: JoinHandle<Vec<Observed>>,
}

impl Observer {
    pub(crate) fn begin(listener: OwnedFd, sandboxed: Sandboxed) -> io::Result<Self> {
        let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC)?;
        let answers = Answers::new().map_err(io::Error::other)?;
        let thread = thread::Builder::new().name("observer".to_owned()).spawn(move || {
            let mut notes = Notes::new(sandboxed);
            serve(&listener, &stopped, &answers, &mut notes);
            notes.kept
        })?;
        Ok(Self { stop, thread })
    }

    /// Returns what was observed, once the sandbox has ended.
    pub(crate) fn end(self) -> Vec<Observed> {
        drop(self.stop);
        // A panic would have ended this process.
        self.thread.join().unwrap_or_default()
    }
}

fn serve(listener: &OwnedFd, stopped: &OwnedFd, answers: &Answers, notes: &mut Notes) {
    let fd = Fd::of(listener);
    loop {
        let mut polled = [PollFd::new(listener, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        if retry_on_intr(|| poll(&mut polled, None)).is_err() {
            return;
        }
        let [calls, stop] = &polled;
        // Without IN, no process is left under the filter.
        if !stop.revents().is_empty() || !calls.revents().contains(PollFlags::IN) {
            return;
        }
        let call = match ioctl_seccomp_receive(fd) {
            Ok(call) => call,
            // The process has ended meanwhile.
            Err(Errno::NOENT | Errno::INTR) => continue,
            Err(_) => return,
        };
        let answer = answers.answer(&call);
        if call.thread != 0 {
            notes.take(&call, answer, || ioctl_seccomp_id_valid(fd, call.id).is_ok());
        }
        tolerate(ioctl_seccomp_send(fd, call.id, answer), "the process has ended or was interrupted");
    }
}

/// How many different things are kept.
const MOST_KEPT: usize = 4096;
/// How many bytes of paths are kept.
const MOST_BYTES: usize = 1 << 20;
/// The length of the longest path that the kernel accepts.
const MOST_PATH: usize = 4096;
/// The length of the longest address.
const MOST_ADDRESS: usize = 128;
const PAGE: u64 = 4096;
/// `AT_FDCWD`.
const WORKING_DIRECTORY: i32 = -100;

struct Notes {
    sandboxed: Sandboxed,
    calls: Calls,
    /// The namespaces of the program's first process: mount and user.
    namespaces: Option<[PathBuf; 2]>,
    seen: BTreeSet<(Option<Act>, PathBuf)>,
    seen_bytes: usize,
    /// Ports of the loopback device that have been looked at.
    ports: BTreeSet<u16>,
    kept: Vec<Observed>,
}

impl Notes {
    fn new(sandboxed: Sandboxed) -> Self {
        let calls = Calls::new(filter::refused());
        Self {
            sandboxed,
            calls,
            namespaces: None,
            seen: BTreeSet::new(),
            seen_bytes: 0,
            ports: BTreeSet::new(),
            kept: Vec::new(),
        }
    }

    /// Notes a call. `is_valid` checks that it still waits, which means that what was read belongs to it.
    fn take(&mut self, call: &NotifiedCall, answer: CallAnswer, is_valid: impl Fn() -> bool) {
        if self.kept.len() >= MOST_KEPT || self.seen.len() >= MOST_KEPT || self.seen_bytes >= MOST_BYTES {
            return;
        }
        let Some((name, shape)) = self.calls.find(call.arch, call.number) else { return };
        let process = Process { thread: call.thread };
        let namespaces = process.namespaces();
        let first = self.namespaces.get_or_insert_with(|| namespaces.clone());
        let is_same = first.iter().zip(&namespaces).map(|(first, own)| first == own);
        let [has_mounts, has_users] = match is_same.collect::<Vec<_>>()[..] {
            [mounts, users] => [mounts, users],
            _ => [false; 2],
        };
        if answer != CallAnswer::GoOn {
            if is_valid() {
                self.keep(Observed::Call { name, is_nested: !has_users });
            }
            return;
        }
        if let Some(Shape::Paths([path])) = shape
            && !has_users
            && process.act(call, path).is_some_and(|(act, path)| act == Act::Change && is_id_map(&path))
            && is_valid()
        {
            self.keep(Observed::IdMap);
        }
        match shape {
            Some(Shape::Paths(paths)) if has_mounts && self.sandboxed.has_host_paths => {
                let acts = paths.iter().filter_map(|path| process.act(call, path));
                for (act, path) in acts.collect::<Vec<_>>() {
                    self.path(&process, act, path, &is_valid);
                }
            }
            Some(Shape::Address(argument)) => {
                let arguments = call.arguments.get(argument).zip(call.arguments.get(argument + 1));
                if let Some((place, length)) = arguments {
                    self.address(&process, (*place, *length), name, has_mounts, &is_valid);
                }
            }
            Some(Shape::Privileged) if is_valid() => {
                self.keep(Observed::Call { name, is_nested: !has_users })
            }
            // Other ABIs have another `struct msghdr`.
            Some(Shape::Message(argument)) if call.arch == NATIVE.0.audit_arch() => {
                if let Some((place, length)) = process.name_of_message(call.arguments.get(argument)) {
                    self.address(&process, (place, length), name, has_mounts, &is_valid);
                }
            }
            Some(Shape::Exit) => {
                if process.is_disk_full() && is_valid() {
                    self.keep(Observed::DiskFull);
                }
                let ProcessLimit { most, first } = self.sandboxed.processes;
                if has_mounts && process.count(first) >= most && is_valid() {
                    self.keep(Observed::ProcessesFull);
                }
            }
            _ => {}
        }
    }

    fn path(&mut self, process: &Process, act: Act, path: PathBuf, is_valid: &impl Fn() -> bool) {
        if is_virtual(&path) || !is_valid() {
            return;
        }
        if self.sandboxed.files.is_some_and(|most| process.open_files() >= most) {
            self.keep(Observed::FilesFull);
        }
        if self.seen.contains(&(Some(act), path.clone())) {
            return;
        }
        let last = match act {
            Act::Read | Act::Execute | Act::Connect | Act::Change | Act::WriteOrMake => LastLink::Followed,
            Act::Make | Act::Remove => LastLink::Kept,
        };
        let Some(root) = Root::of(process.thread) else { return };
        let inside = root.look(&path, last);
        if !is_valid() {
            return;
        }
        let is_hidden = self.sandboxed.hidden.iter().any(|hidden| path.starts_with(hidden));
        if is_allowed(act, &inside) && !is_hidden {
            if act == Act::Execute {
                self.keep(Observed::Ran(path));
            }
            return;
        }
        self.seen_bytes += path.as_os_str().len();
        self.seen.insert((Some(act), path.clone()));
        let outside = look_outside(&path);
        self.keep(Observed::Path { act, path, inside, outside });
    }

    fn address(
        &mut self,
        process: &Process,
        (place, length): (u64, u64),
        name: &str,
        has_mounts: bool,
        is_valid: &impl Fn() -> bool,
    ) {
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(MOST_ADDRESS);
        match address(&process.memory(place, length)) {
            Some(Address::Internet(address)) if is_valid() => {
                if name == "connect" && address.ip().is_loopback() && self.ports.insert(address.port()) {
                    let listens = |of: &str| is_listening(of, address.port());
                    if listens("self") && !listens(&process.thread.to_string()) && is_valid() {
                        self.keep(Observed::Service(address));
                    }
                }
                self.keep(match name {
                    "bind" => Observed::Bound(address),
                    _ => Observed::Address(address),
                });
            }
            Some(Address::Path(path)) if has_mounts && name != "bind" && self.sandboxed.has_host_paths => {
                if let Some(path) = process.absolute(WORKING_DIRECTORY, &path) {
                    self.path(process, Act::Connect, path, is_valid);
                }
            }
            _ => {}
        }
    }

    fn keep(&mut self, observed: Observed) {
        if !self.kept.contains(&observed) {
            self.kept.push(observed);
        }
    }
}

/// Returns whether a path names the map of user ids of some process.
fn is_id_map(path: &Path) -> bool {
    path.starts_with("/proc") && path.ends_with("uid_map")
}

/// Returns whether the sandbox lets a call succeed, or fail for a reason that it would have outside too.
fn is_allowed(act: Act, inside: &Inside) -> bool {
    let Inside { target, parent } = inside;
    let can_make = parent.as_ref().is_some_and(|parent| parent.is_writable || !parent.is_directory);
    match (act, target) {
        (Act::Read | Act::Execute | Act::Connect, target) => target.is_some(),
        (Act::Change | Act::WriteOrMake, Some(target)) => target.is_writable,
        (Act::Change, None) => false,
        (Act::Make, Some(_)) => true,
        (Act::Remove, None) => true,
        (Act::Make | Act::WriteOrMake, None) | (Act::Remove, Some(_)) => can_make,
    }
}

/// A thread that waits for an answer. Another one may get its number when it ends.
struct Process {
    thread: u32,
}

impl Process {
    fn file(&self, name: &str) -> PathBuf {
        format!("/proc/{}/{name}", self.thread).into()
    }

    fn namespaces(&self) -> [PathBuf; 2] {
        ["ns/mnt", "ns/user"].map(|name| fs::read_link(self.file(name)).unwrap_or_default())
    }

    /// Reads memory. Returns less if the rest cannot be read.
    fn memory(&self, place: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let read = File::open(self.file("mem")).and_then(|memory| memory.read_at(&mut bytes, place));
        bytes.truncate(read.unwrap_or(0));
        bytes
    }

    /// Reads a string, page by page, because the next page may not exist.
    fn string(&self, mut place: u64) -> Option<Vec<u8>> {
        let memory = File::open(self.file("mem")).ok()?;
        let mut string = Vec::new();
        while string.len() < MOST_PATH {
            let mut bytes = [0; 256];
            let room = usize::try_from(PAGE - place % PAGE).unwrap_or(bytes.len()).min(bytes.len());
            let read = memory.read_at(bytes.get_mut(..room)?, place).ok().filter(|read| *read > 0)?;
            let read_bytes = bytes.get(..read)?;
            match read_bytes.iter().position(|byte| *byte == 0) {
                Some(end) => {
                    string.extend(read_bytes.get(..end)?);
                    return Some(string);
                }
                None => string.extend(read_bytes),
            }
            place = place.checked_add(u64::try_from(read).ok()?)?;
        }
        None
    }

    /// Returns what a call does with one of its paths, which is absolute.
    fn act(&self, call: &NotifiedCall, path: &PathArgument) -> Option<(Act, PathBuf)> {
        let argument = |index: usize| call.arguments.get(index).copied();
        let name = self.string(argument(path.path)?)?;
        if name.is_empty() {
            return None;
        }
        let directory = match path.directory {
            // A descriptor is an `int`: the kernel ignores the upper half.
            #[expect(clippy::cast_possible_truncation, reason = "the kernel truncates it too")]
            Some(directory) => (argument(directory)? as u32).cast_signed(),
            None => WORKING_DIRECTORY,
        };
        let act = match path.access {
            Access::Is(act) => act,
            Access::Flags(flags) => opened(argument(flags)?),
            Access::How(how) => {
                let flags = self.memory(argument(how)?, size_of::<u64>());
                opened(u64::from_ne_bytes(flags.try_into().ok()?))
            }
        };
        Some((act, self.absolute(directory, Path::new(&OsString::from_vec(name)))?))
    }

    fn absolute(&self, directory: i32, path: &Path) -> Option<PathBuf> {
        if path.is_absolute() {
            return Some(path.to_owned());
        }
        let directory = match directory {
            WORKING_DIRECTORY => self.file("cwd"),
            number => self.file(&format!("fd/{number}")),
        };
        let directory = fs::read_link(directory).ok().filter(|directory| directory.is_absolute())?;
        Some(directory.join(path))
    }

    fn open_files(&self) -> u64 {
        fs::read_dir(self.file("fd")).map_or(0, |files| u64::try_from(files.count()).unwrap_or(u64::MAX))
    }

    /// Returns the place and the length of the address in a `struct msghdr`.
    fn name_of_message(&self, place: Option<&u64>) -> Option<(u64, u64)> {
        let header = self.memory(*place?, 12);
        let name = u64::from_ne_bytes(header.get(..8)?.try_into().ok()?);
        let length = u32::from_ne_bytes(header.get(8..12)?.try_into().ok()?);
        (name != 0).then_some((name, length.into()))
    }

    /// Returns how many processes and threads of the sandbox have this number or a higher one, as it numbers them.
    fn count(&self, first: u32) -> u64 {
        let numbers = |directory: PathBuf| {
            let entries = fs::read_dir(directory).into_iter().flatten();
            entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        };
        let tasks = numbers(self.file("root/proc"))
            .flat_map(|process| numbers(self.file(&format!("root/proc/{process}/task"))));
        u64::try_from(tasks.filter(|task| *task >= first).count()).unwrap_or(u64::MAX)
    }

    fn is_disk_full(&self) -> bool {
        statvfs(self.file("root/tmp")).is_ok_and(|found| found.f_blocks > 0 && found.f_bavail == 0)
    }
}

/// Returns whether a socket listens at a TCP port, in the network namespace of a process (proc_net_tcp(5)).
fn is_listening(process: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let ending = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        let table = fs::read_to_string(format!("/proc/{process}/net/{table}")).unwrap_or_default();
        table.lines().any(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            fields.next().is_some_and(|own| own.ends_with(&ending)) && fields.nth(1) == Some(LISTEN)
        })
    })
}

/// Returns what open(2) does with these flags.
fn opened(flags: u64) -> Act {
    let flags = OFlags::from_bits_retain(u32::try_from(flags & u64::from(u32::MAX)).unwrap_or_default());
    if flags.contains(OFlags::PATH) {
        return Act::Read;
    }
    let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC);
    match (flags.contains(OFlags::CREATE), writes) {
        (true, _) => Act::WriteOrMake,
        (false, true) => Act::Change,
        (false, false) => Act::Read,
    }
}

/// An address of a socket.
#[derive(Debug, PartialEq, Eq)]
enum Address {
    Internet(SocketAddr),
    Path(PathBuf),
}

/// Decodes `struct sockaddr`.
fn address(bytes: &[u8]) -> Option<Address> {
    const UNIX: u16 = 1;
    const INTERNET: u16 = 2;
    const INTERNET_6: u16 = 10;
    let part = |from: usize, to: usize| bytes.get(from..to);
    let port = || Some(u16::from_be_bytes(part(2, 4)?.try_into().ok()?));
    let ip: IpAddr = match u16::from_ne_bytes(part(0, 2)?.try_into().ok()?) {
        INTERNET => Ipv4Addr::from(<[u8; 4]>::try_from(part(4, 8)?).ok()?).into(),
        INTERNET_6 => Ipv6Addr::from(<[u8; 16]>::try_from(part(8, 24)?).ok()?).to_canonical(),
        UNIX => {
            let name = bytes.get(2..)?.split(|byte| *byte == 0).next()?;
            // An abstract name begins with NUL.
            let path = PathBuf::from(OsString::from_vec(name.to_vec()));
            return (!name.is_empty()).then_some(Address::Path(path));
        }
        _ => return None,
    };
    Some(Address::Internet(SocketAddr::new(ip, port()?)))
}

#[cfg(test)]
mod tests {
    use super::{Act, Address, Process, address, opened};
    use rustix::fs::OFlags;

    #[test]
    fn strings_are_read_up_to_the_end_of_mapped_memory() {
        let own = Process { thread: std::process::id() };
        let string = std::ffi::CString::new("x".repeat(1000)).unwrap();
        assert_eq!(own.string(string.as_ptr().addr() as u64).unwrap(), string.as_bytes());
        assert_eq!(own.string(1), None);
        assert_eq!(own.string(u64::MAX), None);
        let endless = vec![1_u8; 10_000];
        assert_eq!(own.string(endless.as_ptr().addr() as u64), None);
        assert!(own.memory(0, 8).is_empty());
    }

    #[test]
    fn addresses_are_decoded() {
        let internet = [2, 0, 0, 80, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(address(&internet), Some(Address::Internet("192.0.2.1:80".parse().unwrap())));
        let mut six = [0; 28];
        six[0] = 10;
        six[3] = 53;
        six[23] = 1;
        assert_eq!(address(&six), Some(Address::Internet("[::1]:53".parse().unwrap())));
        assert_eq!(address(b"\x01\0/run/x\0y"), Some(Address::Path("/run/x".into())));
        assert_eq!(address(b"\x01\0\0abstract"), None);
        for short in 0..8 {
            assert_eq!(address(&internet[..short]), None);
        }
    }

    #[test]
    fn flags_of_open_tell_what_it_does() {
        let is = |flags: OFlags, act| assert_eq!(opened(u64::from(flags.bits())), act, "{flags:?}");
        is(OFlags::RDONLY, Act::Read);
        is(OFlags::RDWR, Act::Change);
        is(OFlags::RDONLY | OFlags::CREATE, Act::WriteOrMake);
        is(OFlags::PATH | OFlags::RDWR, Act::Read);
    }
}
