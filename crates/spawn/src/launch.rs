//! Starts a command's child.

use crate::child::output::{self, Ends};
use crate::child::{Child, Output, verdict, wait};
use crate::clone::{self, CloneCall, CloneRequest, KnownBy, Returns};
use crate::command::Command;
use crate::command::idmap::{self, IdMap, IdMaps};
use crate::command::program::find_program;
use crate::command::stdio::{Connected, Pipes, Stdio, Unset};
use crate::error::{Error, Reason};
use crate::list::{self, SpawnSetup};
use crate::memory::pool::ChildMemory;
use crate::memory::writer::{ListMemory, Sharing};
use crate::time_namespace::JoinedTimeNamespace;
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

/// The event at which a start returns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// The child exists.
    Cloned,
    /// The child has execed its program.
    Execed,
}

/// # Start
impl Command {
    /// Starts the process and returns at once, before it has execed. Later errors are returned by the next
    /// call on the [`Child`]: [`wait_for_exec`](Child::wait_for_exec), [`try_wait`](Child::try_wait) or
    /// [`wait`](Child::wait).
    ///
    /// `spawn` waits longer in two cases. If this process must write the child's [id maps](Self::uid_map), it waits
    /// until the child has asked for them. If a second process becomes the program, it waits until that process
    /// exists; see [`join`](Self::join), also for time namespaces.
    ///
    /// # Errors
    ///
    /// If the program is not found in PATH, settings contradict each other, or the kernel cannot create the
    /// process.
    pub fn spawn(&self) -> Result<Child, Error> {
        launch(self, Unset::Inherit, Until::Cloned)
    }

    /// Starts the process and returns when it has execed its program.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn), and if a step fails or the child dies before exec. The child has then been
    /// reaped.
    pub fn spawn_and_exec(&self) -> Result<Child, Error> {
        launch(self, Unset::Inherit, Until::Execed)
    }

    /// Runs the process and returns its exit status.
    ///
    /// # Errors
    ///
    /// As [`spawn_and_exec`](Self::spawn_and_exec).
    pub fn status(&self) -> Result<ExitStatus, Error> {
        run(self)
    }

    /// Runs the process and returns its exit status and what it wrote. Standard output and standard error are
    /// captured unless they are set to something else.
    ///
    /// # Errors
    ///
    /// As [`spawn_and_exec`](Self::spawn_and_exec), and if reading fails.
    pub fn output(&self) -> Result<Output, Error> {
        one_output(launch(self, Unset::Capture, Until::Cloned)?, &[])
    }

    /// Like [`output`](Self::output), with `input` on standard input, whatever [`stdin`](Self::stdin) says.
    /// It is not an error if the program does not read all of it.
    ///
    /// Writing after the program has exited raises SIGPIPE, which Rust programs ignore by default.
    ///
    /// # Errors
    ///
    /// As [`output`](Self::output).
    pub fn output_with_input(&self, input: &[u8]) -> Result<Output, Error> {
        one_output(launch(self, Unset::FeedAndCapture, Until::Cloned)?, input)
    }
}

/// # Inspect
impl Command {
    /// Returns the list that a child would perform, one line per step, in order. Descriptors created for a
    /// single child, such as pipes, have other numbers each time.
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
    /// If settings contradict each other or the program is not found in PATH.
    pub fn listing(&self) -> Result<Vec<String>, Error> {
        listing(self)
    }
}

/// Returns the lines of the list that [`launch`] would perform.
fn listing(command: &Command) -> Result<Vec<String>, Error> {
    command.check()?;
    let unset = Unset::Inherit;
    let pipes = Pipes::open(&command.streams, unset, Connected::default())?;
    let memory = ListMemory::default();
    let around = SpawnSetup {
        call: CloneCall::Clone3,
        unset,
        pipes: &pipes,
        channel: None,
        answers: None,
        stack: 0..0,
    };
    let script = list::write(command, &around, &memory)?;
    Ok(script.steps.iter().map(|step| Line(step).to_string()).collect())
}

/// Starts the command's process.
fn launch(command: &Command, unset: Unset, until: Until) -> Result<Child, Error> {
    launch_connected(command, unset, until, Connected::default())
}

/// Starts the command's process as a part of a pipeline. Closes the connected streams here, also after a failure.
pub(crate) fn launch_connected(
    command: &Command,
    unset: Unset,
    until: Until,
    connected: Connected,
) -> Result<Child, Error> {
    let Started { pid, pidfd, memory, pipes, ours, asks } =
        start(command, unset, until, KnownBy::Pidfd, connected)?;
    let pidfd = pidfd.ok_or_else(|| Error::new("pidfd", Errno::BADF))?;
    let mut child = Child::new(pid, pidfd, memory, command.sharing, pipes, ours, command.kill_on_drop);
    if asks {
        // A child that gets no answer fails too; the error from here says more.
        if let Err(error) = answer(command, &mut child) {
            child.give_up();
            return Err(error);
        }
    }
    if command.whole.is_none() && child.runs_in_second_process() {
        // The caller never sees the process that exits in favour of the second.
        child.wait_for_fork()?;
    }
    if until == Until::Execed {
        child.wait_for_exec()?;
    }
    Ok(child)
}

/// Writes a child's input, reads its output, and waits for it.
fn one_output(mut child: Child, input: &[u8]) -> Result<Output, Error> {
    let ends = Ends::of(&mut child);
    let [stdout, stderr] = output::transfer(ends.stdin, ends.outputs, input)?;
    Ok(Output { status: child.wait()?, stdout, stderr })
}

/// Runs the command's process until it ends.
fn run(command: &Command) -> Result<ExitStatus, Error> {
    if command.whole.is_some()
        || command.notify_release
        || command.runs_in_second_process()
        || command.sharing == Sharing::Copied
        // A pidfd is needed to find out whether the filter has killed it in exec.
        || command.is_filtered()
        || command.maps.need_parent(command.groups.as_deref())
    {
        return launch(command, Unset::Inherit, Until::Cloned)?.wait();
    }
    let Started { pid, mut memory, pipes, .. } =
        start(command, Unset::Inherit, Until::Cloned, KnownBy::Pid, Connected::default())?;
    // Closes standard input, so that a program that reads it sees the end of file.
    drop(pipes.stdin);
    let status = wait(WaitId::Pid(pid), WaitIdOptions::empty(), pid)?;
    memory.update_release();
    // Without NOHANG the kernel returns only with a status.
    verdict(&memory, status.ok_or_else(|| Error::new("wait", Errno::CHILD))?)
}

/// A process that has been cloned and may not have execed.
struct Started {
    pid: Pid,
    pidfd: Option<OwnedFd>,
    memory: ChildMemory,
    pipes: Pipes,
    /// This process's end of the socket.
    ours: Option<OwnedFd>,
    /// Whether the child will request its id maps.
    asks: bool,
}

fn start(
    command: &Command,
    unset: Unset,
    until: Until,
    known_by: KnownBy,
    connected: Connected,
) -> Result<Started, Error> {
    command.check()?;
    let mut pipes = Pipes::open(&command.streams, unset, connected)?;
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
        let answers =
            channel.as_ref().filter(|_| asks || command.notify_release).map(|channel| Fd::of(&channel.ours));
        ChildMemory::new(command.initial_namespaces(), |memory, stack| {
            let (start, size) = stack.extent();
            let stack = start..start + size;
            let around = SpawnSetup { call, unset, pipes: &pipes, channel: theirs, answers, stack };
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
    let mut used = memory_for(CloneCall::Clone3)?;
    if used.runs_in_second_process() && channel.is_none() {
        let why = "its exec can be seen only with Command::notify_release";
        return Err(Error::new("clone-parent", Reason::Conflict(why)));
    }
    let away = JoinedTimeNamespace::go(command)?;
    let mut cloned = clone::start(&used, &request, CloneCall::Clone3);
    if cloned.as_ref().is_err_and(|errno| *errno == Errno::NOSYS)
        && request.can_do_without_clone3()
        && !is_whole
    {
        used = memory_for(CloneCall::Clone)?;
        cloned = clone::start(&used, &request, CloneCall::Clone);
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
        // The child's end must not have a number that the program wants for another descriptor.
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

/// Answers the child's first request, which is for its id maps.
fn answer(command: &Command, child: &mut Child) -> Result<(), Error> {
    match child.next_request()? {
        Some(Request::IdMaps) => {
            write_maps(&command.maps, child.pid())?;
            child.go_on()
        }
        // A child that fails before its request closes its end; its journal says why.
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
        // An unprivileged process may write a gid map only after setgroups is denied.
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

/// A file of `/proc` that takes an id map, and the helper program for callers that may not write to it.
struct MapFile {
    file: &'static str,
    /// A program with the necessary privileges (newuidmap(1)).
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
            // A process that may not map these ids may be allowed to use the helper.
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
