//! The clone itself.
//!
//! # Safety
//!
//! A child that shares our memory runs on a stack of ours and reads a list of ours. Both belong to
//! a [`ChildMemory`], which is neither freed nor used again before its journal says that the child is
//! released (`memory/pool.rs`). This file lets one child use one of these, once.

#![allow(unsafe_code, clippy::allow_attributes, reason = "starts a process in shared memory")]

use crate::memory::pool::ChildMemory;
use crate::memory::writer::Sharing;
use core::ffi::c_void;
use core::fmt::{self, Display, Formatter};
use husk_listing::Kinds;
use husk_script::Script;
use husk_script::sys::clone::{CloneArgs, InChild, clone, clone3, flags};
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::signal::{SignalSet, rt_sigprocmask};
use husk_script::sys::{Errno, Pid};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// What the kernel is asked for beside a child.
pub(crate) struct CloneRequest<'a> {
    /// Namespaces that the child is born in.
    pub(crate) namespaces: Namespaces,
    /// The cgroup that the child is born in.
    pub(crate) cgroup: Option<BorrowedFd<'a>>,
    /// The child's pid in its own pid namespace, in the one above, and so on.
    pub(crate) pids: &'a [i32],
    /// When the call returns.
    pub(crate) returns: Returns,
    /// Whose memory the child begins in.
    pub(crate) sharing: Sharing,
    /// How the parent knows the child from then on.
    pub(crate) known_by: KnownBy,
}

impl CloneRequest<'_> {
    /// Whether `clone`, which knows less, can make this child.
    pub(crate) fn can_do_without_clone3(&self) -> bool {
        self.cgroup.is_none() && self.pids.is_empty() && !self.namespaces.contains(Namespaces::TIME)
    }
}

impl Display for CloneRequest<'_> {
    /// The act, for an error.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("clone")?;
        if !self.namespaces.is_empty() {
            write!(f, " with new {}", Kinds(self.namespaces))?;
        }
        if self.cgroup.is_some() {
            f.write_str(" into cgroup")?;
        }
        if !self.pids.is_empty() {
            write!(f, " as {:?}", self.pids)?;
        }
        Ok(())
    }
}

/// When the parent goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Returns {
    /// At once.
    AtOnce,
    /// When the child is released: `CLONE_VFORK`. Not for a list in which the child waits for us.
    WhenReleased,
}

/// How a parent knows its child.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum KnownBy {
    /// By a descriptor that never means another process.
    Pidfd,
    /// By its pid, which is not given to another before the child is waited for. For who waits at
    /// once and shows the child to nobody: a descriptor is a thirtieth of a start's cost.
    Pid,
}

/// Which call makes the child.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// `clone3`.
    Clone3,
    /// `clone`, where a seccomp filter around us answers `clone3` with ENOSYS, as old profiles do.
    Clone,
}

/// Starts the child that performs the list in `memory`.
pub(crate) fn start(
    memory: &ChildMemory,
    request: &CloneRequest<'_>,
    call: Call,
) -> Result<(Pid, Option<OwnedFd>), Errno> {
    let script: &Script<'_> = memory.script();
    let (stack, stack_size) = memory.stack().extent();
    let mut pidfd: i32 = -1;
    let mut wanted = u64::from(request.namespaces.bits());
    if request.sharing == Sharing::Shared {
        wanted |= flags::VM | flags::CHILD_CLEARTID;
    }
    if request.known_by == KnownBy::Pidfd {
        wanted |= flags::PIDFD;
    }
    if call == Call::Clone3 {
        wanted |= flags::CLEAR_SIGHAND;
    }
    if request.returns == Returns::WhenReleased {
        wanted |= flags::VFORK;
    }
    let mut args = CloneArgs {
        flags: wanted,
        pidfd: (&raw mut pidfd).addr() as u64,
        child_tid: script.journal.in_use().as_ptr().addr() as u64,
        parent_tid: 0,
        exit_signal: 0,
        stack: stack as u64,
        stack_size: stack_size as u64,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: 0,
    };
    if let Some(cgroup) = request.cgroup {
        args.flags |= flags::INTO_CGROUP;
        args.cgroup = u64::from(cgroup.as_raw_fd().unsigned_abs());
    }
    // The kernel refuses an address without pids.
    if !request.pids.is_empty() {
        args.set_tid = request.pids.as_ptr().addr() as u64;
        args.set_tid_size = request.pids.len() as u64;
    }
    let argument = (&raw const *script).cast::<c_void>();

    let make = match call {
        Call::Clone3 => clone3,
        Call::Clone => clone,
    };
    let mask = rt_sigprocmask(SignalSet::FULL)?;
    // The kernel clears no word of memory that is not shared, and a copy keeps no child memory in use.
    if request.sharing == Sharing::Shared {
        script.journal.occupy();
    }
    // SAFETY: the four conditions of `clone3`. (1) The stack is that of `memory`, whose last child is
    // released, and stays mapped until this one is. (2) The list and its journal are those of `memory`
    // too; nobody writes to them but the journal's atomics, and `pidfd` outlives the call, which
    // is all the kernel needs it for. (3) `enter` runs `husk_script::run`, whose crate keeps to
    // what is possible there, and proves it. (4) Every signal is blocked in this thread, and so in
    // the child until its list says otherwise, after its handlers have been reset.
    let cloned = unsafe { make(&args, enter, argument) };
    // The journal of a child that never was is not in use.
    if cloned.is_err() {
        script.journal.abandon();
    }
    rt_sigprocmask(mask)?;
    let pid = cloned?;
    if request.known_by == KnownBy::Pid {
        return Ok((pid, None));
    }
    // SAFETY: the kernel has put a new descriptor there, which nobody else knows of.
    Ok((pid, Some(unsafe { OwnedFd::from_raw_fd(pidfd) })))
}

/// Where the child begins.
extern "C" fn enter(script: *const c_void) -> ! {
    // SAFETY: `start` passes the address of a `Script` that outlives the child's use of it.
    let script = unsafe { &*script.cast::<Script<'_>>() };
    // SAFETY: this is the child, where it begins. (1) It has one thread, and `run` performs its list and never
    // returns. (2) `start` asks for no CLONE_FILES, so its table is its own; values that close descriptors are the
    // parent's, in frames of other stacks that nothing here unwinds. (3) The proof lies on the child's own stack.
    let child = unsafe { InChild::new() };
    husk_script::run(&child, script)
}
