//! What each step does: an arm, a call.

use crate::report;
use crate::step::{Handle, Reg, Step};
use crate::sys::file::{Mode, OFlags};
use crate::sys::signal::Signal;
use crate::sys::{Errno, Fd, Pid, Result, file, limits, mount, namespace, process, signal};
use core::ffi::CStr;

/// The descriptors that steps leave for each other.
pub(crate) struct Registers([Option<Fd>; Reg::COUNT as usize]);

impl Default for Registers {
    fn default() -> Self {
        Self([None; Reg::COUNT as usize])
    }
}

impl Registers {
    fn set(&mut self, register: Reg, fd: Fd) {
        // A register's index is always within the array; `get_mut` spares the child a proof.
        if let Some(place) = self.0.get_mut(usize::from(register.index())) {
            *place = Some(fd);
        }
    }

    fn get(&self, handle: Handle) -> Result<Fd> {
        match handle {
            Handle::Number(fd) => Ok(fd),
            Handle::Register(register) => {
                self.0.get(usize::from(register.index())).copied().flatten().ok_or(Errno::BADF)
            }
        }
    }
}

pub(crate) fn perform(step: &Step<'_>, registers: &mut Registers, channel: Option<Fd>) -> Result {
    match *step {
        Step::Open { path, flags, mode, out } => {
            registers.set(out, file::open(path, flags, mode)?);
            Ok(())
        }
        Step::Close { fd } => {
            file::close(registers.get(fd)?);
            Ok(())
        }
        Step::CloseRange { first, last } => file::close_range(first, last),
        Step::CloseRangeOnExec { first, last } => file::close_range_on_exec(first, last),
        Step::Dup { from, least, out } => {
            registers.set(out, file::fcntl_dupfd_cloexec(registers.get(from)?, least)?);
            Ok(())
        }
        Step::Dup3 { from, to } => file::dup3(registers.get(from)?, to),
        Step::KeepOnExec { fd } => file::fcntl_keep_on_exec(fd),
        Step::Await { fd } => file::read(registers.get(fd)?, &mut [0]).map(drop),
        Step::Write { fd, bytes } => write_whole(registers.get(fd)?, bytes),
        Step::WriteFile { path, bytes, tolerate } => tolerating(tolerate, write_file(path, bytes)),

        Step::Mkdir { path, mode, tolerate } => tolerating(tolerate, file::mkdir(path, mode)),
        Step::Symlink { target, path } => file::symlink(target, path),
        Step::Mount { source, target, fstype, flags, data } => {
            mount::mount(source, target, fstype, flags, data)
        }
        Step::MountBind { source, target } => mount::mount_bind_recursive(source, target),
        Step::MountChange { target, flags } => mount::mount_change(target, flags),
        Step::UmountDetach { target } => mount::umount_detach(target),
        Step::PivotRoot { new_root, put_old } => mount::pivot_root(new_root, put_old),
        Step::Chdir { path } => process::chdir(path),
        Step::Chroot { path } => process::chroot(path),
        Step::Umask { mask } => {
            process::umask(mask);
            Ok(())
        }

        Step::Setsid => process::setsid().map(drop),
        Step::Setpgid { group } => process::setpgid(None, group),
        Step::Tiocsctty { terminal } => process::ioctl_tiocsctty(terminal),
        Step::Tcsetpgrp { terminal } => process::tcsetpgrp(terminal, process::getpgrp()),

        Step::ResetHandlers => signal::reset_handlers(),
        Step::DefaultAction { signal } => signal::rt_sigaction_default(signal),
        Step::IgnoreSignal { signal } => signal::rt_sigaction_ignore(signal),
        Step::SignalMask { blocked } => signal::rt_sigprocmask(blocked).map(drop),
        Step::ParentDeathSignal { signal, parent } => die_with_parent(signal, parent),

        Step::Unshare { namespaces } => namespace::unshare(namespaces),
        Step::Setns { fd, namespaces } => namespace::setns(fd, namespaces),
        Step::Sethostname { name } => namespace::sethostname(name),
        Step::Request { what } => report::request(channel, what),

        Step::Setrlimit { resource, limit } => limits::setrlimit(resource, limit),
        Step::Setpriority { nice } => limits::setpriority_process(None, nice),
        Step::SchedSetattr { attr } => limits::sched_setattr(&attr),
        Step::SchedSetaffinity { mask } => limits::sched_setaffinity(mask),
        Step::IoprioSet { class, level } => limits::ioprio_set(class, level),

        Step::Setgroups { groups } => process::setgroups(groups),
        Step::Setresgid { gid } => process::setresgid(gid),
        Step::Setresuid { uid } => process::setresuid(uid),
        Step::NoNewPrivs => process::prctl_set_no_new_privs(),

        Step::Execve { path, argv, envp } => Err(process::execve(path, argv, envp)),
    }
}

/// Takes the one error that a step was told to expect for success.
fn tolerating(tolerate: Option<Errno>, result: Result) -> Result {
    match result {
        Err(errno) if Some(errno) == tolerate => Ok(()),
        other => other,
    }
}

/// A file of procfs or cgroupfs takes its content in one write or not at all.
fn write_whole(fd: Fd, bytes: &[u8]) -> Result {
    if file::write(fd, bytes)? == bytes.len() { Ok(()) } else { Err(Errno::IO) }
}

fn write_file(path: &CStr, bytes: &[u8]) -> Result {
    let fd = file::open(path, OFlags::WRONLY, Mode::empty())?;
    let written = write_whole(fd, bytes);
    file::close(fd);
    written
}

/// The kernel forgets the signal of a parent that died before the call, so look after it.
fn die_with_parent(signal: Signal, parent: Option<Pid>) -> Result {
    process::prctl_set_pdeathsig(signal)?;
    if parent.is_some() && process::getppid() != parent { Err(Errno::SRCH) } else { Ok(()) }
}
