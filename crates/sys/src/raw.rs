//! Makes the system calls that rustix lacks, with arguments that make them safe.
//!
//! # Safety
//!
//! [`numbers`] makes calls that take no address, so they affect no memory whatever their arguments. [`Numeric`] lists
//! them. A call that maps, unmaps, reads or writes memory for some argument must not join that list. Each of the other
//! functions passes addresses of data that it borrows during the call, with its length.

#![allow(unsafe_code, clippy::allow_attributes, reason = "raw system calls")]

use crate::arch::{call, trap};
use crate::{CArray, Errno, Fd, Gid, Pid, Result};
use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI32, AtomicU32};
use linux_raw_sys::general as nr;
use linux_raw_sys::landlock::{
    LANDLOCK_CREATE_RULESET_VERSION, landlock_path_beneath_attr, landlock_rule_type, landlock_ruleset_attr,
};

/// System calls that take only numbers.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Numeric {
    CloseRange = nr::__NR_close_range,
    Dup3 = nr::__NR_dup3,
    IoprioSet = nr::__NR_ioprio_set,
    Personality = nr::__NR_personality,
    Setns = nr::__NR_setns,
    Unshare = nr::__NR_unshare,
}

/// `prctl` options that take only numbers.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Prctl {
    CapAmbient = linux_raw_sys::prctl::PR_CAP_AMBIENT,
    #[cfg(target_arch = "x86_64")]
    GetSeccomp = linux_raw_sys::prctl::PR_GET_SECCOMP,
    CapbsetDrop = linux_raw_sys::prctl::PR_CAPBSET_DROP,
    GetDumpable = linux_raw_sys::prctl::PR_GET_DUMPABLE,
    SetDumpable = linux_raw_sys::prctl::PR_SET_DUMPABLE,
    SetKeepcaps = linux_raw_sys::prctl::PR_SET_KEEPCAPS,
    SetNoNewPrivs = linux_raw_sys::prctl::PR_SET_NO_NEW_PRIVS,
    SetPdeathsig = linux_raw_sys::prctl::PR_SET_PDEATHSIG,
}

/// `fcntl` commands that take only numbers.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Fcntl {
    DupfdCloexec = nr::F_DUPFD_CLOEXEC,
    Getfd = nr::F_GETFD,
    Setfd = nr::F_SETFD,
}

/// `_IO('T', 0x41)`, the same on x86_64 and aarch64 (asm-generic/ioctls.h).
const TIOCGPTPEER: usize = 0x5441;

/// The size of the kernel's signal set, which every signal call takes as an argument.
const SIGNAL_SET_SIZE: usize = size_of::<u64>();

/// Turns the value that a system call returned into a result.
#[inline]
pub(crate) fn check(returned: isize) -> Result<usize> {
    match returned {
        // The kernel's error range (include/linux/err.h, MAX_ERRNO).
        #[expect(clippy::cast_possible_truncation, reason = "the range fits in sixteen bits")]
        -4095..=-1 => Err(Errno::from_raw_os_error(-(returned as i32))),
        #[expect(clippy::cast_sign_loss, reason = "what is no error is no negative number either")]
        _ => Ok(returned as usize),
    }
}

pub(crate) fn numbers(number: Numeric, [a, b, c]: [usize; 3]) -> Result<usize> {
    // SAFETY: none of these calls takes an address.
    check(unsafe { call(number as u32, [a, b, c, 0, 0, 0]) })
}

pub(crate) fn exit_group(status: usize) -> ! {
    // SAFETY: one number.
    unsafe { call(nr::__NR_exit_group, [status, 0, 0, 0, 0, 0]) };
    // The call returns only if a seccomp filter refuses it.
    trap()
}

/// Waits until `word` is woken if it is `value`. It is not a private futex: the kernel wakes the word of a thread as a
/// shared one (kernel/fork.c, `mm_release`).
pub(crate) fn futex_wait(word: &AtomicU32, value: u32) -> Result {
    const FUTEX_WAIT: usize = 0;
    let words = [word.as_ptr().addr(), FUTEX_WAIT, value as usize, 0, 0, 0];
    // SAFETY: the kernel reads one word, which is an atomic, and waits without a timeout.
    check(unsafe { call(nr::__NR_futex, words) }).map(drop)
}

/// Returns the processor that runs the caller.
pub(crate) fn getcpu() -> Result<u32> {
    let mut processor = 0_u32;
    // SAFETY: the kernel writes one number.
    check(unsafe { call(nr::__NR_getcpu, [(&raw mut processor).addr(), 0, 0, 0, 0, 0]) })?;
    Ok(processor)
}

/// Ends the calling thread.
pub(crate) fn exit() -> ! {
    // SAFETY: one number.
    unsafe { call(nr::__NR_exit, [0, 0, 0, 0, 0, 0]) };
    trap()
}

pub(crate) fn clone_parent(namespaces: u32, born: &AtomicI32) -> Result<usize> {
    let flags = namespaces | nr::CLONE_PARENT | nr::CLONE_PARENT_SETTID;
    let words = [flags as usize, 0, born.as_ptr().addr(), 0, 0, 0];
    // SAFETY: without CLONE_VM and without a stack, the new process continues here in a copy of this memory. The two
    // processes share only what was shared before. The kernel writes one word, which is an atomic.
    check(unsafe { call(nr::__NR_clone, words) })
}

pub(crate) fn fork() -> Result<usize> {
    let words = [nr::SIGCHLD as usize, 0, 0, 0, 0, 0];
    // SAFETY: as for `clone_parent`, without the word.
    check(unsafe { call(nr::__NR_clone, words) })
}

pub(crate) fn kill(pid: i32, signal: usize) -> Result {
    // SAFETY: two numbers.
    check(unsafe { call(nr::__NR_kill, [pid as usize, signal, 0, 0, 0, 0]) }).map(drop)
}

/// The result of wait4: pid, status, times in user mode and in the kernel, and peak memory.
pub(crate) type Waited = (usize, i32, [nr::__kernel_old_timeval; 2], i64);

pub(crate) fn wait4_any(options: u32) -> Result<Option<Waited>> {
    let mut status = 0_i32;
    let mut usage = MaybeUninit::<nr::rusage>::uninit();
    let words = [usize::MAX, (&raw mut status).addr(), options as usize, usage.as_mut_ptr().addr(), 0, 0];
    // SAFETY: the kernel writes a number and a `rusage`, and there is room for both.
    let pid = check(unsafe { call(nr::__NR_wait4, words) })?;
    if pid == 0 {
        return Ok(None);
    }
    // SAFETY: the kernel has written all of it, for whichever child it reports. By reference: a copy would call a
    // function that is not linked.
    let usage = unsafe { usage.assume_init_ref() };
    Ok(Some((pid, status, [usage.ru_utime, usage.ru_stime], usage.ru_maxrss)))
}

pub(crate) fn prctl(option: Prctl, [a, b]: [usize; 2]) -> Result<usize> {
    // SAFETY: none of these options takes an address.
    check(unsafe { call(nr::__NR_prctl, [option as usize, a, b, 0, 0, 0]) })
}

pub(crate) fn fcntl(fd: Fd, command: Fcntl, argument: usize) -> Result<usize> {
    // SAFETY: none of these commands takes an address.
    check(unsafe { call(nr::__NR_fcntl, [fd.word(), command as usize, argument, 0, 0, 0]) })
}

pub(crate) fn execve(path: &CStr, argv: CArray<'_>, envp: CArray<'_>) -> Result<usize> {
    let words = [path.as_ptr().addr(), argv.address(), envp.address(), 0, 0, 0];
    // SAFETY: the kernel reads a string that ends with NUL, and two arrays of such strings that end with a null
    // pointer. Their types prove it.
    check(unsafe { call(nr::__NR_execve, words) })
}

pub(crate) fn execveat_empty(file: Fd, argv: CArray<'_>, envp: CArray<'_>) -> Result<usize> {
    let flags = nr::AT_EMPTY_PATH as usize;
    let words = [file.word(), c"".as_ptr().addr(), argv.address(), envp.address(), flags, 0];
    // SAFETY: as for `execve`.
    check(unsafe { call(nr::__NR_execveat, words) })
}

pub(crate) fn rt_sigprocmask(set: u64) -> Result<u64> {
    let mut before = 0_u64;
    let words =
        [nr::SIG_SETMASK as usize, (&raw const set).addr(), (&raw mut before).addr(), SIGNAL_SET_SIZE, 0, 0];
    // SAFETY: the kernel reads one set and writes another, both on this stack and of the stated size.
    check(unsafe { call(nr::__NR_rt_sigprocmask, words) })?;
    Ok(before)
}

/// `struct sigaction` as the kernel defines it, with the same words on x86_64 and aarch64. In
/// [`signal`](crate::signal) the handler is one of the two dispositions that are not an address, or the address of
/// `ended`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Action {
    pub(crate) handler: usize,
    pub(crate) flags: u64,
    pub(crate) restorer: usize,
    pub(crate) mask: u64,
}

pub(crate) fn rt_sigaction(signal: usize, new: Option<&Action>) -> Result<Action> {
    let mut before = Action::default();
    let new = new.map_or(0, |action| (&raw const *action).addr());
    let words = [signal, new, (&raw mut before).addr(), SIGNAL_SET_SIZE, 0, 0];
    // SAFETY: the kernel reads an action, if there is one, and writes another, both in its layout. The only handler
    // that it enters makes one system call on the current stack and does not return.
    check(unsafe { call(nr::__NR_rt_sigaction, words) })?;
    Ok(before)
}

pub(crate) fn rt_sigtimedwait(set: u64) -> Result<usize> {
    let words = [(&raw const set).addr(), 0, 0, SIGNAL_SET_SIZE, 0, 0];
    // SAFETY: the kernel reads one set, on this stack and of the stated size. The other addresses, of a siginfo and a
    // timeout, are null.
    check(unsafe { call(nr::__NR_rt_sigtimedwait, words) })
}

pub(crate) fn pidfd_send_signal(pidfd: Fd, signal: usize, flags: usize) -> Result {
    // SAFETY: the address, of a siginfo, is null.
    check(unsafe { call(nr::__NR_pidfd_send_signal, [pidfd.word(), signal, 0, flags, 0, 0]) }).map(drop)
}

/// `struct sched_attr`, first version.
#[repr(C)]
pub(crate) struct KernelSchedAttr {
    pub(crate) size: u32,
    pub(crate) policy: u32,
    pub(crate) flags: u64,
    pub(crate) nice: i32,
    pub(crate) priority: u32,
    pub(crate) runtime: u64,
    pub(crate) deadline: u64,
    pub(crate) period: u64,
}

pub(crate) fn sched_setattr(pid: Option<Pid>, attr: &KernelSchedAttr) -> Result {
    let pid = Pid::as_raw(pid).unsigned_abs() as usize;
    // SAFETY: the kernel reads as many bytes as the structure's `size` says, which is its size.
    check(unsafe { call(nr::__NR_sched_setattr, [pid, (&raw const *attr).addr(), 0, 0, 0, 0]) }).map(drop)
}

pub(crate) fn sched_setaffinity(mask: &[u64]) -> Result {
    // SAFETY: the kernel reads as many bytes of `mask` as it has.
    check(unsafe { call(nr::__NR_sched_setaffinity, [0, size_of_val(mask), mask.as_ptr().addr(), 0, 0, 0]) })
        .map(drop)
}

/// Binds another thread to the processors in `mask`. Returns whether that has succeeded.
pub(crate) fn bind_thread(thread: i32, mask: u64) -> bool {
    let words = [thread.unsigned_abs() as usize, size_of::<u64>(), (&raw const mask).addr(), 0, 0, 0];
    // SAFETY: the kernel reads the mask.
    unsafe { call(nr::__NR_sched_setaffinity, words) >= 0 }
}

pub(crate) fn set_mempolicy(mode: u32, nodes: &[u64]) -> Result {
    // The kernel uses one bit less than it is told (mm/mempolicy.c, `get_nodes`).
    let bits = size_of_val(nodes).wrapping_mul(8).wrapping_add(1);
    let words = [mode as usize, nodes.as_ptr().addr(), bits, 0, 0, 0];
    // SAFETY: the kernel reads whole words of the mask, one bit less than stated.
    check(unsafe { call(nr::__NR_set_mempolicy, words) }).map(drop)
}

/// The kernel's `KEYCTL_*` (linux/keyctl.h).
const KEYCTL_JOIN_SESSION_KEYRING: usize = 1;
const KEYCTL_SETPERM: usize = 5;
const KEYCTL_DESCRIBE: usize = 6;

pub(crate) fn keyctl_join_session_keyring(name: &CStr) -> Result<usize> {
    let words = [KEYCTL_JOIN_SESSION_KEYRING, name.as_ptr().addr(), 0, 0, 0, 0];
    // SAFETY: the kernel reads a string that ends with NUL.
    check(unsafe { call(nr::__NR_keyctl, words) })
}

pub(crate) fn keyctl_describe(key: usize, room: &mut [MaybeUninit<u8>]) -> Result<&[u8]> {
    let words = [KEYCTL_DESCRIBE, key, room.as_mut_ptr().addr(), room.len(), 0, 0];
    // SAFETY: the kernel writes no more bytes than `room` has.
    let length = check(unsafe { call(nr::__NR_keyctl, words) })?;
    // A description that does not fit is not written at all.
    let written = room.get(..length).ok_or(Errno::MSGSIZE)?;
    // SAFETY: these bytes are in `room`, and the kernel has written them.
    Ok(unsafe { core::slice::from_raw_parts(written.as_ptr().cast(), written.len()) })
}

pub(crate) fn keyctl_setperm(key: usize, permissions: u32) -> Result {
    // SAFETY: three numbers.
    check(unsafe { call(nr::__NR_keyctl, [KEYCTL_SETPERM, key, permissions as usize, 0, 0, 0]) }).map(drop)
}

pub(crate) fn landlock_abi() -> Result<usize> {
    let words = [0, 0, LANDLOCK_CREATE_RULESET_VERSION as usize, 0, 0, 0];
    // SAFETY: with this flag and no attributes the kernel only returns a number.
    check(unsafe { call(nr::__NR_landlock_create_ruleset, words) })
}

pub(crate) fn landlock_create_ruleset(handled_access_fs: u64, scoped: u64) -> Result<Fd> {
    let attr = landlock_ruleset_attr { handled_access_fs, handled_access_net: 0, scoped };
    let words = [(&raw const attr).addr(), size_of_val(&attr), 0, 0, 0, 0];
    // SAFETY: the kernel reads as many bytes of `attr` as stated.
    descriptor(unsafe { call(nr::__NR_landlock_create_ruleset, words) })
}

pub(crate) fn landlock_allow_beneath(ruleset: Fd, beneath: Fd, allowed_access: u64) -> Result {
    let attr = landlock_path_beneath_attr { allowed_access, parent_fd: beneath.number() };
    let kind = landlock_rule_type::LANDLOCK_RULE_PATH_BENEATH as usize;
    let words = [ruleset.word(), kind, (&raw const attr).addr(), 0, 0, 0];
    // SAFETY: the kernel reads one `landlock_path_beneath_attr`, as the kind says.
    check(unsafe { call(nr::__NR_landlock_add_rule, words) }).map(drop)
}

pub(crate) fn landlock_restrict_self(ruleset: Fd) -> Result {
    // SAFETY: two numbers.
    check(unsafe { call(nr::__NR_landlock_restrict_self, [ruleset.word(), 0, 0, 0, 0, 0]) }).map(drop)
}

/// Calls `mount_setattr` on a descriptor, with these flags and `AT_EMPTY_PATH`. `attr` is `struct mount_attr`: set,
/// clear, propagation, user namespace.
pub(crate) fn mount_setattr(mount: Fd, flags: u32, attr: [u64; 4]) -> Result {
    let flags = (flags | nr::AT_EMPTY_PATH) as usize;
    let words = [mount.word(), c"".as_ptr().addr(), flags, attr.as_ptr().addr(), size_of_val(&attr), 0];
    // SAFETY: the kernel reads an empty string and as many bytes of `attr` as stated.
    check(unsafe { call(nr::__NR_mount_setattr, words) }).map(drop)
}

const SECCOMP_SET_MODE_FILTER: usize = 1;

pub(crate) fn seccomp_without_program(flags: u32) -> Result<usize> {
    // SAFETY: the kernel reads nothing through a null pointer; it returns an error.
    check(unsafe { call(nr::__NR_seccomp, [SECCOMP_SET_MODE_FILTER, flags as usize, 0, 0, 0, 0]) })
}

/// `struct sock_filter`: one instruction of a seccomp program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SockFilter {
    /// The operation.
    pub code: u16,
    /// How many instructions to skip if a comparison holds.
    pub jt: u8,
    /// How many instructions to skip if it does not hold.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

pub(crate) fn seccomp(flags: u32, program: &[SockFilter]) -> Result<usize> {
    /// `struct sock_fprog`.
    #[repr(C)]
    struct Program {
        length: u16,
        filter: *const SockFilter,
    }
    let length = u16::try_from(program.len()).map_err(|_| Errno::INVAL)?;
    let program = Program { length, filter: program.as_ptr() };
    let words = [SECCOMP_SET_MODE_FILTER, flags as usize, (&raw const program).addr(), 0, 0, 0];
    // SAFETY: the kernel reads a `sock_fprog` and as many instructions as that states, and verifies them before it
    // runs any.
    check(unsafe { call(nr::__NR_seccomp, words) })
}

/// Calls `getpid` through the x32 interface.
#[cfg(target_arch = "x86_64")]
pub(crate) fn x32_getpid() -> Result<usize> {
    const X32_SYSCALL_BIT: u32 = 0x4000_0000;
    // SAFETY: no argument.
    check(unsafe { call(nr::__NR_getpid | X32_SYSCALL_BIT, [0; 6]) })
}

pub(crate) fn setgroups(groups: &[Gid]) -> Result {
    // SAFETY: `Gid` is one `gid_t`, and the kernel reads as many as stated.
    check(unsafe { call(nr::__NR_setgroups, [groups.len(), groups.as_ptr().addr(), 0, 0, 0, 0]) }).map(drop)
}

/// Returns seconds and nanoseconds of a clock. rustix's function would look for the vDSO and store its address.
pub(crate) fn clock_gettime(clock: u32) -> [u64; 2] {
    let mut time = [0_u64; 2];
    // SAFETY: the kernel writes two words. If it refuses they stay as they are.
    unsafe { call(nr::__NR_clock_gettime, [clock as usize, (&raw mut time).addr(), 0, 0, 0, 0]) };
    time
}

pub(crate) fn getdents64(directory: Fd, buffer: &mut [u8]) -> Result<usize> {
    let words = [directory.word(), buffer.as_mut_ptr().addr(), buffer.len(), 0, 0, 0];
    // SAFETY: the kernel writes no more bytes than `buffer` has.
    check(unsafe { call(nr::__NR_getdents64, words) })
}

pub(crate) fn readlinkat(directory: Fd, name: &CStr, buffer: &mut [u8]) -> Result<usize> {
    let words = [directory.word(), name.as_ptr().addr(), buffer.as_mut_ptr().addr(), buffer.len(), 0, 0];
    // SAFETY: the kernel reads a string that ends with NUL, and writes no more bytes than `buffer` has.
    check(unsafe { call(nr::__NR_readlinkat, words) })
}

/// Calls `sendfile` with the current offset of `from`.
pub(crate) fn sendfile(to: Fd, from: Fd, most: usize) -> Result<usize> {
    // SAFETY: the address, of an offset, is null.
    check(unsafe { call(nr::__NR_sendfile, [to.word(), from.word(), 0, most, 0, 0]) })
}

/// Calls `close` directly, because rustix's function panics at EBADF in a debug build.
pub(crate) fn close(fd: Fd) {
    // SAFETY: one number.
    unsafe { call(nr::__NR_close, [fd.word(), 0, 0, 0, 0, 0]) };
}

// Calls that return a descriptor are made here, because the owned descriptors of rustix panic at the number -1.

/// Returns the descriptor that a call returned.
fn descriptor(returned: isize) -> Result<Fd> {
    i32::try_from(check(returned)?).ok().and_then(Fd::new).ok_or(Errno::BADF)
}

/// Returns the directory that a path is relative to: this one, or the working directory.
fn directory(fd: Option<Fd>) -> usize {
    const CWD: usize = nr::AT_FDCWD as usize;
    fd.map_or(CWD, Fd::word)
}

pub(crate) fn openat(at: Option<Fd>, path: &CStr, flags: u32, mode: u32) -> Result<Fd> {
    let words = [directory(at), path.as_ptr().addr(), flags as usize, mode as usize, 0, 0];
    // SAFETY: the kernel reads a string that ends with NUL.
    descriptor(unsafe { call(nr::__NR_openat, words) })
}

/// `how` is `struct open_how`: flags, mode, resolve.
pub(crate) fn openat2(at: Option<Fd>, path: &CStr, how: [u64; 3]) -> Result<Fd> {
    let words = [directory(at), path.as_ptr().addr(), how.as_ptr().addr(), size_of_val(&how), 0, 0];
    // SAFETY: the kernel reads a string that ends with NUL, and as many bytes of `how` as stated.
    descriptor(unsafe { call(nr::__NR_openat2, words) })
}

pub(crate) fn open_tree(at: Option<Fd>, path: &CStr, flags: u32) -> Result<Fd> {
    let words = [directory(at), path.as_ptr().addr(), flags as usize, 0, 0, 0];
    // SAFETY: the kernel reads a string that ends with NUL.
    descriptor(unsafe { call(nr::__NR_open_tree, words) })
}

pub(crate) fn fsopen(fstype: &CStr, flags: u32) -> Result<Fd> {
    let words = [fstype.as_ptr().addr(), flags as usize, 0, 0, 0, 0];
    // SAFETY: the kernel reads a string that ends with NUL.
    descriptor(unsafe { call(nr::__NR_fsopen, words) })
}

pub(crate) fn fsmount(fs: Fd, flags: u32, attributes: u32) -> Result<Fd> {
    // SAFETY: three numbers.
    descriptor(unsafe { call(nr::__NR_fsmount, [fs.word(), flags as usize, attributes as usize, 0, 0, 0]) })
}

pub(crate) fn ioctl_ns_get_nstype(fd: Fd) -> Result<usize> {
    const NS_GET_NSTYPE: usize = 0xb703;
    // SAFETY: this request takes no argument. Another file, for example a device with a request of the same number,
    // gives a meaningless answer, but a null argument is not memory.
    check(unsafe { call(nr::__NR_ioctl, [fd.word(), NS_GET_NSTYPE, 0, 0, 0, 0]) })
}

/// `_IOC` with the type `!` of seccomp's requests: direction, number, and size of the argument.
const fn seccomp_request(direction: usize, number: usize, size: usize) -> usize {
    direction << 30 | size << 16 | (b'!' as usize) << 8 | number
}

/// Receives `struct seccomp_notif` with `ioctl(SECCOMP_IOCTL_NOTIF_RECV)`: id; pid and flags; number and architecture;
/// instruction; six arguments.
pub(crate) fn ioctl_seccomp_receive(listener: Fd) -> Result<[u64; 10]> {
    // The kernel requires that it is cleared.
    let mut words = [0_u64; 10];
    let request = seccomp_request(3, 0, size_of_val(&words));
    // SAFETY: the kernel writes as many bytes as the request's number says, which is the size of `words`.
    check(unsafe { call(nr::__NR_ioctl, [listener.word(), request, words.as_mut_ptr().addr(), 0, 0, 0]) })?;
    Ok(words)
}

/// Sends `struct seccomp_notif_resp` with `ioctl(SECCOMP_IOCTL_NOTIF_SEND)`: id; value; error and flags.
pub(crate) fn ioctl_seccomp_send(listener: Fd, mut words: [u64; 3]) -> Result {
    let request = seccomp_request(3, 1, size_of_val(&words));
    // SAFETY: the kernel reads as many bytes as the request's number says, which is the size of `words`.
    check(unsafe { call(nr::__NR_ioctl, [listener.word(), request, words.as_mut_ptr().addr(), 0, 0, 0]) })
        .map(drop)
}

/// `ioctl(SECCOMP_IOCTL_NOTIF_ID_VALID)`.
pub(crate) fn ioctl_seccomp_id_valid(listener: Fd, id: u64) -> Result {
    let request = seccomp_request(1, 2, size_of_val(&id));
    // SAFETY: the kernel reads as many bytes as the request's number says, which is the size of `id`.
    check(unsafe { call(nr::__NR_ioctl, [listener.word(), request, (&raw const id).addr(), 0, 0, 0]) })
        .map(drop)
}

/// Sends `struct seccomp_notif_addfd` with `ioctl(SECCOMP_IOCTL_NOTIF_ADDFD)`: id; flags and descriptor; the number that
/// it should get, and its flags.
pub(crate) fn ioctl_seccomp_addfd(listener: Fd, mut words: [u64; 3]) -> Result {
    let request = seccomp_request(1, 3, size_of_val(&words));
    // SAFETY: the kernel reads as many bytes as the request's number says, which is the size of `words`.
    check(unsafe { call(nr::__NR_ioctl, [listener.word(), request, words.as_mut_ptr().addr(), 0, 0, 0]) })
        .map(drop)
}

/// Returns the status of a process in the format of wait(2), if the kernel knows it, from `ioctl(PIDFD_GET_INFO)`.
pub(crate) fn ioctl_pidfd_exit(pidfd: Fd) -> Result<Option<i32>> {
    /// `PIDFD_INFO_EXIT` (linux/pidfd.h).
    const EXIT: u64 = 1 << 3;
    /// The first 64 bytes of `struct pidfd_info`, which are its first version.
    #[repr(C)]
    struct Info {
        mask: u64,
        cgroup: u64,
        ids: [u32; 11],
        exit_code: i32,
    }
    /// `_IOWR(0xff, 11, struct pidfd_info)`: the number includes the size of the structure.
    const PIDFD_GET_INFO: usize = 3 << 30 | size_of::<Info>() << 16 | 0xff << 8 | 11;
    let mut info = Info { mask: EXIT, cgroup: 0, ids: [0; 11], exit_code: 0 };
    // SAFETY: the kernel writes as many bytes as the request's number says, which is the size of `info`.
    check(unsafe { call(nr::__NR_ioctl, [pidfd.word(), PIDFD_GET_INFO, (&raw mut info).addr(), 0, 0, 0]) })?;
    Ok(if info.mask & EXIT != 0 { Some(info.exit_code) } else { None })
}

pub(crate) fn memfd_create(name: &CStr, flags: u32) -> Result<Fd> {
    // SAFETY: the kernel reads a string that ends with NUL.
    descriptor(unsafe { call(nr::__NR_memfd_create, [name.as_ptr().addr(), flags as usize, 0, 0, 0, 0]) })
}

/// Creates a pipe. Returns the read end, then the write end.
pub(crate) fn pipe2(flags: u32) -> Result<[Fd; 2]> {
    let mut ends = [-1_i32; 2];
    // SAFETY: the kernel writes two numbers, and there is room for both.
    check(unsafe { call(nr::__NR_pipe2, [ends.as_mut_ptr().addr(), flags as usize, 0, 0, 0, 0]) })?;
    let [reader, writer] = ends;
    Ok([Fd::new(reader).ok_or(Errno::BADF)?, Fd::new(writer).ok_or(Errno::BADF)?])
}

/// `socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC)`.
pub(crate) fn socket_unix() -> Result<Fd> {
    const AF_UNIX: usize = 1;
    const SOCK_DGRAM: usize = 2;
    // SAFETY: three numbers. SOCK_CLOEXEC is O_CLOEXEC.
    descriptor(unsafe { call(nr::__NR_socket, [AF_UNIX, SOCK_DGRAM | nr::O_CLOEXEC as usize, 0, 0, 0, 0]) })
}

/// `ioctl(SIOCSIFFLAGS)` with `IFF_UP | IFF_RUNNING` for `lo`.
pub(crate) fn ioctl_loopback_up(socket: Fd) -> Result {
    const SIOCSIFFLAGS: usize = 0x8914;
    /// `struct ifreq`: a name that ends with NUL, and a union of 24 bytes.
    #[repr(C)]
    struct Request {
        name: [u8; 16],
        flags: u16,
        rest: [u8; 22],
    }
    let request = Request { name: *b"lo\0\0\0\0\0\0\0\0\0\0\0\0\0\0", flags: 0x41, rest: [0; 22] };
    let words = [socket.word(), SIOCSIFFLAGS, (&raw const request).addr(), 0, 0, 0];
    // SAFETY: the kernel reads an `ifreq`, which has its layout and outlives the call.
    check(unsafe { call(nr::__NR_ioctl, words) }).map(drop)
}

/// `ioctl(SIOCGSKNS)`: the network namespace of a socket. The kernel sets close-on-exec.
pub(crate) fn ioctl_socket_namespace(socket: Fd) -> Result<Fd> {
    const SIOCGSKNS: usize = 0x894c;
    // SAFETY: this request takes no argument.
    descriptor(unsafe { call(nr::__NR_ioctl, [socket.word(), SIOCGSKNS, 0, 0, 0, 0]) })
}

pub(crate) fn fspick(mount: Fd, flags: u32) -> Result<Fd> {
    let words = [mount.word(), c"".as_ptr().addr(), flags as usize, 0, 0, 0];
    // SAFETY: the kernel reads an empty string.
    descriptor(unsafe { call(nr::__NR_fspick, words) })
}

/// Calls `recvmsg(MSG_CMSG_CLOEXEC)`. Returns the number of bytes, and the descriptor that was sent with them, if any.
pub(crate) fn recvmsg_descriptor(socket: Fd, bytes: &mut [u8]) -> Result<(usize, Option<Fd>)> {
    /// `struct iovec`.
    #[repr(C)]
    struct Vector {
        base: *mut u8,
        length: usize,
    }
    /// `struct msghdr` as the kernel defines it.
    #[repr(C)]
    struct Header {
        name: *mut u8,
        name_length: usize,
        vectors: *mut Vector,
        vectors_count: usize,
        control: *mut Control,
        control_length: usize,
        flags: usize,
    }
    /// `struct cmsghdr` with one descriptor, of the size that `CMSG_SPACE` gives.
    #[derive(Default)]
    #[repr(C)]
    struct Control {
        length: usize,
        level: i32,
        kind: i32,
        descriptor: i32,
        padding: i32,
    }
    const SOL_SOCKET: i32 = 1;
    const SCM_RIGHTS: i32 = 1;
    const MSG_CMSG_CLOEXEC: usize = 0x4000_0000;
    /// `CMSG_LEN` of one descriptor.
    const ONE: usize = size_of::<Control>() - size_of::<i32>();

    let mut vector = Vector { base: bytes.as_mut_ptr(), length: bytes.len() };
    let mut control = Control::default();
    let mut header = Header {
        name: core::ptr::null_mut(),
        name_length: 0,
        vectors: &raw mut vector,
        vectors_count: 1,
        control: &raw mut control,
        control_length: size_of::<Control>(),
        flags: 0,
    };
    let words = [socket.word(), (&raw mut header).addr(), MSG_CMSG_CLOEXEC, 0, 0, 0];
    // SAFETY: the kernel reads the header. It writes to the header, to one vector with the extent of `bytes`, and to
    // `control` within the stated length. All outlive the call.
    let length = check(unsafe { call(nr::__NR_recvmsg, words) })?;
    let is_one = (control.length, control.level, control.kind) == (ONE, SOL_SOCKET, SCM_RIGHTS);
    Ok((length, if is_one { Fd::new(control.descriptor) } else { None }))
}

pub(crate) fn accept4(listener: Fd) -> Result<Fd> {
    // SOCK_CLOEXEC, which is O_CLOEXEC.
    let flags = nr::O_CLOEXEC as usize;
    // SAFETY: the addresses, of the peer's name and its length, are null.
    descriptor(unsafe { call(nr::__NR_accept4, [listener.word(), 0, 0, flags, 0, 0]) })
}

/// `flags` are those of `open`.
pub(crate) fn ioctl_tiocgptpeer(master: Fd, flags: u32) -> Result<Fd> {
    // SAFETY: three numbers; this request takes flags where others take an address.
    descriptor(unsafe { call(nr::__NR_ioctl, [master.word(), TIOCGPTPEER, flags as usize, 0, 0, 0]) })
}

/// Returns the kind and the process of a lock on `fd` that excludes a write lock of the whole file, from
/// `fcntl(F_GETLK)`.
pub(crate) fn fcntl_getlk(fd: Fd) -> Result<(u32, i32)> {
    /// `struct flock` of a system with 64 bits.
    #[repr(C)]
    struct Lock {
        kind: i16,
        whence: i16,
        padding: i32,
        start: i64,
        length: i64,
        pid: i32,
        more_padding: i32,
    }
    // F_WRLCK from SEEK_SET; a length of 0 is to the end of the file.
    let mut lock = Lock { kind: 1, whence: 0, padding: 0, start: 0, length: 0, pid: 0, more_padding: 0 };
    let words = [fd.word(), nr::F_GETLK as usize, (&raw mut lock).addr(), 0, 0, 0];
    // SAFETY: the kernel reads and writes one `flock`, which lives until it returns.
    check(unsafe { call(nr::__NR_fcntl, words) })?;
    Ok((u32::from(lock.kind.unsigned_abs()), lock.pid))
}

/// Sends `bytes` with a copy of one descriptor.
pub(crate) fn sendmsg_with(socket: Fd, bytes: &[u8], fd: Fd) -> Result<usize> {
    /// `struct cmsghdr` with one descriptor, and the padding of `CMSG_SPACE`.
    #[repr(C)]
    struct Control {
        length: usize,
        level: i32,
        kind: i32,
        fd: i32,
        padding: i32,
    }
    /// `struct msghdr`.
    #[repr(C)]
    struct Message {
        name: usize,
        name_length: u32,
        parts: *const [usize; 2],
        part_count: usize,
        control: *const Control,
        control_length: usize,
        flags: i32,
    }
    const SOL_SOCKET: i32 = 1;
    const SCM_RIGHTS: i32 = 1;
    const MSG_NOSIGNAL: usize = 0x4000;
    // The length up to and including the descriptor.
    let length = size_of::<Control>().wrapping_sub(size_of::<i32>());
    let control = Control { length, level: SOL_SOCKET, kind: SCM_RIGHTS, fd: fd.number(), padding: 0 };
    let part = [bytes.as_ptr().addr(), bytes.len()];
    let message = Message {
        name: 0,
        name_length: 0,
        parts: &raw const part,
        part_count: 1,
        control: &raw const control,
        control_length: size_of::<Control>(),
        flags: 0,
    };
    let words = [socket.word(), (&raw const message).addr(), MSG_NOSIGNAL, 0, 0, 0];
    // SAFETY: the kernel reads a `msghdr`, one `iovec`, as many bytes as that states, and a control message of the
    // stated size. All have the kernel's layout and outlive the call.
    check(unsafe { call(nr::__NR_sendmsg, words) })
}

pub(crate) fn signalfd4(set: u64, flags: u32) -> Result<Fd> {
    // -1 makes the kernel create a new descriptor instead of changing an existing one.
    const NEW: usize = usize::MAX;
    let words = [NEW, (&raw const set).addr(), SIGNAL_SET_SIZE, flags as usize, 0, 0];
    // SAFETY: the kernel reads one set, on this stack and of the stated size.
    descriptor(unsafe { call(nr::__NR_signalfd4, words) })
}
