//! Starts several processes from one thread without blocking on any of them. `spawn` returns before the child execs;
//! exec and exit arrive as events.
//!
//!     cargo run --release -p husk-spawn --example event_loop

#![expect(clippy::disallowed_macros, reason = "an example prints as programs do")]

use husk_spawn::{Child, Command, Error};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use std::os::fd::AsFd;

fn main() -> Result<(), Error> {
    let mut starting = Vec::new();
    for index in 0..4 {
        // The last program does not exist. Its error is an event too.
        let program = if index < 3 { "/bin/sh" } else { "/no/such/program" };
        let mut command = Command::new(program);
        command.arg("-c").arg(format!("exit {index}")).notify_release();
        starting.push(command.spawn()?);
    }
    println!("{} processes started", starting.len());

    let mut running = Vec::new();
    while !starting.is_empty() {
        // This descriptor reads as end of file once the child no longer uses this process's memory.
        wait_for_any(&starting, |child| child.release_fd());
        let (released, others): (Vec<_>, Vec<_>) = starting
            .into_iter()
            .map(|mut child| (child.is_released(), child))
            .partition(|(released, _)| *released);
        starting = others.into_iter().map(|(_, child)| child).collect();
        for (_, mut child) in released {
            match child.wait_for_exec() {
                Ok(()) => running.push(child),
                Err(error) => println!("{error}"),
            }
        }
    }

    while !running.is_empty() {
        // A child is a descriptor that becomes readable when the process ends.
        wait_for_any(&running, |child| Some(child.as_fd()));
        let mut still = Vec::new();
        for mut child in running {
            match child.try_wait()? {
                Some(status) => println!("process {} ended: {status}", child.id()),
                None => still.push(child),
            }
        }
        running = still;
    }
    Ok(())
}

fn wait_for_any<'a>(children: &'a [Child], fd: impl Fn(&'a Child) -> Option<std::os::fd::BorrowedFd<'a>>) {
    let mut fds: Vec<_> =
        children.iter().filter_map(fd).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    retry_on_intr(|| poll(&mut fds, None)).expect("poll");
}
