//! Holds a child between clone and exec.

use husk_spawn::sys::Fd;
use husk_spawn::{Child, Command, Step};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{read, write};
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::OwnedFd;

/// Two pipes: the child reports on one, and waits on the other.
pub(crate) struct Held {
    here: (OwnedFd, OwnedFd),
    go_on: (OwnedFd, OwnedFd),
}

impl Held {
    /// Makes the children of `command` wait just before exec, after the identity and the rest are set.
    pub(crate) fn before_exec(command: &mut Command) -> Self {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let held = Self { here: pipe(), go_on: pipe() };
        let [here, go_on, ours] = [&held.here.1, &held.go_on.0, &held.go_on.1].map(Fd::of);
        command.final_steps(move |writer| {
            // Closes the child's copy of this process's end, so that the child does not wait forever if this
            // process dies.
            writer.push(Step::Close { fd: ours.into() });
            writer.push(Step::Write { fd: here.into(), bytes: b"." });
            writer.push(Step::Await { fd: go_on.into() });
            Ok(())
        });
        held
    }

    /// Waits until `child` reports.
    pub(crate) fn wait(&self, child: &Child) {
        let mut polled = [PollFd::new(&self.here.0, PollFlags::IN), PollFd::new(child, PollFlags::IN)];
        poll(&mut polled, None).expect("a poll");
        assert!(!polled[0].revents().is_empty(), "{child:?} died before");
        self.wait_unseen();
    }

    /// Like `wait`, for callers that do not have a `Child` yet.
    pub(crate) fn wait_unseen(&self) {
        read(&self.here.0, &mut [0]).expect("one byte");
    }

    /// Lets one child continue.
    pub(crate) fn release(&self) {
        write(&self.go_on.1, b".").expect("one byte");
    }
}
