//! Starts a child: on its own stack in the memory of its parent, or in a copy of that memory.
//!
//! # Safety
//!
//! [`clone3`] and [`clone`] start a second process in memory that the first one uses. Each says what it requires of
//! its caller. The code in the child must follow the contract of `husk-script`.
//!
//! The other functions continue the calling process twice, or on its own stack. In a program with other threads that
//! leaves locks held for ever, and destructors run twice. These functions are therefore for a child that one of the
//! two has started, and take an [`InChild`] as proof. The caller of its constructor, [`InChild::new`], promises that
//! the process is such a child.

#![allow(unsafe_code, clippy::allow_attributes, reason = "processes that share memory")]

use crate::arch::{self, EntryPoint};
use crate::namespace::Namespaces;
use crate::raw::{self, check};
use crate::{Errno, Fd, Pid, Result};
use core::ffi::c_void;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use linux_raw_sys::general::{
    __NR_clone, __NR_clone3, CLONE_CHILD_CLEARTID, CLONE_FILES, CLONE_PIDFD, CLONE_SIGHAND, CLONE_SYSVSEM,
    CLONE_THREAD, CLONE_VFORK, CLONE_VM,
};

pub use linux_raw_sys::general::clone_args as CloneArgs;

/// The `CLONE_*` flags of `clone3`. The constants come from linux-raw-sys: those of the libc crate for signal handlers
/// and cgroups overflow to zero on glibc targets.
pub mod flags {
    use linux_raw_sys::general as raw;

    /// The child runs in the parent's memory.
    pub const VM: u64 = raw::CLONE_VM as u64;
    /// The calling thread is suspended until the child no longer uses that memory.
    pub const VFORK: u64 = raw::CLONE_VFORK as u64;
    /// The parent receives a pidfd.
    pub const PIDFD: u64 = raw::CLONE_PIDFD as u64;
    /// The kernel clears a word and wakes its futex when the child no longer uses the memory.
    pub const CHILD_CLEARTID: u64 = raw::CLONE_CHILD_CLEARTID as u64;
    /// The child's signal handlers are reset to their defaults; ignored signals stay ignored.
    pub const CLEAR_SIGHAND: u64 = raw::CLONE_CLEAR_SIGHAND;
    /// The child starts in the cgroup of `CloneArgs::cgroup`.
    pub const INTO_CGROUP: u64 = raw::CLONE_INTO_CGROUP;
}

/// Proves that the code runs in a child that has not execed and that only performs its list.
///
/// In such a process every descriptor belongs to the list, and no other thread holds a lock or uses data that the
/// child changes. Functions that close a descriptor by its number, or continue the process twice, take this proof. It
/// has no size.
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
    /// Creates the proof, at the entry of a child.
    ///
    /// # Safety
    ///
    /// - The calling process has one thread, and has not execed since its clone. It runs only code that receives the
    ///   proof, and threads that [`beside`] starts.
    /// - It has its own descriptor table, and drops no value that closes one of these descriptors.
    /// - The proof does not outlive the process: it is not stored where a process that shares the memory can find it.
    #[must_use]
    pub const unsafe fn new() -> Self {
        Self(PhantomData)
    }
}

/// The signal that tells a parent that its child has ended.
const SIGCHLD: u64 = linux_raw_sys::general::SIGCHLD as u64;

/// Starts a child that runs `entry(argument)` on the stack in `args`, with `clone3`, and returns its pid. The exit
/// signal is always `SIGCHLD`.
///
/// # Errors
///
/// `ENOSYS` if the kernel, or a seccomp filter on the caller, does not know the call; for the rest see clone3(2).
///
/// # Safety
///
/// - `args` names a stack that no other code uses until the child has execed or exited.
/// - Everything that `args` and `argument` point to stays valid until then. No other code writes data that the child
///   reads, except atomics.
/// - With `CLONE_VM`, `entry` does only what is possible in another process's memory. It uses no thread-local storage,
///   takes no lock, allocates nothing and never unwinds.
/// - No signal handler of this program runs in the child: every signal is blocked, or the flags include
///   `CLONE_CLEAR_SIGHAND`.
pub unsafe fn clone3(args: &CloneArgs, entry: EntryPoint, argument: *const c_void) -> Result<Pid> {
    let args = CloneArgs { exit_signal: SIGCHLD, ..*args };
    let words = [(&raw const args).addr(), size_of::<CloneArgs>(), 0, 0, 0];
    // SAFETY: the kernel reads `args`, which outlives the call, and writes the pidfd to the address in it. The caller
    // promises the rest.
    let returned = unsafe { arch::clone_call(__NR_clone3, words, entry, argument) };
    pid(returned)
}

/// Like [`clone3`], but with `clone`, for systems that refuse `clone3`. It lacks the flags that only `clone3` has, so
/// the child must reset signal handlers itself.
///
/// # Errors
///
/// `EINVAL` if `args` requires `clone3`; for the rest see clone(2).
///
/// # Safety
///
/// As for [`clone3`], except that every signal must be blocked.
pub unsafe fn clone(args: &CloneArgs, entry: EntryPoint, argument: *const c_void) -> Result<Pid> {
    // The lowest byte of the flags is the exit signal, so CLONE_NEWTIME, 0x80, does not fit.
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
    // SAFETY: the kernel writes the pidfd to the address in `args`. The caller promises the rest.
    let returned = unsafe { arch::clone_call(__NR_clone, words, entry, argument) };
    pid(returned)
}

/// A child that [`fork`] has started.
#[derive(Clone, Copy, Debug)]
pub struct Forked {
    /// Its pid, which no other process gets until it has been reaped.
    pub pid: Pid,
    /// Its pidfd, which the caller must close.
    pub pidfd: Fd,
}

/// Starts a process that runs `child` in a copy of the caller's memory and exits with the status that it returns. It
/// uses `clone`, because the seccomp profiles of container engines refuse `clone3` to programs in containers.
pub fn fork(_: &InChild, child: impl FnOnce() -> u8) -> Result<Forked> {
    let mut pidfd: i32 = -1;
    let flags = u64::from(CLONE_PIDFD) | SIGCHLD;
    let flags = usize::try_from(flags).unwrap_or(usize::MAX);
    // Without a stack the child continues on its copy of this one. The third word is the address for the pidfd.
    let words = [flags, 0, (&raw mut pidfd).addr(), 0, 0, 0];
    // SAFETY: the kernel writes the pidfd to this address, in this process alone. The call returns a second time in
    // the child, which has memory of its own. There it calls `child`, which nothing else in that memory uses, and
    // never returns from here.
    let returned = unsafe { arch::call(__NR_clone, words) };
    if check(returned)? == 0 {
        raw::exit_group(usize::from(child()));
    }
    Ok(Forked { pid: pid(returned)?, pidfd: Fd::new(pidfd).ok_or(Errno::BADF)? })
}

/// Continues the caller twice, in its own memory and in a copy, with `clone(CLONE_PARENT | CLONE_PARENT_SETTID)`
/// without a stack. Returns `None` in the new process, which is a child of the caller's parent.
///
/// The kernel writes the new pid to `born` before the process runs; `born` should lie in a mapping shared with the
/// parent. The new process is in new `namespaces`, except for time, which `clone` cannot create.
///
/// # Errors
///
/// `EINVAL` for a time namespace, and in the first process of a pid namespace; for the rest see clone(2).
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

/// Continues the caller twice, in its own memory and in a copy, with `clone` without shared memory or a stack. Returns
/// `None` in the new process, which is the caller's child.
pub fn fork_on(_: &InChild) -> Result<Option<Pid>> {
    match raw::fork()? {
        0 => Ok(None),
        number => pid(isize::try_from(number).unwrap_or(-1)).map(Some),
    }
}

/// The continuation of a process that has called [`vfork`], after the new process has left its stack.
pub trait Waiter: Sync {
    /// Continues in the caller's memory and at the top of its stack, with the pid of the new process.
    fn go_on(&self, child: &InChild, pid: Option<Pid>) -> !;
}

/// Runs `child` in a new process, on the caller's stack and in its memory, with
/// `clone(CLONE_VM | CLONE_VFORK | CLONE_CHILD_CLEARTID)`. The new process is the caller's child, and exits with the
/// status that `child` returns. Until it has execed or exited, the caller is suspended. Then the kernel clears
/// `in_use`, and the caller continues in `waiter` with the pid.
///
/// Every signal must be blocked, and the new process must obey the rules of [`clone3`] for a child with `CLONE_VM`.
/// Returns only if the new process could not be created, with the reason.
pub fn vfork<T: Waiter>(_: &InChild, in_use: &AtomicU32, waiter: &T, child: impl FnOnce() -> u8) -> Errno {
    /// Continues the caller.
    extern "C" fn enter<T: Waiter>(waiter: *const c_void, pid: i32) -> ! {
        // SAFETY: `vfork` passes the address of its `waiter`, which is borrowed for as long as both processes live.
        let waiter = unsafe { &*waiter.cast::<T>() };
        // SAFETY: this process has called `vfork` with a proof of its own, and never returns to the code that holds
        // that proof.
        let child = unsafe { InChild::new() };
        waiter.go_on(&child, Pid::from_raw(pid))
    }
    let flags = CLONE_VM | CLONE_VFORK | CLONE_CHILD_CLEARTID | linux_raw_sys::general::SIGCHLD;
    let in_use = in_use.as_ptr().addr();
    // The address of the word is the fourth argument on x86, and the fifth on aarch64.
    #[cfg(target_arch = "x86_64")]
    let words = [flags as usize, 0, 0, in_use, 0];
    #[cfg(target_arch = "aarch64")]
    let words = [flags as usize, 0, 0, 0, in_use];
    let argument = (&raw const *waiter).cast::<c_void>();
    // SAFETY: the caller is suspended, so the child alone uses this stack, and it never returns from here. The caller
    // never uses anything above again. `waiter` and the word stay borrowed until both processes are done. The kernel
    // writes only the word, which is an atomic.
    let returned = unsafe { arch::vfork_call(__NR_clone, words, enter::<T>, argument) };
    if let Err(errno) = check(returned) {
        return errno;
    }
    raw::exit_group(usize::from(child()))
}

/// The work of a thread that [`beside`] starts.
pub trait Work: Sync {
    /// Runs in the thread, which ends when this returns.
    fn run(&self);
}

/// Runs `rest` in the calling thread, and `work` at the same time in another one, with
/// `clone3(CLONE_THREAD | CLONE_FILES | CLONE_CHILD_CLEARTID)`. The threads share the descriptors. `number` is the
/// other thread's number in its own pid namespace, so that the next process gets the same number as without the thread.
///
/// When the other thread no longer uses the memory, the kernel clears `in_use`; see [`await_thread`]. If the process
/// exits before, the memory stays in use until the kernel has cleared the word.
///
/// Every signal must be blocked. `work` must obey the rules of [`clone3`] for a child with `CLONE_VM`. Exits with the
/// status that `rest` returns. Returns only if the thread could not be created, with the reason.
#[inline(never)]
pub fn beside<W: Work>(
    _: &InChild,
    number: i32,
    in_use: &AtomicU32,
    work: &W,
    rest: impl FnOnce() -> u8,
) -> Errno {
    /// Starts the thread.
    extern "C" fn enter<W: Work>(work: *const c_void) -> ! {
        // SAFETY: `beside` passes the address of its `work`, which is borrowed for as long as the thread lives.
        let work = unsafe { &*work.cast::<W>() };
        work.run();
        raw::exit()
    }
    let mut stack = MaybeUninit::<[u128; THREAD_STACK / size_of::<u128>()]>::uninit();
    let flags = CLONE_VM | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID;
    let args = CloneArgs {
        flags: u64::from(flags),
        pidfd: 0,
        child_tid: in_use.as_ptr().addr() as u64,
        parent_tid: 0,
        exit_signal: 0,
        stack: stack.as_mut_ptr().addr() as u64,
        stack_size: THREAD_STACK as u64,
        tls: 0,
        set_tid: (&raw const number).addr() as u64,
        set_tid_size: 1,
        cgroup: 0,
    };
    let words = [(&raw const args).addr(), size_of::<CloneArgs>(), 0, 0, 0];
    in_use.store(1, Ordering::Release);
    let work = (&raw const *work).cast::<c_void>();
    // SAFETY: the thread alone uses `stack`. This function does not return after a success, so `stack` and `work` stay
    // valid while the process lives. The memory of the process stays in use until the kernel has cleared the word. No
    // signal handler runs on the stack. The caller promises the rest.
    let returned = unsafe { arch::clone_call(__NR_clone3, words, enter::<W>, work) };
    if let Err(errno) = check(returned) {
        in_use.store(0, Ordering::Release);
        return errno;
    }
    raw::exit_group(usize::from(rest()))
}

/// The size of the stack of a thread that [`beside`] starts.
const THREAD_STACK: usize = 4096;

/// Moves a thread to the caller's processor, where it runs when the caller waits. Returns whether that has succeeded.
#[must_use]
pub fn pull(_: &InChild, number: i32) -> bool {
    let processor = raw::getcpu().ok();
    processor
        .and_then(|processor| 1_u64.checked_shl(processor))
        .is_some_and(|mask| raw::bind_thread(number, mask))
}

/// Waits until a thread that [`beside`] has started no longer uses the memory.
pub fn await_thread(in_use: &AtomicU32) -> Result {
    while in_use.load(Ordering::Acquire) != 0 {
        match raw::futex_wait(in_use, 1) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn pid(returned: isize) -> Result<Pid> {
    let number = check(returned)?;
    // The kernel never returns 0 to a parent, and pids stay below 2^22.
    i32::try_from(number).ok().and_then(Pid::from_raw).ok_or(Errno::CHILD)
}

// `clone` passes the exit signal in the lowest byte of the flags.
const _: () = assert!((CLONE_VM | CLONE_VFORK | CLONE_PIDFD | CLONE_CHILD_CLEARTID) & 0xff == 0);
