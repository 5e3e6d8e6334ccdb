//! A process that has been started.

pub(crate) mod adopted;
mod filtered;
pub(crate) mod output;

use crate::command::stdio::Pipes;
use crate::error::{Error, Reason};
use crate::memory::pool::ChildMemory;
use crate::memory::writer::Sharing;
use husk_listing::Line;
use husk_script::hook::Failed;
use husk_script::journal::Progress;
use husk_script::report::{GO_ON, HOOK_OUTPUT_MARK, MOST_BYTES, MOST_WORDS, WITH_NUMBER};
use husk_script::sys::process::{Usage, kill_group};
use husk_script::sys::signal::{Signal, pidfd_send_signal};
use husk_script::sys::tolerate;
use husk_script::sys::{Errno, Fd, Pid};
use husk_script::{Request, Script, Step};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{IoSliceMut, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, recv, recvmsg, send, sendmsg, shutdown,
};
use rustix::process::{
    PidfdFlags, PidfdGetfdFlags, WaitId, WaitIdOptions, WaitIdStatus, pidfd_getfd, pidfd_open, waitid,
};
use rustix::thread::futex;
use std::fmt::{self, Debug, Formatter};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

/// What a process wrote, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to standard output, if that was captured.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error, if that was captured.
    pub stderr: Vec<u8>,
}

/// A process that has been started.
///
/// It is known by its pidfd, never by its pid alone: no method can touch another process that has
/// got the same pid, and waiting takes no status that is not this child's. As a descriptor
/// ([`AsFd`]) it becomes readable when the process has ended, so it fits any event loop.
///
/// Dropping it lets the process run on, unless [`Command::kill_on_drop`](crate::Command::kill_on_drop)
/// was set; as with std, a process that nobody waits for stays a zombie until its parent ends.
pub struct Child {
    /// The writing end of standard input, if that is a pipe.
    pub stdin: Option<ChildStdin>,
    /// The reading end of standard output, if that is a pipe.
    pub stdout: Option<ChildStdout>,
    /// The reading end of standard error, if that is a pipe.
    pub stderr: Option<ChildStderr>,
    pid: Pid,
    pidfd: OwnedFd,
    /// A mutex for its `Sync` alone: it is only ever reached through `&mut`.
    memory: Mutex<ChildMemory>,
    sharing: Sharing,
    channel: Option<OwnedFd>,
    /// What its last request was about: the number of a descriptor, or of something else.
    about: Option<i32>,
    failure_output: Vec<u8>,
    received: Option<OwnedFd>,
    status: Option<ExitStatus>,
    /// Whether its filter killed it in the exec, which is known once it has been waited for.
    died_in_exec: bool,
    kill_on_drop: bool,
    /// How often the list has gone on in another process, which this stands for from then on.
    forks: usize,
    /// Whether whatever process it goes on in is to be killed.
    killed: AtomicBool,
}

impl Child {
    pub(crate) fn new(
        pid: Pid,
        pidfd: OwnedFd,
        memory: ChildMemory,
        sharing: Sharing,
        pipes: Pipes,
        channel: Option<OwnedFd>,
        kill_on_drop: bool,
    ) -> Self {
        let Pipes { stdin, stdout, stderr, .. } = pipes;
        Self {
            stdin,
            stdout,
            stderr,
            pid,
            pidfd,
            memory: Mutex::new(memory),
            sharing,
            channel,
            about: None,
            failure_output: Vec::new(),
            received: None,
            status: None,
            died_in_exec: false,
            kill_on_drop,
            forks: 0,
            killed: AtomicBool::new(false),
        }
    }

    fn memory(&mut self) -> &mut ChildMemory {
        self.memory.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a child of [`Command::of_steps`](crate::Command::of_steps) asks next, and waits for:
    /// `None` when it is released, with [`wait_for_exec`](Self::wait_for_exec) to say how.
    ///
    /// # Errors
    ///
    /// If the child says what is no request.
    pub fn next_request(&mut self) -> Result<Option<Request>, Error> {
        loop {
            if let Poll::Ready(request) = self.receive(RecvFlags::empty())? {
                return Ok(request);
            }
        }
    }

    /// What [`next_request`](Self::next_request) would return, or `Pending` if the child has not asked yet. Never blocks.
    /// For an event loop: [`release_fd`](Self::release_fd) is readable when there is something to look at.
    ///
    /// # Errors
    ///
    /// As `next_request`.
    pub fn try_next_request(&mut self) -> Result<Poll<Option<Request>>, Error> {
        self.receive(RecvFlags::DONTWAIT)
    }

    /// Receives messages until there is a request, and keeps the output of a hook that failed. `Pending` only if `flags` say not to wait.
    fn receive(&mut self, flags: RecvFlags) -> Result<Poll<Option<Request>>, Error> {
        loop {
            let Some(channel) = &self.channel else { return Ok(Poll::Ready(None)) };
            let failed = |errno| Error::new("request", errno);
            let mut message = [0; MOST_BYTES];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut came = RecvAncillaryBuffer::new(&mut space);
            let received = retry_on_intr(|| {
                let mut parts = [IoSliceMut::new(&mut message)];
                recvmsg(channel, &mut parts, &mut came, RecvFlags::CMSG_CLOEXEC | flags)
            });
            let length = match received {
                Err(Errno::AGAIN) if flags.contains(RecvFlags::DONTWAIT) => return Ok(Poll::Pending),
                // The child died before it read an answer. The kernel says so once (net/unix/af_unix.c,
                // `unix_release_sock`), ahead of the messages that are still there and of the end of file.
                Err(Errno::CONNRESET) => continue,
                received => received.map_err(failed)?.bytes,
            };
            self.received = came.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
                _ => None,
            });
            self.follow()?;
            let [what, a, b, c, d, ..] = message;
            self.about = (length == WITH_NUMBER).then(|| i32::from_ne_bytes([a, b, c, d]));
            match Request::from_byte(what) {
                _ if length == 0 => return Ok(Poll::Ready(None)),
                // To the end of file.
                None if what == HOOK_OUTPUT_MARK => keep(&mut self.failure_output, &message[1..length]),
                None => return Err(failed(Errno::PROTO)),
                request => return Ok(Poll::Ready(request)),
            }
        }
    }

    /// Which of many things its last request was about.
    #[must_use]
    pub fn about(&self) -> Option<usize> {
        usize::try_from(self.about?).ok()
    }

    /// Answers that what it asked for is done, and sends a descriptor along.
    ///
    /// # Errors
    ///
    /// `EPIPE` if it is gone.
    pub fn go_on_with(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        let Some(channel) = &self.channel else { return Ok(()) };
        let descriptors = [fd];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        // There is room for just this one.
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let answer = [IoSlice::new(&[GO_ON])];
        sendmsg(channel, &answer, &mut control, SendFlags::NOSIGNAL)
            .map(drop)
            .map_err(|errno| Error::new("request", errno))
    }

    /// The descriptor of the child's that its last request was about: what came with it, or was named and is
    /// fetched by `pidfd_getfd`.
    ///
    /// # Errors
    ///
    /// `EBADF` if it was about none; `EPERM` as for ptrace(2), where the child is of another user.
    pub fn requested_fd(&mut self) -> Result<OwnedFd, Error> {
        if let Some(received) = self.received.take() {
            return Ok(received);
        }
        let failed = |errno| Error::new("fetch a descriptor", errno);
        let number = self.about.filter(|number| *number >= 0).ok_or_else(|| failed(Errno::BADF))?;
        pidfd_getfd(&self.pidfd, number, PidfdGetfdFlags::empty()).map_err(failed)
    }

    /// What the [hook](Step::Hook) said at which the child failed, or the end of it. Complete once the child
    /// is released. Never blocks.
    pub fn failure_output(&mut self) -> &[u8] {
        if let Some(channel) = &self.channel {
            let mut message = [0; MOST_BYTES];
            // Tolerated: without a message there is no more output.
            while let Ok((_, length @ 1..)) = recv(channel, &mut message[..], RecvFlags::DONTWAIT)
                && message[0] == HOOK_OUTPUT_MARK
            {
                keep(&mut self.failure_output, &message[1..length]);
            }
        }
        &self.failure_output
    }

    /// Answers that what it asked for is done.
    ///
    /// # Errors
    ///
    /// `EPIPE` if it is gone.
    pub fn go_on(&mut self) -> Result<(), Error> {
        let Some(channel) = &self.channel else { return Ok(()) };
        send(channel, &[GO_ON], SendFlags::NOSIGNAL).map(drop).map_err(|errno| Error::new("request", errno))
    }

    /// Whether the list goes on in another process than it begins in.
    pub(crate) fn runs_in_second_process(&mut self) -> bool {
        self.memory().runs_in_second_process()
    }

    /// Goes over to the process that the list goes on in, if the one known so far has made way for it.
    pub(crate) fn follow(&mut self) -> Result<(), Error> {
        while let Some(next) = self.next_fork() {
            // The other has nothing left to do but to exit. It is killed, since a process that may signal it could stop it
            // before it exits, and have us wait for ever.
            self.signal_pidfd(Signal::KILL)?;
            wait(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::empty(), self.pid)?;
            self.go_over(next)?;
        }
        Ok(())
    }

    fn next_fork(&mut self) -> Option<Pid> {
        let forks = self.forks;
        self.memory().script().journal.forked(forks)
    }

    /// Stands for another process from now on, the last one having been waited for.
    fn go_over(&mut self, next: Pid) -> Result<(), Error> {
        let pidfd = pidfd_open(next, PidfdFlags::empty()).map_err(|errno| Error::new("pidfd", errno))?;
        // Who may trace the next process may have written another number into memory that is shared with it. One that is
        // no child of ours is none of its, and is neither signalled nor killed.
        let unchanged = WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        wait(WaitId::PidFd(pidfd.as_fd()), unchanged, next)?;
        self.forks += 1;
        // Until it is waited for, its pid is not given to another.
        (self.pid, self.pidfd) = (next, pidfd);
        if *self.killed.get_mut() { self.kill() } else { Ok(()) }
    }

    /// Waits until the first process has made way for the one that becomes the program.
    pub(crate) fn wait_for_fork(&mut self) -> Result<(), Error> {
        self.wait_for_release()?;
        self.follow()
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Its pid in the parent's pid namespace.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    /// Whether it has become its program, or ended: whether it no longer uses memory of this
    /// process. Never blocks, makes no system call.
    pub fn is_released(&mut self) -> bool {
        self.memory().update_release()
    }

    /// A descriptor on which a read finds the end of file when the process is released, for an
    /// event loop; only with [`Command::notify_release`](crate::Command::notify_release).
    #[must_use]
    pub fn release_fd(&self) -> Option<BorrowedFd<'_>> {
        self.channel.as_ref().map(OwnedFd::as_fd)
    }

    /// When each step began, in nanoseconds of the monotonic clock; 0 for one that it has not come to, or
    /// that came after a system call filter; none at all without [`Command::timed`](crate::Command::timed).
    #[must_use]
    pub fn times(&mut self) -> Vec<u64> {
        let times = self.memory().script().times.unwrap_or_default();
        times.iter().map(|time| time.load(Ordering::Relaxed)).collect()
    }

    /// What the program used that [`Step::CloneAndReap`] waited for, with the children that it waited for
    /// itself. Known when it has ended.
    #[must_use]
    pub fn usage(&mut self) -> Option<Usage> {
        self.memory().script().journal.ended().map(|(_, usage)| usage)
    }

    /// Whether it has become its program, or has ended. Unlike [`is_released`](Self::is_released) it also says so of a
    /// program that a second process became.
    ///
    /// # Errors
    ///
    /// If the process that the list went on in is not a child of this process.
    pub fn has_begun(&mut self) -> Result<bool, Error> {
        if !self.is_released() {
            return Ok(false);
        }
        self.follow()?;
        match &self.channel {
            // Exec and exit close the channel of a process with memory of its own.
            Some(channel) if self.has_own_memory() && self.status.is_none() => is_closed(channel),
            _ => Ok(true),
        }
    }

    /// Whether its exec is seen only by the end of the channel.
    fn has_own_memory(&self) -> bool {
        self.forks > 0 || self.sharing == Sharing::Copied
    }

    /// Waits until it has become its program.
    ///
    /// # Errors
    ///
    /// If a step failed or the child died before exec; it has then been waited for.
    pub fn wait_for_exec(&mut self) -> Result<(), Error> {
        self.wait_for_release()?;
        self.follow()?;
        if self.has_own_memory() && self.status.is_none() {
            self.wait_for_end_of_channel()?;
        }
        let is_filtered = filtered::is_filtered(self.memory().script());
        if self.is_execing()
            && (!is_filtered || self.status.is_some() || filtered::settles_as_program(self.pid, &self.pidfd)?)
        {
            return Ok(());
        }
        // It is dead or dying; how, only the wait can tell.
        self.wait().map(drop)
    }

    /// Exec clears no word of a process that has memory of its own, but it closes the channel.
    fn wait_for_end_of_channel(&mut self) -> Result<(), Error> {
        match self.next_request()? {
            None => Ok(()),
            Some(_) => Err(Error::new("wait for exec", Reason::Conflict("it asks for something"))),
        }
    }

    fn wait_for_release(&mut self) -> Result<(), Error> {
        let memory = self.memory();
        while !memory.update_release() {
            let Some(word) = memory.script().journal.still_in_use() else { continue };
            // Not a private futex: the kernel wakes this word as a shared one
            // (kernel/fork.c, `mm_release`). Any other return is a reason to look again.
            match futex::wait(word, futex::Flags::empty(), 1, None) {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(Error::new("wait for exec", errno)),
            }
        }
        Ok(())
    }

    /// Sends it a signal. One that has been waited for is past signals, which is no error.
    ///
    /// # Errors
    ///
    /// `EPERM` if it now has an identity that this process may not send signals to.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        if signal == Signal::KILL {
            self.killed.store(true, Ordering::Relaxed);
        }
        self.signal_pidfd(signal)
    }

    fn signal_pidfd(&self, signal: Signal) -> Result<(), Error> {
        match pidfd_send_signal(Fd::of(&self.pidfd), signal) {
            Ok(()) => Ok(()),
            Err(Errno::SRCH) if self.status.is_some() => Ok(()),
            Err(errno) => Err(self.not_signalled(signal, errno)),
        }
    }

    fn not_signalled(&self, signal: Signal, errno: Errno) -> Error {
        Error::new(format!("signal {} to {}", signal.number(), self.id()), errno)
    }

    /// Sends it SIGKILL.
    ///
    /// # Errors
    ///
    /// As [`signal`](Self::signal).
    pub fn kill(&self) -> Result<(), Error> {
        self.signal(Signal::KILL)
    }

    /// Sends SIGKILL to it and to the process group that it leads, if it leads one
    /// ([`Command::process_group`](crate::Command::process_group)). Does nothing once it has been waited for: until then
    /// the number of the group cannot be another group's.
    ///
    /// # Errors
    ///
    /// As [`signal`](Self::signal).
    pub fn kill_group(&self) -> Result<(), Error> {
        if self.status.is_some() {
            return Ok(());
        }
        self.kill()?;
        match kill_group(self.pid, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(errno) => Err(self.not_signalled(Signal::KILL, errno)),
        }
    }

    /// Lets it run on although [`Command::kill_on_drop`](crate::Command::kill_on_drop) was set.
    pub fn let_go(mut self) {
        self.kill_on_drop = false;
    }

    /// How it ended, if it has: `None` while it runs.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.reap(WaitIdOptions::NOHANG)
    }

    /// Waits for its end. Closes [`stdin`](Self::stdin) first, so that a program that reads to the
    /// end of its input comes to it.
    ///
    /// # Errors
    ///
    /// If it never became its program: the step that failed, or how it died before. `ECHILD` if
    /// something else in this process waits for children that are not its own.
    pub fn wait(&mut self) -> Result<ExitStatus, Error> {
        drop(self.stdin.take());
        match self.reap(WaitIdOptions::empty())? {
            Some(status) => Ok(status),
            // Without NOHANG the kernel returns only with a status.
            None => Err(Error::new("wait", Errno::CHILD)),
        }
    }

    fn reap(&mut self, options: WaitIdOptions) -> Result<Option<ExitStatus>, Error> {
        if self.status.is_none() {
            let status = loop {
                if !self.examine(options)? {
                    return Ok(None);
                }
                let Some(status) = wait(WaitId::PidFd(self.pidfd.as_fd()), options, self.pid)? else {
                    return Ok(None);
                };
                // What it had made way for is known for certain once it has ended.
                match self.next_fork() {
                    Some(next) => self.go_over(next)?,
                    None => break status,
                }
            };
            self.status = Some(status);
            self.memory().update_release();
        }
        let (status, died_in_exec) = (self.status.unwrap_or_default(), self.died_in_exec);
        match self.memory().script().journal.progress() {
            Progress::At(step) if died_in_exec => {
                Err(failed(self.memory().script(), step, Reason::Died(status)))
            }
            _ => verdict(self.memory(), status).map(Some),
        }
    }

    /// Looks at a child with a filter before it is waited for: a zombie still shows whether the filter killed it in the exec.
    /// False if it has not ended. Does nothing and returns true for a child without one.
    fn examine(&mut self, options: WaitIdOptions) -> Result<bool, Error> {
        if !filtered::is_filtered(self.memory().script()) {
            return Ok(true);
        }
        let unchanged = options | WaitIdOptions::NOWAIT;
        let Some(status) = wait(WaitId::PidFd(self.pidfd.as_fd()), unchanged, self.pid)? else {
            return Ok(false);
        };
        self.died_in_exec = status.signal() == Some(Signal::SYS.number())
            && self.is_execing()
            && self.memory().script().journal.ended().is_none()
            && filtered::has_execed(self.pid) == Some(false);
        Ok(true)
    }

    /// Whether exec is the step that it has come to, whatever became of it.
    fn is_execing(&mut self) -> bool {
        let script = self.memory().script();
        matches!(script.journal.progress(), Progress::At(step) if is_exec(script, step))
    }

    /// Ends a child whose request cannot be answered: it finds the channel closed.
    pub(crate) fn give_up(&mut self) {
        if let Some(channel) = self.channel.take() {
            // Closing alone is not enough: the child may have a copy of this end.
            tolerate(shutdown(&channel, Shutdown::Both), "the other end may be closed");
        }
        tolerate(self.wait(), "its error is that nobody answered, and the caller knows why");
    }
}

/// Whether nobody has the other end of a channel any more.
fn is_closed(channel: &OwnedFd) -> Result<bool, Error> {
    let mut events = [PollFd::new(channel, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready = retry_on_intr(|| poll(&mut events, Some(&now)));
    Ok(ready.map_err(|errno| Error::new("look at the channel", errno))? != 0)
}

/// Keeps what a child sends of a hook's output, at most `MOST_WORDS` bytes.
fn keep(words: &mut Vec<u8>, more: &[u8]) {
    let room = MOST_WORDS.saturating_sub(words.len());
    words.extend(more.iter().take(room));
}

impl AsFd for Child {
    /// The pidfd.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Debug for Child {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child").field("pid", &self.id()).field("status", &self.status).finish_non_exhaustive()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.kill_on_drop && self.status.is_none() && self.kill().is_ok() {
            tolerate(self.wait(), "a destructor cannot report it");
        }
    }
}

/// Whether this step is an exec: a child that is released there, and did not fail, has execed.
fn is_exec(script: &Script<'_>, step: usize) -> bool {
    matches!(script.steps.get(step), Some(Step::Execve { .. } | Step::ExecveFirst { .. }))
}

/// Waits for the end of a child: `None` if it runs on and `options` say not to wait for it.
pub(crate) fn wait(id: WaitId<'_>, options: WaitIdOptions, pid: Pid) -> Result<Option<ExitStatus>, Error> {
    let found = retry_on_intr(|| waitid(id.clone(), options | WaitIdOptions::EXITED));
    let found = found.map_err(|errno| Error::new(format!("wait for {}", pid.as_raw_pid()), errno))?;
    Ok(found.as_ref().map(exit_status))
}

/// The status of a program that ended, or why there was none.
pub(crate) fn verdict(memory: &ChildMemory, status: ExitStatus) -> Result<ExitStatus, Error> {
    let script = memory.script();
    let (step, reason) = match script.journal.progress() {
        Progress::Failed(step, errno) => {
            let hook = matches!(script.steps.get(step), Some(Step::Hook { .. }));
            let failed = if hook { Failed::from_errno(errno) } else { None };
            (step, failed.map_or(Reason::Errno(errno), Reason::Hook))
        }
        Progress::At(step) if is_exec(script, step) => {
            let program = script.journal.ended();
            return Ok(program.map_or(status, |(status, _)| ExitStatus::from_raw(status)));
        }
        Progress::At(step) => (step, Reason::Died(status)),
    };
    Err(failed(script, step, reason))
}

fn failed(script: &Script<'_>, step: usize, reason: Reason) -> Error {
    let line = script.steps.get(step).map(|step: &Step<'_>| Line(step).to_string());
    Error::of_step(step, line.unwrap_or_else(|| format!("step {step}")), reason)
}

/// The status in the form that wait(2) has it, which is what std's type holds.
fn exit_status(found: &WaitIdStatus) -> ExitStatus {
    const CORE_DUMPED: i32 = 0x80;
    let raw = match (found.exit_status(), found.terminating_signal()) {
        (Some(code), _) => (code & 0xff) << 8,
        (None, Some(signal)) if found.dumped() => signal | CORE_DUMPED,
        (None, signal) => signal.unwrap_or_default(),
    };
    ExitStatus::from_raw(raw)
}

#[cfg(test)]
mod tests {
    use crate::{Command, Stdio};
    use rustix::io::Errno;
    use rustix::process::getppid;

    #[test]
    fn a_process_of_somebody_elses_is_not_taken_for_it() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let its = child.id();
        let error = child.go_over(getppid().unwrap()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::CHILD.raw_os_error()));
        assert_eq!(child.id(), its);
        assert!(child.wait().unwrap().success());
    }
}
