//! From a command to a child.

use crate::child::output::output;
use crate::child::{Child, Output, verdict, wait};
use crate::clone::{self, Call, CloneRequest, KnownBy, Returns};
use crate::command::Command;
use crate::command::idmap::{self, IdMap, IdMaps};
use crate::command::program::find_program;
use crate::command::stdio::{Pipes, Stdio, Unset};
use crate::error::{Error, Reason};
use crate::list::{self, Surroundings};
use crate::memory::pool::ChildMemory;
use crate::memory::writer::{Memory, Sharing};
use crate::time_namespace::Away;
use husk_listing::Line;
use husk_script::Request;
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::{Errno, Fd, Pid};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{WaitId, WaitIdOptions, getegid, geteuid};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitStatus;

/// How long the caller wants to wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// Until there is a child.
    Cloned,
    /// Until the child has become its program.
    Execed,
}

/// # Starting it
impl Command {
    /// Starts the process and returns at once, while it is on its way to its program. What goes
    /// wrong there is returned by whatever asks the [`Child`] next:
    /// [`wait_for_exec`](Child::wait_for_exec), [`try_wait`](Child::try_wait),
    /// [`wait`](Child::wait).
    ///
    /// Only a child whose [ids](Self::uid_map) we must map is waited for until it has asked.
    ///
    /// # Errors
    ///
    /// If the program is not found in PATH, a setting makes no sense, or the kernel refuses to
    /// make the process.
    pub fn spawn(&self) -> Result<Child, Error> {
        launch(self, Unset::Inherit, Until::Cloned)
    }

    /// Starts the process and returns when it has become its program.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn), and if a step fails or the child dies before exec. The child is
    /// then waited for and nothing of it is left.
    pub fn spawn_and_exec(&self) -> Result<Child, Error> {
        launch(self, Unset::Inherit, Until::Execed)
    }

    /// Runs the process to its end.
    ///
    /// # Errors
    ///
    /// As [`spawn_and_exec`](Self::spawn_and_exec).
    pub fn status(&self) -> Result<ExitStatus, Error> {
        run(self)
    }

    /// Runs the process to its end and returns what it wrote: to standard output and standard
    /// error, as far as they are not set to something else.
    ///
    /// # Errors
    ///
    /// As [`spawn_and_exec`](Self::spawn_and_exec), and if reading fails.
    pub fn output(&self) -> Result<Output, Error> {
        output(launch(self, Unset::Capture, Until::Cloned)?, &[])
    }

    /// The same with `input` on standard input, whatever [`stdin`](Self::stdin) says. A program that does not read it all is no error.
    ///
    /// Writing to a program that has gone raises SIGPIPE, which every Rust program ignores unless
    /// it asks not to.
    ///
    /// # Errors
    ///
    /// As [`output`](Self::output).
    pub fn output_with_input(&self, input: &[u8]) -> Result<Output, Error> {
        output(launch(self, Unset::FeedAndCapture, Until::Cloned)?, input)
    }
}

/// # Looking at it
impl Command {
    /// The list that a child would perform, a line for each step: what this command means, in the
    /// order in which it happens. Descriptors made for one child only, such as pipes, have other
    /// numbers the next time.
    ///
    /// ```
    /// # fn main() -> Result<(), husk_spawn::Error> {
    /// let listing = husk_spawn::Command::new("/bin/true").current_dir("/srv").uid(1000).listing()?;
    /// assert!(listing.iter().any(|line| line == "cwd /srv"));
    /// assert_eq!(listing.last().map(String::as_str), Some("exec /bin/true"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If a setting makes no sense or the program is not found in PATH.
    pub fn listing(&self) -> Result<Vec<String>, Error> {
        listing(self)
    }
}

/// The lines of the list that [`launch`] would have performed.
fn listing(command: &Command) -> Result<Vec<String>, Error> {
    command.check()?;
    let unset = Unset::Inherit;
    let pipes = Pipes::open(&command.streams, unset)?;
    let memory = Memory::default();
    let around =
        Surroundings { call: Call::Clone3, unset, pipes: &pipes, channel: None, answers: None, stack: 0..0 };
    let script = list::write(command, &around, &memory)?;
    Ok(script.steps.iter().map(|step| Line(step).to_string()).collect())
}

/// Starts the command's process.
fn launch(command: &Command, unset: Unset, until: Until) -> Result<Child, Error> {
    let Started { pid, pidfd, memory, pipes, ours, asks } = start(command, unset, until, KnownBy::Pidfd)?;
    let pidfd = pidfd.ok_or_else(|| Error::new("pidfd", Errno::BADF))?;
    let mut child = Child::new(pid, pidfd, memory, command.sharing, pipes, ours, command.kill_on_drop);
    if asks {
        // What the child is told nothing of fails there too; ours is the better error.
        if let Err(error) = answer(command, &mut child) {
            child.give_up();
            return Err(error);
        }
    }
    if command.whole.is_none() && child.runs_in_second_process() {
        // So that the caller never sees the process that makes way.
        child.wait_for_fork()?;
    }
    if until == Until::Execed {
        child.wait_for_exec()?;
    }
    Ok(child)
}

/// Runs the command's process to its end.
fn run(command: &Command) -> Result<ExitStatus, Error> {
    if command.whole.is_some()
        || command.notify_release
        || command.runs_in_second_process()
        || command.sharing == Sharing::Copied
        || command.maps.need_parent(command.groups.as_deref())
    {
        return launch(command, Unset::Inherit, Until::Cloned)?.wait();
    }
    let Started { pid, mut memory, pipes, .. } = start(command, Unset::Inherit, Until::Cloned, KnownBy::Pid)?;
    // A program that reads to the end of its input comes to it.
    drop(pipes.stdin);
    let status = wait(WaitId::Pid(pid), WaitIdOptions::empty(), pid)?;
    memory.update_release();
    // Without NOHANG the kernel returns only with a status.
    verdict(&memory, status.ok_or_else(|| Error::new("wait", Errno::CHILD))?)
}

/// A process on its way.
struct Started {
    pid: Pid,
    pidfd: Option<OwnedFd>,
    memory: ChildMemory,
    pipes: Pipes,
    /// Our end of the socket to it.
    ours: Option<OwnedFd>,
    /// Whether it will ask for its id maps.
    asks: bool,
}

fn start(command: &Command, unset: Unset, until: Until, known_by: KnownBy) -> Result<Started, Error> {
    command.check()?;
    let mut pipes = Pipes::open(&command.streams, unset)?;
    let is_whole = command.whole.is_some();
    let asks =
        if is_whole { !command.maps.is_empty() } else { command.maps.need_parent(command.groups.as_deref()) };
    let is_unseen = command.runs_in_second_process() || command.sharing == Sharing::Copied;
    let channel = if asks || is_whole || command.notify_release || is_unseen {
        Some(Channel::open(command)?)
    } else {
        None
    };
    // A thread cannot return from a time namespace while a child shares its memory (EUSERS).
    let stays = command.joins(Namespaces::TIME)
        && !command.joins(Namespaces::USER)
        && !command.runs_in_second_process();
    if stays && (asks || is_whole) {
        let why = "cannot be had with a child that waits for us";
        return Err(Error::new("join time", Reason::Conflict(why)));
    }
    let waits = until == Until::Execed || stays;
    let returns = if waits && !asks && !is_whole { Returns::WhenReleased } else { Returns::AtOnce };

    let memory_for = |call| {
        let theirs = channel.as_ref().map(|channel| Fd::of(&channel.theirs));
        let answers = channel.as_ref().filter(|_| asks).map(|channel| Fd::of(&channel.ours));
        ChildMemory::new(command.initial_namespaces(), |memory, stack| {
            let (start, size) = stack.extent();
            let stack = start..start + size;
            let around = Surroundings { call, unset, pipes: &pipes, channel: theirs, answers, stack };
            list::write(command, &around, memory)
        })
    };
    let cgroup = command.cgroup.as_ref().map(OwnedFd::as_fd);
    let request = CloneRequest {
        namespaces: command.initial_namespaces(),
        cgroup,
        pids: &command.pids,
        returns,
        sharing: command.sharing,
        known_by,
    };
    let mut used = memory_for(Call::Clone3)?;
    if used.runs_in_second_process() && channel.is_none() {
        let why = "its exec can be seen only with Command::notify_release";
        return Err(Error::new("clone-parent", Reason::Conflict(why)));
    }
    let away = Away::go(command)?;
    let mut cloned = clone::start(&used, &request, Call::Clone3);
    if cloned.as_ref().is_err_and(|errno| *errno == Errno::NOSYS)
        && request.can_do_without_clone3()
        && !is_whole
    {
        used = memory_for(Call::Clone)?;
        cloned = clone::start(&used, &request, Call::Clone);
    }
    away.back()?;
    let (pid, pidfd) = cloned.map_err(|errno| Error::new(request.to_string(), errno))?;

    pipes.close_theirs();
    let ours = channel.map(|channel| channel.ours);
    Ok(Started { pid, pidfd, memory: used, pipes, ours, asks })
}

/// The socket between parent and child.
struct Channel {
    ours: OwnedFd,
    theirs: OwnedFd,
}

impl Channel {
    fn open(command: &Command) -> Result<Self, Error> {
        let error = |errno| Error::new("channel", errno);
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(error)?;
        // The child's end must not have a number that the program wants for something else.
        let highest = command.fds.iter().map(|(to, _)| *to).max();
        let theirs = match highest {
            Some(highest) if Fd::of(&theirs) <= highest => {
                fcntl_dupfd_cloexec(&theirs, highest.number().saturating_add(1)).map_err(error)?
            }
            _ => theirs,
        };
        Ok(Self { ours, theirs })
    }
}

/// Does what the child asks for first: its id maps.
fn answer(command: &Command, child: &mut Child) -> Result<(), Error> {
    match child.next_request()? {
        Some(Request::IdMaps) => {
            write_maps(&command.maps, child.pid())?;
            child.go_on()
        }
        // A child that fails before it asks closes its end; its journal says why.
        None => Ok(()),
        Some(_) => Err(Error::new("request id-maps", Errno::PROTO)),
    }
}

/// Writes the id maps of a child that asks for them.
fn write_maps(maps: &IdMaps, child: Pid) -> Result<(), Error> {
    if !maps.uids.is_empty() {
        UIDS.write(child, &maps.uids)?;
    }
    if !maps.gids.is_empty() {
        // Without privileges this is the price of a map at all.
        if !geteuid().is_root() && idmap::are_own(&maps.gids, getegid().as_raw()) {
            write_file(child, "setgroups", "deny")?;
        }
        GIDS.write(child, &maps.gids)?;
    }
    Ok(())
}

fn write_file(child: Pid, file: &str, text: &str) -> Result<(), Error> {
    let path = format!("/proc/{}/{file}", child.as_raw_pid());
    fs::write(&path, text).map_err(|error| Error::from_io(path, &error))
}

/// A file of `/proc` that takes an id map, and the program that may write to it where this process may not.
struct MapFile {
    file: &'static str,
    /// The program with privileges for it (newuidmap(1)).
    helper: &'static str,
    missing: &'static str,
    refused: &'static str,
}

const UIDS: MapFile = MapFile {
    file: "uid_map",
    helper: "newuidmap",
    missing: "newuidmap is missing: install uidmap",
    refused: "is there a line for this user in /etc/subuid, and are these ids in its range?",
};

const GIDS: MapFile = MapFile {
    file: "gid_map",
    helper: "newgidmap",
    missing: "newgidmap is missing: install uidmap",
    refused: "is there a line for this user in /etc/subgid, and are these ids in its range?",
};

impl MapFile {
    fn write(&self, child: Pid, maps: &[IdMap]) -> Result<(), Error> {
        match write_file(child, self.file, &idmap::text(maps)) {
            // Who may not map these ids may be allowed to have them mapped.
            Err(error) if error.reason() == Reason::Errno(Errno::PERM) && !geteuid().is_root() => {
                self.have_written(child, maps)
            }
            written => written,
        }
    }

    fn have_written(&self, child: Pid, maps: &[IdMap]) -> Result<(), Error> {
        let act = format!("{} of {}", self.file, idmap::text(maps).trim_end().replace('\n', ", "));
        let Some(helper) = find_program(self.helper) else {
            return Err(Error::new(act, Reason::Conflict(self.missing)));
        };
        let numbers = maps.iter().flat_map(|map| [map.inside, map.outside, map.count]);
        let mut command = Command::new(helper);
        command.arg(child.as_raw_pid().to_string()).args(numbers.map(|number| number.to_string()));
        let output = command.stdin(Stdio::null()).output()?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Error::new(format!("{act}: {}", said.trim()), Reason::Conflict(self.refused)))
    }
}
