//! Simulates a kernel that reports success for a call that it did not make.
//!
//! This shows that a defence works: without the call that it relies on, the same binary has to lose. A seccomp filter
//! answers some calls with success without making them. The test is notified of `openat2`, removes the flags that
//! restrict how the path is resolved, and lets the call continue.

use super::watched::{self, Verdict};
use crate::util::Seen;
use husk_spawn::sys::process::SockFilter;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;

/// A call that the kernel does not make as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FalseAnswer {
    /// `openat2` ignores `RESOLVE_*` and `O_NOFOLLOW`, so it follows symlinks.
    Follows,
    /// `fstatfs` returns no information on the file system.
    KnowsNoFileSystem,
    /// `madvise` leaves memory unchanged.
    ForgetsNothing,
    /// `prctl(PR_SET_DUMPABLE)` leaves memory dumpable.
    StaysDumpable,
    /// `mount_setattr` leaves mounts unchanged, so a mount that should be read-only is writable.
    SetsNoAttributes,
}

impl FalseAnswer {
    /// Returns the number of the call, on x86-64 or elsewhere.
    fn call(self) -> u32 {
        let common = |x86_64, generic| if cfg!(target_arch = "x86_64") { x86_64 } else { generic };
        match self {
            Self::Follows => 437,
            Self::KnowsNoFileSystem => common(138, 44),
            Self::ForgetsNothing => common(28, 233),
            Self::StaysDumpable => common(157, 167),
            Self::SetsNoAttributes => 442,
        }
    }

    /// Returns the first argument of affected calls; `None` if all are affected.
    fn argument(self) -> Option<u32> {
        // PR_SET_DUMPABLE
        (self == Self::StaysDumpable).then_some(4)
    }

    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Follows => "symlinks are followed",
            Self::KnowsNoFileSystem => "file system types are unknown",
            Self::ForgetsNothing => "memory is not discarded",
            Self::StaysDumpable => "memory stays dumpable",
            Self::SetsNoAttributes => "mount attributes are not set",
        }
    }

    /// Returns the filter's answer: `SECCOMP_RET_USER_NOTIF`, or `SECCOMP_RET_ERRNO` without an error.
    fn answer(self) -> u32 {
        match self {
            Self::Follows => 0x7fc0_0000,
            Self::ForgetsNothing | Self::KnowsNoFileSystem | Self::StaysDumpable | Self::SetsNoAttributes => {
                0x0005_0000
            }
        }
    }
}

/// Returns the filter that gives these answers.
fn filter(false_answers: &[FalseAnswer]) -> &'static [SockFilter] {
    let (load, equal, answer, allow) = (0x20, 0x15, 0x06, 0x7fff_0000);
    // Offsets in `struct seccomp_data` of the call's number and the lower half of the first argument.
    let (number, argument) = (0, 16);
    let mut program = Vec::new();
    for false_answer in false_answers {
        let answered = SockFilter { code: answer, jt: 0, jf: 0, k: false_answer.answer() };
        program.push(SockFilter { code: load, jt: 0, jf: 0, k: number });
        match false_answer.argument() {
            None => program.push(SockFilter { code: equal, jt: 0, jf: 1, k: false_answer.call() }),
            Some(value) => program.extend([
                SockFilter { code: equal, jt: 0, jf: 3, k: false_answer.call() },
                SockFilter { code: load, jt: 0, jf: 0, k: argument },
                SockFilter { code: equal, jt: 0, jf: 1, k: value },
            ]),
        }
        program.push(answered);
    }
    program.push(SockFilter { code: answer, jt: 0, jf: 0, k: allow });
    program.leak()
}

/// Runs a command and its children on such a kernel.
pub(crate) fn run(command: &std::process::Command, false_answers: &[FalseAnswer]) -> Seen {
    watched::run(command, filter(false_answers), |call| {
        lift_restrictions(call.process, call.arguments[2]);
        Verdict::GoOn
    })
}

/// Like `run`, but the command itself gets true answers: it examines the image first, and would find the host's files.
pub(crate) fn run_for_children(command: &std::process::Command, false_answers: &[FalseAnswer]) -> Seen {
    let mut first = None;
    watched::run(command, filter(false_answers), move |call| {
        if *first.get_or_insert(call.process) != call.process {
            lift_restrictions(call.process, call.arguments[2]);
        }
        Verdict::GoOn
    })
}

/// Clears `O_NOFOLLOW` and `RESOLVE_*` in a `struct open_how`.
fn lift_restrictions(process: i32, how: u64) {
    let no_follow = if cfg!(target_arch = "x86_64") { 0o400_000_u64 } else { 0o100_000 };
    let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{process}/mem"));
    // The process may have ended.
    let Ok(memory) = memory else { return };
    let mut flags = [0; 8];
    if memory.read_exact_at(&mut flags, how).is_ok() {
        let flags = u64::from_ne_bytes(flags) & !no_follow;
        memory.write_all_at(&flags.to_ne_bytes(), how).unwrap_or(());
        memory.write_all_at(&[0; 8], how + 16).unwrap_or(());
    }
}
