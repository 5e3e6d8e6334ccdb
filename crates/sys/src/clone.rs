//! Starting a child: on a stack of its own in the memory of its parent, or in a copy of that memory.
//!
//! # Safety
//!
//! [`clone3`] and [`clone`] start a second process in memory that the first one uses. What that
//! asks of a caller stands at each; what it asks of the code the child runs is the contract of
//! `husk-script`.
//!
//! The others continue the calling process twice, or on its own stack. In a program with other threads that
//! leaves locks held for ever, and destructors run twice. So they are for a child that has begun by one of the two,
//! and take an [`InChild`] to prove it. Its constructor, [`InChild::new`], is where that is promised.

#![allow(unsafe_code, clippy::allow_attributes, reason = "processes that share memory")]

use crate::arch::{self, Entry};
use crate::namespace::Namespaces;
use crate::raw::{self, check};
use crate::{Errno, Fd, Pid, Result};
use core::ffi::c_void;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicI32, AtomicU32};
use linux_raw_sys::general::{
    __NR_clone, __NR_clone3, CLONE_CHILD_CLEARTID, CLONE_PIDFD, CLONE_VFORK, CLONE_VM,
};

pub use linux_raw_sys::general::clone_args as CloneArgs;

/// `CLONE_*` flags, as `clone3` takes them. The constants are linux-raw-sys's, because those of the
/// libc crate for signal handlers and cgroups overflow to zero on glibc targets.
pub mod flags {
    use linux_raw_sys::general as raw;

    /// The child runs in the parent's memory.
    pub const VM: u64 = raw::CLONE_VM as u64;
    /// The calling thread is suspended until the child no longer uses that memory.
    pub const VFORK: u64 = raw::CLONE_VFORK as u64;
    /// The parent is handed a pidfd.
    pub const PIDFD: u64 = raw::CLONE_PIDFD as u64;
    /// A word is cleared and its futex woken when the child no longer uses the memory.
    pub const CHILD_CLEARTID: u64 = raw::CLONE_CHILD_CLEARTID as u64;
    /// The child's signal handlers are reset to their defaults; what is ignored stays ignored.
    pub const CLEAR_SIGHAND: u64 = raw::CLONE_CLEAR_SIGHAND;
    /// The child is born in the cgroup of `CloneArgs::cgroup`.
    pub const INTO_CGROUP: u64 = raw::CLONE_INTO_CGROUP;
}

/// Proof that the code runs in a child that has not execed, and that performs its list and nothing else.
///
/// In such a process every descriptor belongs to the list, and no other thread holds a lock or uses what the child
/// changes. A function that closes a descriptor by its number, or continues the process twice, takes this proof.
/// It has no size.
///
/// ```no_run
/// use husk_sys::clone::{InChild, fork_on};
/// use husk_sys::{Fd, Result, file};
///
/// fn in_a_child(child: &InChild) -> Result {
///     file::dup3(child, Fd::FIRST_EXTRA, Fd::STDIN)?;
///     file::close(child, Fd::FIRST_EXTRA);
///     fork_on(child).map(drop)
/// }
/// ```
///
/// A parent has no such proof, and cannot make one in safe code:
///
/// ```compile_fail,E0061
/// husk_sys::file::close(husk_sys::Fd::FIRST_EXTRA);
/// ```
///
/// ```compile_fail,E0133
/// let child = husk_sys::clone::InChild::new();
/// ```
///
/// ```compile_fail,E0603
/// let child = husk_sys::clone::InChild(core::marker::PhantomData);
/// ```
///
/// It cannot leave the child through memory that is shared with the parent's threads:
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<husk_sys::clone::InChild>();
/// ```
///
/// ```compile_fail,E0277
/// fn sent<T: Send>() {}
/// sent::<husk_sys::clone::InChild>();
/// ```
pub struct InChild(PhantomData<*mut ()>);

impl InChild {
    /// The proof, for the entry of a child.
    ///
    /// # Safety
    ///
    /// - The calling process has one thread, and has neither execed since its clone nor will it run anything but
    ///   what is handed the proof.
    /// - Its table of descriptors is its own, and no value that closes one of them on drop is dropped in it.
    /// - The proof does not outlive the process: it is not put where a process that shares the memory finds it.
    #[must_use]
    pub const unsafe fn new() -> Self {
        Self(PhantomData)
    }
}

/// The signal that tells a parent of its child's end.
const SIGCHLD: u64 = linux_raw_sys::general::SIGCHLD as u64;

/// `clone3`: starts a child that runs `entry(argument)` on the stack that `args` names, and returns
/// its pid. `SIGCHLD` is filled in as its exit signal.
///
/// # Errors
///
/// `ENOSYS` where the kernel, or a seccomp filter around us, does not know the call; for the rest
/// see clone3(2).
///
/// # Safety
///
/// - `args` names a stack, and nobody else uses it until the child has execed or exited.
/// - What `args` and `argument` point to is valid until then, and of what the child reads nobody
///   writes anything but atomics.
/// - With `CLONE_VM`, `entry` keeps to what is possible in another process's memory: it uses no
///   thread-local storage, takes no lock, allocates nothing and never unwinds.
/// - No signal handler of this program runs in the child: every signal is blocked, or
///   `CLONE_CLEAR_SIGHAND` is among the flags.
pub unsafe fn clone3(args: &CloneArgs, entry: Entry, argument: *const c_void) -> Result<Pid> {
    let args = CloneArgs { exit_signal: SIGCHLD, ..*args };
    let words = [(&raw const args).addr(), size_of::<CloneArgs>(), 0, 0, 0];
    // SAFETY: the kernel reads `args`, which outlives the call, and writes the pidfd where it says;
    // the rest is the caller's promise.
    let returned = unsafe { arch::clone_call(__NR_clone3, words, entry, argument) };
    pid(returned)
}

/// The same by `clone`, for where `clone3` is refused: without the flags that only `clone3` has,
/// so the child must reset signal handlers itself.
///
/// # Errors
///
/// `EINVAL` if `args` asks for what only `clone3` can do; for the rest see clone(2).
///
/// # Safety
///
/// As for [`clone3`], except that every signal must be blocked.
pub unsafe fn clone(args: &CloneArgs, entry: Entry, argument: *const c_void) -> Result<Pid> {
    // The lowest byte of the flags is the exit signal, so CLONE_NEWTIME, 0x80, has no room there.
    if args.flags > u64::from(u32::MAX) || args.flags & 0xff != 0 || args.set_tid_size != 0 {
        return Err(Errno::INVAL);
    }
    let word = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let flags = word(args.flags | SIGCHLD);
    let stack = word(args.stack.wrapping_add(args.stack_size));
    let (pidfd, child_tid) = (word(args.pidfd), word(args.child_tid));
    // The last two are in another order on x86 (kernel/fork.c, CONFIG_CLONE_BACKWARDS).
    #[cfg(target_arch = "x86_64")]
    let words = [flags, stack, pidfd, child_tid, 0];
    #[cfg(target_arch = "aarch64")]
    let words = [flags, stack, pidfd, 0, child_tid];
    // SAFETY: the kernel writes the pidfd where `args` says; the rest is the caller's promise.
    let returned = unsafe { arch::clone_call(__NR_clone, words, entry, argument) };
    pid(returned)
}

/// A child that [`fork`] has started.
#[derive(Clone, Copy, Debug)]
pub struct Forked {
    /// Its pid, which nobody else gets until it has been waited for.
    pub pid: Pid,
    /// Its pidfd, which is the caller's to close.
    pub pidfd: Fd,
}

/// `clone` without shared memory: starts a process that runs `child` in a copy of this one's memory,
/// ends with the status that it returns, and is known by the pidfd that is returned here. Not by `clone3`,
/// which the seccomp profiles of container engines refuse to containers, and so to what runs in one.
///
/// # Errors
///
/// See clone(2).
pub fn fork(_: &InChild, child: impl FnOnce() -> u8) -> Result<Forked> {
    let mut pidfd: i32 = -1;
    let flags = u64::from(CLONE_PIDFD) | SIGCHLD;
    let flags = usize::try_from(flags).unwrap_or(usize::MAX);
    // No stack: the child goes on with its copy of ours. The third word is where the pidfd is put.
    let words = [flags, 0, (&raw mut pidfd).addr(), 0, 0, 0];
    // SAFETY: the kernel writes the pidfd where it is told, in this process alone. The call returns
    // a second time in the child, whose memory is another: it calls `child`, which it owns as the only
    // one there, and never returns from here.
    let returned = unsafe { arch::call(__NR_clone, words) };
    if check(returned)? == 0 {
        raw::exit_group(usize::from(child()));
    }
    Ok(Forked { pid: pid(returned)?, pidfd: Fd::new(pidfd).ok_or(Errno::BADF)? })
}

/// `clone(CLONE_PARENT | CLONE_PARENT_SETTID)` without a stack, as fork: the caller goes on twice, in
/// its own memory and in a copy of it. The new process is a child of the caller's parent, for whom the
/// kernel writes its pid to `born` before it runs; that word had better lie in a shared mapping. To the
/// new process this returns `None`. With `namespaces` it is born in new ones, time excepted, which
/// `clone` has no room for.
///
/// # Errors
///
/// `EINVAL` for a time namespace, and to the first process of a pid namespace; for the rest see
/// clone(2).
pub fn clone_parent(_: &InChild, namespaces: Namespaces, born: &AtomicI32) -> Result<Option<Pid>> {
    // The lowest byte of the flags is the exit signal, which CLONE_PARENT takes from the caller.
    if namespaces.bits() & 0xff != 0 {
        return Err(Errno::INVAL);
    }
    match raw::clone_parent(namespaces.bits(), born)? {
        0 => Ok(None),
        number => pid(isize::try_from(number).unwrap_or(-1)).map(Some),
    }
}

/// `clone` without shared memory and without a stack, as fork: the caller goes on twice, in its own memory
/// and in a copy of it. To the new process, which is its child, this returns `None`.
///
/// # Errors
///
/// See clone(2).
pub fn fork_on(_: &InChild) -> Result<Option<Pid>> {
    match raw::fork()? {
        0 => Ok(None),
        number => pid(isize::try_from(number).unwrap_or(-1)).map(Some),
    }
}

/// What a process that has called [`vfork`] does when the new process has left its stack.
pub trait Waiter: Sync {
    /// Does it, with the pid of the new process, in the caller's memory and at the top of the caller's stack.
    fn go_on(&self, child: &InChild, pid: Option<Pid>) -> !;
}

/// `clone(CLONE_VM | CLONE_VFORK | CLONE_CHILD_CLEARTID)` without a stack, as vfork. The caller is suspended while
/// the new process, its child, runs `child`, which ends with the status that it returns. When the child has execed
/// or ended the kernel clears `in_use`, and the caller goes on in `waiter`, which is handed the pid.
///
/// Every signal is blocked, and the new process keeps to what [`clone3`] asks of a child with `CLONE_VM`. Returns only if
/// there is no new process, and says why.
pub fn vfork<T: Waiter>(_: &InChild, in_use: &AtomicU32, waiter: &T, child: impl FnOnce() -> u8) -> Errno {
    /// Where the caller goes on.
    extern "C" fn enter<T: Waiter>(waiter: *const c_void, pid: i32) -> ! {
        // SAFETY: `vfork` passes the address of its `waiter`, which is borrowed for as long as both processes live.
        let waiter = unsafe { &*waiter.cast::<T>() };
        // SAFETY: this is the process that has called `vfork` with a proof of its own, and it never returns to where
        // that one is.
        let child = unsafe { InChild::new() };
        waiter.go_on(&child, Pid::from_raw(pid))
    }
    let flags = CLONE_VM | CLONE_VFORK | CLONE_CHILD_CLEARTID | linux_raw_sys::general::SIGCHLD;
    let in_use = in_use.as_ptr().addr();
    // Where the word is stands last but one on x86.
    #[cfg(target_arch = "x86_64")]
    let words = [flags as usize, 0, 0, in_use, 0];
    #[cfg(target_arch = "aarch64")]
    let words = [flags as usize, 0, 0, 0, in_use];
    let argument = (&raw const *waiter).cast::<c_void>();
    // SAFETY: the child has this stack for itself, the caller being suspended, and never returns from here, so nothing
    // above is ever used by the caller again; `waiter` and the word are borrowed for as long as that. The kernel writes
    // the word alone, which is an atomic.
    let returned = unsafe { arch::vfork_call(__NR_clone, words, enter::<T>, argument) };
    if let Err(errno) = check(returned) {
        return errno;
    }
    raw::exit_group(usize::from(child()))
}

fn pid(returned: isize) -> Result<Pid> {
    let number = check(returned)?;
    // A parent is never told 0, and pids stay below 2^22.
    i32::try_from(number).ok().and_then(Pid::from_raw).ok_or(Errno::CHILD)
}

// Flags of the first generation must fit what `clone` can pass.
const _: () = assert!((CLONE_VM | CLONE_VFORK | CLONE_PIDFD | CLONE_CHILD_CLEARTID) & 0xff == 0);
