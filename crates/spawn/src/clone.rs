//! Clones the child.
//!
//! # Safety
//!
//! A child that shares this process's memory runs on a stack, and reads a list, that this process owns. Both
//! belong to a [`ChildMemory`], which is neither freed nor reused before its journal says that the child is
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

/// The settings of a call that clones the child.
pub(crate) struct CloneRequest<'a> {
    /// New namespaces for the child.
    pub(crate) namespaces: Namespaces,
    /// The cgroup in which the child is created.
    pub(crate) cgroup: Option<BorrowedFd<'a>>,
    /// The child's pid in its own pid namespace, then in each ancestor.
    pub(crate) pids: &'a [i32],
    /// The event at which the call returns.
    pub(crate) returns: Returns,
    /// Whether the child shares this process's memory.
    pub(crate) sharing: Sharing,
    /// The way in which the parent identifies the child.
    pub(crate) known_by: KnownBy,
}

impl CloneRequest<'_> {
    /// Whether `clone`, which supports less than `clone3`, can make this child.
    pub(crate) fn can_do_without_clone3(&self) -> bool {
        self.cgroup.is_none() && self.pids.is_empty() && !self.namespaces.contains(Namespaces::TIME)
    }
}

impl Display for CloneRequest<'_> {
    /// Formats the act for an error.
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

/// The event at which the parent continues.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Returns {
    /// The parent continues immediately.
    AtOnce,
    /// The parent continues when the child is released (`CLONE_VFORK`). Not for a list in which the child waits for the
    /// parent.
    WhenReleased,
}

/// The way in which a parent identifies its child.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum KnownBy {
    /// The parent holds a pidfd, which never refers to another process.
    Pidfd,
    /// The parent knows the pid, which is not reused before the child is waited for. For callers that wait immediately
    /// and expose the child to no one. A pidfd would cost a thirtieth of a start.
    Pid,
}

/// The call that makes the child.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloneCall {
    Clone3,
    /// `clone`, where a seccomp filter rejects `clone3` with ENOSYS, as old profiles do.
    Clone,
}

/// Starts the child that performs the list in `memory`.
pub(crate) fn start(
    memory: &ChildMemory,
    request: &CloneRequest<'_>,
    call: CloneCall,
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
    if call == CloneCall::Clone3 {
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
    // The kernel rejects an address without pids.
    if !request.pids.is_empty() {
        args.set_tid = request.pids.as_ptr().addr() as u64;
        args.set_tid_size = request.pids.len() as u64;
    }
    let argument = (&raw const *script).cast::<c_void>();

    let make = match call {
        CloneCall::Clone3 => clone3,
        CloneCall::Clone => clone,
    };
    let mask = rt_sigprocmask(SignalSet::FULL)?;
    // The kernel clears no word in a copy of the memory, and such a child does not use the original.
    if request.sharing == Sharing::Shared {
        script.journal.occupy();
    }
    // SAFETY: the four conditions of `clone3`. (1) The stack is that of `memory`, whose last child is
    // released. It stays mapped until this child is released. (2) The list and its journal also belong to
    // `memory`; nothing writes to them except the journal's atomics. `pidfd` outlives the call, after which
    // the kernel does not use it. (3) `enter` runs `husk_script::run`, whose crate does only what is possible
    // there, and proves it. (4) Every signal is blocked in this thread, and therefore in the child. The
    // child's list unblocks them only after the handlers have been reset.
    let cloned = unsafe { make(&args, enter, argument) };
    // A failed clone leaves no child that uses the journal.
    if cloned.is_err() {
        script.journal.abandon();
    }
    rt_sigprocmask(mask)?;
    let pid = cloned?;
    if request.known_by == KnownBy::Pid {
        return Ok((pid, None));
    }
    // SAFETY: the kernel stored a new descriptor there, which nothing else owns.
    Ok((pid, Some(unsafe { OwnedFd::from_raw_fd(pidfd) })))
}

/// The child's entry point.
extern "C" fn enter(script: *const c_void) -> ! {
    // SAFETY: `start` passes the address of a `Script` that outlives the child's use of it.
    let script = unsafe { &*script.cast::<Script<'_>>() };
    // SAFETY: this runs only in the child, at its start. (1) It has one thread, and `run` performs its list
    // and never returns. (2) `start` does not set CLONE_FILES, so the child has its own descriptor table.
    // Values that close descriptors belong to the parent, in frames of other stacks that nothing here
    // unwinds. (3) The proof is on the child's own stack.
    let child = unsafe { InChild::new() };
    husk_script::run(&child, script)
}
