//! A child that is held between clone and exec.

use husk_spawn::sys::Fd;
use husk_spawn::{Child, Command, Step};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{read, write};
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::OwnedFd;

/// Two pipes: on one the child says that it is there, on the other it waits.
pub(crate) struct Held {
    here: (OwnedFd, OwnedFd),
    go_on: (OwnedFd, OwnedFd),
}

impl Held {
    /// Has the children of `command` wait just before exec, their identity and the rest settled.
    pub(crate) fn before_exec(command: &mut Command) -> Self {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let held = Self { here: pipe(), go_on: pipe() };
        let [here, go_on, ours] = [&held.here.1, &held.go_on.0, &held.go_on.1].map(Fd::of);
        command.final_steps(move |writer| {
            // Its copy of our end, so that it does not wait for itself should we be gone.
            writer.push(Step::Close { fd: ours.into() });
            writer.push(Step::Write { fd: here.into(), bytes: b"." });
            writer.push(Step::Await { fd: go_on.into() });
            Ok(())
        });
        held
    }

    /// Waits until `child` is there.
    pub(crate) fn wait(&self, child: &Child) {
        let mut polled = [PollFd::new(&self.here.0, PollFlags::IN), PollFd::new(child, PollFlags::IN)];
        poll(&mut polled, None).expect("one of the two");
        assert!(!polled[0].revents().is_empty(), "{child:?} died before");
        self.wait_unseen();
    }

    /// The same where the caller has no child to look at yet.
    pub(crate) fn wait_unseen(&self) {
        read(&self.here.0, &mut [0]).expect("its byte");
    }

    /// Lets one child go on.
    pub(crate) fn release(&self) {
        write(&self.go_on.1, b".").expect("a byte for it");
    }
}
