//! Runs a command and lets the test decide about its system calls.
//!
//! A filter notifies the test of calls by the command and all of its children. Each call waits for the answer.

#![expect(unsafe_code, reason = "the requests of a seccomp listener")]

use crate::util::{Seen, is_root};
use husk_spawn::sys::process::SockFilter;
use husk_spawn::{Command, Request, Step};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::ioctl::{Opcode, Updater, ioctl};
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::Output;
use std::thread;

/// A system call of which the test is notified.
pub(crate) struct NotifiedCall {
    /// The pid or thread id of the caller.
    pub(crate) process: i32,
    pub(crate) number: u32,
    pub(crate) arguments: [u64; 6],
}

/// The decision about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The call is made.
    GoOn,
    /// The call fails with this error.
    Fail(Errno),
}

/// A time within which every command ends unless it hangs.
const MOST: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// The message added to the output of a command that hangs.
pub(crate) const HANGS: &str = "it hangs";

/// Runs a command under this filter.
pub(crate) fn run(
    command: &std::process::Command,
    filter: &'static [SockFilter],
    decide: impl FnMut(&NotifiedCall) -> Verdict + Send + 'static,
) -> Seen {
    let file = || tempfile::tempfile().expect("a file");
    let (mut out, mut err) = (file(), file());
    let mut watched = Command::new(command.get_program());
    watched.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    watched.args(command.get_args()).stdin(File::open("/dev/null").expect("the null device"));
    watched.stdout(out.try_clone().expect("a file")).stderr(err.try_clone().expect("a file"));
    let new_listener = 8;
    if !is_root() {
        // Installing a filter without privileges requires no_new_privs.
        watched.step(Step::NoNewPrivs);
    }
    watched.step(Step::SeccompListener { flags: new_listener, program: filter });
    let mut child = watched.notify_release().kill_on_drop().spawn().expect("the runtime");
    let request = child.next_request().expect("a child");
    assert_eq!(request, Some(Request::Listener), "{:?}", child.wait());
    let listener = child.requested_fd().expect("its listener");
    // Calls that it makes before it may continue are answered too.
    let answering = thread::spawn(move || answer(&listener, decide));
    child.go_on().expect("a child");
    // The thread continues to answer calls of processes that the runtime leaves behind.
    drop(answering);
    let mut polled = [PollFd::new(&child, PollFlags::IN)];
    let ended = retry_on_intr(|| poll(&mut polled, Some(&MOST))).expect("a poll");
    if ended == 0 {
        child.kill().expect("a process that hangs");
        err.write_all(HANGS.as_bytes()).expect("a file");
    }
    let status = child.wait().expect("exit status");
    let [stdout, stderr] = [&mut out, &mut err].map(|file| read_to_end(file).into_bytes());
    Seen(Output { status, stdout, stderr })
}

fn read_to_end(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("the written data");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `struct seccomp_notif`: id; pid and flags; number and architecture; instruction; six arguments.
type Notification = [u64; 10];
/// `struct seccomp_notif_resp`: id; value; error and flags.
type Answer = [u64; 3];

const RECEIVE: Opcode = rustix::ioctl::opcode::read_write::<Notification>(b'!', 0);
const SEND: Opcode = rustix::ioctl::opcode::read_write::<Answer>(b'!', 1);
/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`, in the upper half of its word.
const GO_ON: u64 = 1 << 32;

/// Answers until no process under the filter is left.
fn answer(listener: &OwnedFd, mut decide: impl FnMut(&NotifiedCall) -> Verdict) {
    loop {
        let mut polled = [PollFd::new(listener, PollFlags::IN)];
        retry_on_intr(|| poll(&mut polled, None)).expect("a poll");
        if !polled[0].revents().contains(PollFlags::IN) {
            return;
        }
        let mut asked: Notification = [0; 10];
        match request::<RECEIVE, _>(listener, &mut asked) {
            Ok(()) => {}
            // The calling process has ended.
            Err(Errno::NOENT | Errno::INTR) => continue,
            Err(error) => panic!("a notification: {error}"),
        }
        let [id, process, number, _, arguments @ ..] = asked;
        let [process, number] = [process, number].map(|word| word as u32);
        let call = NotifiedCall { process: process.cast_signed(), number, arguments };
        let mut answer: Answer = match decide(&call) {
            Verdict::GoOn => [id, 0, GO_ON],
            Verdict::Fail(errno) => [id, 0, u64::from((-errno.raw_os_error()).cast_unsigned())],
        };
        match request::<SEND, _>(listener, &mut answer) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => panic!("an answer: {error}"),
        }
    }
}

/// Makes one of the two requests. The kernel requires a zeroed structure for a notification.
fn request<const CODE: Opcode, T>(listener: &OwnedFd, words: &mut T) -> Result<(), Errno> {
    // SAFETY: both codes are made from the type whose structure the kernel reads and writes for them.
    let request = unsafe { Updater::<CODE, T>::new(words) };
    // SAFETY: as above; and the kernel keeps no pointer to the structure.
    unsafe { ioctl(listener, request) }
}
