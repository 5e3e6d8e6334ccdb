//! From a command to a child.

use crate::child::Child;
use crate::clone::{self, Birth, Call, Returns};
use crate::command::Command;
use crate::error::{Error, Reason};
use crate::join::Away;
use crate::list::{self, Surroundings};
use crate::pool::Berth;
use crate::stdio::{Pipes, Unset};
use husk_script::Request;
use husk_script::report::GO_ON;
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::{Errno, Fd, Pid};
use rustix::io::{fcntl_dupfd_cloexec, read, retry_on_intr};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use std::os::fd::{AsFd, OwnedFd};

/// How long the caller wants to wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// Until there is a child.
    Cloned,
    /// Until the child has become its program.
    Execed,
}

/// Starts the command's process.
pub(crate) fn launch(command: &Command, unset: Unset, until: Until) -> Result<Child, Error> {
    command.check()?;
    let mut pipes = Pipes::open(&command.streams, unset)?;
    let asks = !command.maps.is_empty() && (command.groups.is_some() || !command.maps.are_own_ids());
    let channel = if asks || command.notify_release { Some(Channel::open(command)?) } else { None };
    // A thread cannot return from a time namespace while a child shares its memory (EUSERS).
    let stays = command.joins(Namespaces::TIME);
    if stays && asks {
        let why = "cannot be had with id maps that the child must wait for";
        return Err(Error::new("join time", Reason::Conflict(why)));
    }
    let waits = until == Until::Execed || stays;
    let returns = if waits && !asks { Returns::WhenReleased } else { Returns::AtOnce };

    let berth = |call| {
        let theirs = channel.as_ref().map(|channel| Fd::of(&channel.theirs));
        let answers = channel.as_ref().filter(|_| asks).map(|channel| Fd::of(&channel.ours));
        let around = Surroundings { call, unset, pipes: &pipes, channel: theirs, answers };
        Berth::new(|memory| list::write(command, &around, memory))
    };
    let cgroup = command.cgroup.as_ref().map(OwnedFd::as_fd);
    let birth = Birth { namespaces: command.namespaces, cgroup, pids: &command.pids, returns };
    let mut used = berth(Call::Clone3)?;
    let away = Away::go(&command.joins)?;
    let mut cloned = clone::start(&used, &birth, Call::Clone3);
    if cloned.as_ref().is_err_and(|errno| *errno == Errno::NOSYS) {
        used = berth(Call::Clone)?;
        cloned = clone::start(&used, &birth, Call::Clone);
    }
    away.back()?;
    let (pid, pidfd) = cloned.map_err(|errno| Error::new("clone", errno))?;

    pipes.close_theirs();
    let ours = channel.map(|channel| channel.ours);
    let mut child = Child::new(pid, pidfd, used, pipes, ours, command.kill_on_drop);
    if asks {
        // What the child is told nothing of fails there too; ours is the better error.
        if let Err(error) = answer(command, pid, child.channel()) {
            child.give_up();
            return Err(error);
        }
    }
    if until == Until::Execed {
        child.wait_for_exec()?;
    }
    Ok(child)
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

/// Does what the child asks for, which is one thing: its id maps.
fn answer(command: &Command, child: Pid, channel: Option<&OwnedFd>) -> Result<(), Error> {
    let Some(channel) = channel else { return Ok(()) };
    let failed = |errno| Error::new("request id-maps", errno);
    let mut request = [0];
    let length = retry_on_intr(|| read(channel, &mut request)).map_err(failed)?;
    match Request::from_byte(request[0]) {
        // A child that fails before it asks closes its end; its journal says why.
        _ if length == 0 => Ok(()),
        Some(Request::IdMaps) => {
            command.maps.write_for(child)?;
            send(channel, &[GO_ON], SendFlags::NOSIGNAL).map_err(failed).map(drop)
        }
        None => Err(failed(Errno::PROTO)),
    }
}
