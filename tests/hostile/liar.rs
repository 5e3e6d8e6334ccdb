//! A kernel that does not do what it is asked for, and says that it has.
//!
//! It is how a defence is shown to be one: without the call that it rests on, the same binary has to lose. A filter of
//! system calls answers some with success, undone; of `openat2` the test is notified, takes away what was said about how
//! a path is to be resolved, and lets it go on.

#![expect(unsafe_code, reason = "the requests of a seccomp listener")]

use crate::util::Seen;
use husk_spawn::sys::process::Instruction;
use husk_spawn::{Command, Request, Step};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::ioctl::{Opcode, Updater, ioctl};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::process::Output;
use std::thread;

/// What the kernel does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// `openat2` heeds neither `RESOLVE_*` nor `O_NOFOLLOW`: paths lead where links lead.
    Follows,
    /// `fstatfs` says nothing of any file system.
    KnowsNoFileSystem,
}

impl Lie {
    /// The call, by its number on x86-64 and elsewhere.
    fn call(self) -> u32 {
        let common = |x86_64, generic| if cfg!(target_arch = "x86_64") { x86_64 } else { generic };
        match self {
            Self::Follows => 437,
            Self::KnowsNoFileSystem => common(138, 44),
        }
    }

    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Follows => "links are followed",
            Self::KnowsNoFileSystem => "no file system is known",
        }
    }

    /// What the filter answers: `SECCOMP_RET_USER_NOTIF`, or `SECCOMP_RET_ERRNO` with no error.
    fn answer(self) -> u32 {
        match self {
            Self::Follows => 0x7fc0_0000,
            Self::KnowsNoFileSystem => 0x0005_0000,
        }
    }
}

/// The filter that tells these lies.
fn filter(lies: &[Lie]) -> &'static [Instruction] {
    let (load, equal, answer, allow) = (0x20, 0x15, 0x06, 0x7fff_0000);
    let mut program = vec![Instruction { code: load, jt: 0, jf: 0, k: 0 }];
    for lie in lies {
        program.push(Instruction { code: equal, jt: 0, jf: 1, k: lie.call() });
        program.push(Instruction { code: answer, jt: 0, jf: 0, k: lie.answer() });
    }
    program.push(Instruction { code: answer, jt: 0, jf: 0, k: allow });
    program.leak()
}

/// Runs a command, and all that it starts, on such a kernel.
pub(crate) fn run(command: &std::process::Command, lies: &[Lie]) -> Seen {
    let file = || tempfile::tempfile().expect("a file");
    let (mut out, mut err) = (file(), file());
    let mut lied_to = Command::new(command.get_program());
    lied_to.args(command.get_args()).stdin(File::open("/dev/null").expect("the null device"));
    lied_to.stdout(out.try_clone().expect("a file")).stderr(err.try_clone().expect("a file"));
    let new_listener = 8;
    lied_to.step(Step::SeccompListener { flags: new_listener, program: filter(lies) });
    let mut child = lied_to.notify_release().kill_on_drop().spawn().expect("the runtime");
    let request = child.next_request().expect("a child");
    assert_eq!(request, Some(Request::Listener), "{:?}", child.wait());
    let listener = child.requested_fd().expect("its listener");
    // What is asked before it may go on is answered, too.
    let answering = thread::spawn(move || answer(&listener));
    child.go_on().expect("a child");
    let status = child.wait().expect("its end");
    answering.join().expect("who answers");
    let read = |file: &mut File| {
        let mut bytes = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("what was written");
        bytes
    };
    Seen(Output { status, stdout: read(&mut out), stderr: read(&mut err) })
}

/// `struct seccomp_notif`: id; pid and flags; number and architecture; instruction; six arguments.
type Notification = [u64; 10];
/// `struct seccomp_notif_resp`: id; value; error and flags.
type Answer = [u64; 3];

const RECEIVE: Opcode = rustix::ioctl::opcode::read_write::<Notification>(b'!', 0);
const SEND: Opcode = rustix::ioctl::opcode::read_write::<Answer>(b'!', 1);
/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`, in the upper half of its word.
const GO_ON: u64 = 1 << 32;

/// Answers until nobody is left who could ask.
fn answer(listener: &OwnedFd) {
    loop {
        let mut polled = [PollFd::new(listener, PollFlags::IN)];
        retry_on_intr(|| poll(&mut polled, None)).expect("a poll");
        if !polled[0].revents().contains(PollFlags::IN) {
            return;
        }
        let mut asked: Notification = [0; 10];
        match request::<RECEIVE, _>(listener, &mut asked) {
            Ok(()) => {}
            // Who asked is gone.
            Err(Errno::NOENT | Errno::INTR) => continue,
            Err(error) => panic!("a notification: {error}"),
        }
        let [id, process, ..] = asked;
        unsay(process & u64::from(u32::MAX), asked[6]);
        let mut answer: Answer = [id, 0, GO_ON];
        match request::<SEND, _>(listener, &mut answer) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => panic!("an answer: {error}"),
        }
    }
}

/// One of the two requests. The kernel wants a notification's place zeroed.
fn request<const CODE: Opcode, T>(listener: &OwnedFd, words: &mut T) -> Result<(), Errno> {
    // SAFETY: both codes are made from the type whose structure the kernel reads and writes for them.
    let request = unsafe { Updater::<CODE, T>::new(words) };
    // SAFETY: the same; and the kernel keeps nothing of it.
    unsafe { ioctl(listener, request) }
}

/// Takes `O_NOFOLLOW` and `RESOLVE_*` out of a `struct open_how`.
fn unsay(process: u64, how: u64) {
    let no_follow = if cfg!(target_arch = "x86_64") { 0o400_000_u64 } else { 0o100_000 };
    let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{process}/mem"));
    let Ok(memory) = memory else { return };
    let mut flags = [0; 8];
    memory.read_exact_at(&mut flags, how).expect("a struct open_how");
    let flags = u64::from_ne_bytes(flags) & !no_follow;
    memory.write_all_at(&flags.to_ne_bytes(), how).expect("a struct open_how");
    memory.write_all_at(&[0; 8], how + 16).expect("a struct open_how");
}
