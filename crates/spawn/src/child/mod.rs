//! Controls started processes: waits for them, signals them, and answers their requests.

pub(crate) mod adopted;
mod filtered;
mod group;
pub(crate) mod output;
mod timeout;

use crate::command::stdio::Pipes;
use crate::error::{Error, Reason};
use crate::memory::pool::ChildMemory;
use crate::memory::writer::Sharing;
use husk_listing::Line;
use husk_script::hook::Failed;
use husk_script::journal::Progress;
use husk_script::report::{GO_ON, HOOK_OUTPUT_MARK, MOST_BYTES, MOST_WORDS, WITH_NUMBER};
use husk_script::sys::process::Usage;
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

/// The exit status of a process and its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The exit status.
    pub status: ExitStatus,
    /// The bytes that the process wrote to standard output; empty if that was not captured.
    pub stdout: Vec<u8>,
    /// The bytes that the process wrote to standard error; empty if that was not captured.
    pub stderr: Vec<u8>,
}

/// A process that has been started.
///
/// It is identified by its pidfd, never by its pid alone. So no method can affect another process that reused
/// the pid, and waiting takes no other child's status. As a descriptor ([`AsFd`]) it becomes readable when
/// the process has ended, which suits any event loop.
///
/// Dropping it lets the process continue, unless [`Command::kill_on_drop`](crate::Command::kill_on_drop) was
/// set. As with std, a process that is not waited for stays a zombie until its parent ends.
pub struct Child {
    /// The write end of standard input, if that is a pipe.
    pub stdin: Option<ChildStdin>,
    /// The read end of standard output, if that is a pipe.
    pub stdout: Option<ChildStdout>,
    /// The read end of standard error, if that is a pipe.
    pub stderr: Option<ChildStderr>,
    pid: Pid,
    pidfd: OwnedFd,
    /// A mutex only for `Sync`; always accessed through `&mut`.
    memory: Mutex<ChildMemory>,
    sharing: Sharing,
    channel: Option<OwnedFd>,
    /// The number sent with the last request: of a descriptor or of something else.
    about: Option<i32>,
    failure_output: Vec<u8>,
    received: Option<OwnedFd>,
    status: Option<ExitStatus>,
    /// Whether its filter killed it in exec; known only once it has been waited for.
    died_in_exec: bool,
    kill_on_drop: bool,
    /// How often another process has continued the list; this handle then refers to that process.
    forks: usize,
    /// Whether to kill any process that continues the list.
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

    /// Waits for the next request of a child of [`Command::of_steps`](crate::Command::of_steps). Returns
    /// `None` once the child is released; [`wait_for_exec`](Self::wait_for_exec) then tells whether it
    /// execed.
    ///
    /// # Errors
    ///
    /// If the child sends something that is not a request.
    pub fn next_request(&mut self) -> Result<Option<Request>, Error> {
        loop {
            if let Poll::Ready(request) = self.receive(RecvFlags::empty())? {
                return Ok(request);
            }
        }
    }

    /// Like [`next_request`](Self::next_request), but returns `Pending` instead of blocking. For event loops:
    /// [`release_fd`](Self::release_fd) is readable when there is a message.
    ///
    /// # Errors
    ///
    /// As `next_request`.
    pub fn try_next_request(&mut self) -> Result<Poll<Option<Request>>, Error> {
        self.receive(RecvFlags::DONTWAIT)
    }

    /// Receives messages until there is a request, and keeps the output of a failed hook. Returns `Pending`
    /// only if `flags` say not to wait.
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
                // The child died before it read an answer. The kernel reports this once (net/unix/af_unix.c,
                // `unix_release_sock`), before the remaining messages and the end of file.
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
                // Continue until a request or the end of file.
                None if what == HOOK_OUTPUT_MARK => keep(&mut self.failure_output, &message[1..length]),
                None => return Err(failed(Errno::PROTO)),
                request => return Ok(Poll::Ready(request)),
            }
        }
    }

    /// Returns the number that was sent with the last request, if there was one.
    #[must_use]
    pub fn about(&self) -> Option<usize> {
        usize::try_from(self.about?).ok()
    }

    /// Answers that the request is done, and sends a descriptor along.
    ///
    /// # Errors
    ///
    /// `EPIPE` if the child has ended.
    pub fn go_on_with(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        let Some(channel) = &self.channel else { return Ok(()) };
        let descriptors = [fd];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        // The buffer has room for exactly this message.
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let answer = [IoSlice::new(&[GO_ON])];
        sendmsg(channel, &answer, &mut control, SendFlags::NOSIGNAL)
            .map(drop)
            .map_err(|errno| Error::new("request", errno))
    }

    /// Returns the descriptor of the child that the last request was about. It is the one that was sent
    /// along, or is fetched by `pidfd_getfd`.
    ///
    /// # Errors
    ///
    /// `EBADF` if the request was not about a descriptor. `EPERM` as for ptrace(2), for example if the child
    /// runs as another user.
    pub fn requested_fd(&mut self) -> Result<OwnedFd, Error> {
        if let Some(received) = self.received.take() {
            return Ok(received);
        }
        let failed = |errno| Error::new("fetch a descriptor", errno);
        let number = self.about.filter(|number| *number >= 0).ok_or_else(|| failed(Errno::BADF))?;
        pidfd_getfd(&self.pidfd, number, PidfdGetfdFlags::empty()).map_err(failed)
    }

    /// Returns the output, or its end, of the [hook](Step::Hook) that made the child fail. Complete once the
    /// child is released. Never blocks.
    pub fn failure_output(&mut self) -> &[u8] {
        if let Some(channel) = &self.channel {
            let mut message = [0; MOST_BYTES];
            // Tolerated: without a message, the output is complete.
            while let Ok((_, length @ 1..)) = recv(channel, &mut message[..], RecvFlags::DONTWAIT)
                && message[0] == HOOK_OUTPUT_MARK
            {
                keep(&mut self.failure_output, &message[1..length]);
            }
        }
        &self.failure_output
    }

    /// Answers that the request is done.
    ///
    /// # Errors
    ///
    /// `EPIPE` if the child has ended.
    pub fn go_on(&mut self) -> Result<(), Error> {
        let Some(channel) = &self.channel else { return Ok(()) };
        send(channel, &[GO_ON], SendFlags::NOSIGNAL).map(drop).map_err(|errno| Error::new("request", errno))
    }

    /// Whether a second process performs the rest of the list.
    pub(crate) fn runs_in_second_process(&mut self) -> bool {
        self.memory().runs_in_second_process()
    }

    /// Switches to the process that continues the list, if there is a new one.
    pub(crate) fn follow(&mut self) -> Result<(), Error> {
        while let Some(next) = self.next_fork() {
            // The previous process has nothing left to do except exit. It is killed, because a process that
            // may signal it could stop it first, and this wait would never end.
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

    /// Refers to process `next` from now on. The previous process has been waited for.
    fn go_over(&mut self, next: Pid) -> Result<(), Error> {
        let pidfd = pidfd_open(next, PidfdFlags::empty()).map_err(|errno| Error::new("pidfd", errno))?;
        // A process that may trace the next one may have changed the pid in memory shared with it. This wait
        // fails for a pid that is not a child of this process, so no other process is ever signalled.
        let unchanged = WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        wait(WaitId::PidFd(pidfd.as_fd()), unchanged, next)?;
        self.forks += 1;
        // The pid is not reused until it is waited for.
        (self.pid, self.pidfd) = (next, pidfd);
        if *self.killed.get_mut() { self.kill() } else { Ok(()) }
    }

    /// Waits until the first process is replaced by the one that becomes the program.
    pub(crate) fn wait_for_fork(&mut self) -> Result<(), Error> {
        self.wait_for_release()?;
        self.follow()
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn kills_on_drop(&self) -> bool {
        self.kill_on_drop
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns its pid in the parent's pid namespace.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    /// Whether the child no longer uses memory of this process, because it has execed or ended. Never blocks
    /// and makes no system call.
    pub fn is_released(&mut self) -> bool {
        self.memory().update_release()
    }

    /// Returns a descriptor that reads as end of file once the process is released, for event loops. `None`
    /// without [`Command::notify_release`](crate::Command::notify_release).
    #[must_use]
    pub fn release_fd(&self) -> Option<BorrowedFd<'_>> {
        self.channel.as_ref().map(OwnedFd::as_fd)
    }

    /// Returns when each step began, in nanoseconds of the monotonic clock. The time is 0 for steps not
    /// reached or after a seccomp filter. Empty without [`Command::timed`](crate::Command::timed).
    #[must_use]
    pub fn times(&mut self) -> Vec<u64> {
        let times = self.memory().script().times.unwrap_or_default();
        times.iter().map(|time| time.load(Ordering::Relaxed)).collect()
    }

    /// Returns the resource usage of the program that [`Step::CloneAndReap`] waited for, with that of the
    /// children that the program waited for. `None` until the program has ended.
    #[must_use]
    pub fn usage(&mut self) -> Option<Usage> {
        self.memory().script().journal.ended().map(|(_, usage)| usage)
    }

    /// Returns whether the program that [`Step::CloneAndReap`] waited for has failed and left the file system full that
    /// the step names. Final once the child has ended.
    pub fn has_full_space(&mut self) -> bool {
        self.memory().script().journal.is_full()
    }

    /// Whether the child has execed or ended. Unlike [`is_released`](Self::is_released), this also detects
    /// the exec of a second process.
    ///
    /// # Errors
    ///
    /// If the process that continues the list is not a child of this process.
    pub fn has_begun(&mut self) -> Result<bool, Error> {
        if !self.is_released() {
            return Ok(false);
        }
        self.follow()?;
        match &self.channel {
            // Exec and exit close the channel of a process that does not share memory.
            Some(channel) if self.has_own_memory() && self.status.is_none() => is_closed(channel),
            _ => Ok(true),
        }
    }

    /// Whether only the end of the channel shows its exec.
    fn has_own_memory(&self) -> bool {
        self.forks > 0 || self.sharing == Sharing::Copied
    }

    /// Waits until the child has execed its program.
    ///
    /// # Errors
    ///
    /// If a step failed or the child died before exec. The child has then been reaped.
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
        // The child is dead or dying; only the wait tells why.
        self.wait().map(drop)
    }

    /// Exec clears no word of a process that does not share memory, but it closes the channel.
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
            // Does not use a private futex, because the kernel wakes this word as a shared one (kernel/fork.c,
            // `mm_release`). After any other return, check again.
            match futex::wait(word, futex::Flags::empty(), 1, None) {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(Error::new("wait for exec", errno)),
            }
        }
        Ok(())
    }

    /// Sends a signal. Succeeds without effect once the process has been waited for.
    ///
    /// # Errors
    ///
    /// `EPERM` if the process now has an identity that this process may not send signals to.
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

    /// Sends SIGKILL.
    ///
    /// # Errors
    ///
    /// As [`signal`](Self::signal).
    pub fn kill(&self) -> Result<(), Error> {
        self.signal(Signal::KILL)
    }

    /// Lets the process continue even if [`Command::kill_on_drop`](crate::Command::kill_on_drop) was set.
    pub fn let_go(mut self) {
        self.kill_on_drop = false;
    }

    /// Returns the exit status, or `None` while the process runs.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.reap(WaitIdOptions::NOHANG)
    }

    /// Waits until the process ends and returns its exit status. Closes [`stdin`](Self::stdin) first, so that
    /// a program that reads all its input sees the end of file.
    ///
    /// # Errors
    ///
    /// If the program was never execed: the step that failed, or how the child died. `ECHILD` if other code
    /// in this process reaped the child.
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
                // Whether another process continues the list is certain only once this one has ended.
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

    /// Checks a filtered child before it is waited for, while its zombie still shows whether the filter
    /// killed it in exec. Returns false if it has not ended. Does nothing and returns true for a child
    /// without a filter.
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

    /// Whether its last started step is an exec, whatever the result.
    fn is_execing(&mut self) -> bool {
        let script = self.memory().script();
        matches!(script.journal.progress(), Progress::At(step) if is_exec(script, step))
    }

    /// Ends a child whose request cannot be answered, by closing the channel.
    pub(crate) fn give_up(&mut self) {
        if let Some(channel) = self.channel.take() {
            // Closing alone is not enough, because the child may have a copy of this end.
            tolerate(shutdown(&channel, Shutdown::Both), "the other end may be closed");
        }
        tolerate(self.wait(), "its error is that nobody answered, and the caller knows why");
    }
}

/// Whether every copy of the other end of the channel is closed.
fn is_closed(channel: &OwnedFd) -> Result<bool, Error> {
    let mut events = [PollFd::new(channel, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready = retry_on_intr(|| poll(&mut events, Some(&now)));
    Ok(ready.map_err(|errno| Error::new("look at the channel", errno))? != 0)
}

/// Keeps the first `MOST_WORDS` bytes of a hook's output.
fn keep(words: &mut Vec<u8>, more: &[u8]) {
    let room = MOST_WORDS.saturating_sub(words.len());
    words.extend(more.iter().take(room));
}

impl AsFd for Child {
    /// Returns the pidfd.
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

/// Whether this step is an exec. A child that was released there without failing has execed.
fn is_exec(script: &Script<'_>, step: usize) -> bool {
    matches!(script.steps.get(step), Some(Step::Execve { .. } | Step::ExecveFirst { .. }))
}

/// Waits for a child to end. Returns `None` if it runs and `options` say not to wait.
pub(crate) fn wait(id: WaitId<'_>, options: WaitIdOptions, pid: Pid) -> Result<Option<ExitStatus>, Error> {
    let found = retry_on_intr(|| waitid(id.clone(), options | WaitIdOptions::EXITED));
    let found = found.map_err(|errno| Error::new(format!("wait for {}", pid.as_raw_pid()), errno))?;
    Ok(found.as_ref().map(exit_status))
}

/// Returns the exit status of the program, or why it was not execed.
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

/// Converts to the raw status of wait(2), which std's type holds.
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
    fn foreign_process_is_not_taken_for_the_child() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let its = child.id();
        let error = child.go_over(getppid().unwrap()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::CHILD.raw_os_error()));
        assert_eq!(child.id(), its);
        assert!(child.wait().unwrap().success());
    }
}
