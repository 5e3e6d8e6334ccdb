//! From a command to a child.

use crate::child::{Child, verdict, wait};
use crate::clone::{self, Birth, Call, KnownBy, Returns};
use crate::command::Command;
use crate::error::{Error, Reason};
use crate::join::Away;
use crate::list::{self, Surroundings};
use crate::pool::{Berth, Sharing};
use crate::stdio::{Pipes, Unset};
use crate::writer::Memory;
use husk_listing::Line;
use husk_script::Request;
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::{Errno, Fd, Pid};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{WaitId, WaitIdOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitStatus;

/// How long the caller wants to wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// Until there is a child.
    Cloned,
    /// Until the child has become its program.
    Execed,
}

/// The lines of the list that [`launch`] would have performed.
pub(crate) fn listing(command: &Command) -> Result<Vec<String>, Error> {
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
pub(crate) fn launch(command: &Command, unset: Unset, until: Until) -> Result<Child, Error> {
    let Started { pid, pidfd, berth, pipes, ours, asks } = start(command, unset, until, KnownBy::Pidfd)?;
    let pidfd = pidfd.ok_or_else(|| Error::new("pidfd", Errno::BADF))?;
    let mut child = Child::new(pid, pidfd, berth, command.memory, pipes, ours, command.kill_on_drop);
    if asks {
        // What the child is told nothing of fails there too; ours is the better error.
        if let Err(error) = answer(command, &mut child) {
            child.give_up();
            return Err(error);
        }
    }
    if command.whole.is_none() && child.is_born_again() {
        // So that the caller never sees the process that makes way.
        child.wait_for_birth()?;
    }
    if until == Until::Execed {
        child.wait_for_exec()?;
    }
    Ok(child)
}

/// Runs the command's process to its end.
pub(crate) fn run(command: &Command) -> Result<ExitStatus, Error> {
    if command.whole.is_some()
        || command.notify_release
        || command.is_born_again()
        || command.memory == Sharing::Copied
        || command.maps.need_parent(command.groups.as_deref())
    {
        return launch(command, Unset::Inherit, Until::Cloned)?.wait();
    }
    let Started { pid, mut berth, pipes, .. } = start(command, Unset::Inherit, Until::Cloned, KnownBy::Pid)?;
    // A program that reads to the end of its input comes to it.
    drop(pipes.stdin);
    let status = wait(WaitId::Pid(pid), WaitIdOptions::empty(), pid)?;
    berth.settle();
    // Without NOHANG the kernel returns only with a status.
    verdict(&berth, status.ok_or_else(|| Error::new("wait", Errno::CHILD))?)
}

/// A process on its way.
struct Started {
    pid: Pid,
    pidfd: Option<OwnedFd>,
    berth: Berth,
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
    let is_unseen = command.is_born_again() || command.memory == Sharing::Copied;
    let channel = if asks || is_whole || command.notify_release || is_unseen {
        Some(Channel::open(command)?)
    } else {
        None
    };
    // A thread cannot return from a time namespace while a child shares its memory (EUSERS).
    let stays =
        command.joins(Namespaces::TIME) && !command.joins(Namespaces::USER) && !command.is_born_again();
    if stays && (asks || is_whole) {
        let why = "cannot be had with a child that waits for us";
        return Err(Error::new("join time", Reason::Conflict(why)));
    }
    let waits = until == Until::Execed || stays;
    let returns = if waits && !asks && !is_whole { Returns::WhenReleased } else { Returns::AtOnce };

    let berth = |call| {
        let theirs = channel.as_ref().map(|channel| Fd::of(&channel.theirs));
        let answers = channel.as_ref().filter(|_| asks).map(|channel| Fd::of(&channel.ours));
        Berth::new(command.born_in(), |memory, stack| {
            let (start, size) = stack.extent();
            let stack = start..start + size;
            let around = Surroundings { call, unset, pipes: &pipes, channel: theirs, answers, stack };
            list::write(command, &around, memory)
        })
    };
    let cgroup = command.cgroup.as_ref().map(OwnedFd::as_fd);
    let birth = Birth {
        namespaces: command.born_in(),
        cgroup,
        pids: &command.pids,
        returns,
        memory: command.memory,
        known_by,
    };
    let mut used = berth(Call::Clone3)?;
    if used.is_born_again() && channel.is_none() {
        let why = "its exec can be seen only with Command::notify_release";
        return Err(Error::new("clone-parent", Reason::Conflict(why)));
    }
    let away = Away::go(command)?;
    let mut cloned = clone::start(&used, &birth, Call::Clone3);
    if cloned.as_ref().is_err_and(|errno| *errno == Errno::NOSYS)
        && birth.can_do_without_clone3()
        && !is_whole
    {
        used = berth(Call::Clone)?;
        cloned = clone::start(&used, &birth, Call::Clone);
    }
    away.back()?;
    let (pid, pidfd) = cloned.map_err(|errno| Error::new(birth.to_string(), errno))?;

    pipes.close_theirs();
    let ours = channel.map(|channel| channel.ours);
    Ok(Started { pid, pidfd, berth: used, pipes, ours, asks })
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
            command.maps.write_for(child.pid())?;
            child.go_on()
        }
        // A child that fails before it asks closes its end; its journal says why.
        None => Ok(()),
        Some(_) => Err(Error::new("request id-maps", Errno::PROTO)),
    }
}
