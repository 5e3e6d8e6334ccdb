//! Performs a step: one match arm, one call.

use crate::hook;
use crate::keys;
use crate::registers::{Registers, close_others};
use crate::report::{self, Request};
use crate::rootfs::target::{ensure_directory, ensure_place};
use crate::rootfs::{copy, cover, tree};
use crate::step::{Devices, Step};
use crate::sys::clone::InChild;
use crate::sys::file::{Mode, OFlags};
use crate::sys::mount::{AttributeChange, Extent, MountPropagationFlags};
use crate::sys::namespace::Namespaces;
use crate::sys::process::Dumpable;
use crate::sys::signal::Signal;
use crate::sys::terminal::ioctl_tiocswinsz;
use crate::sys::{
    Errno, Fd, Pid, Result, Uid, at, clone, file, landlock, limits, memory, mount, namespace, process, signal,
};
use crate::{Journal, Script, net, reap, terminal};
use core::ffi::CStr;

pub(crate) fn perform(
    child: &InChild,
    step: &Step<'_>,
    registers: &mut Registers,
    script: &Script<'_>,
) -> Result {
    let channel = script.channel;
    match *step {
        Step::Open { path, flags, mode, out } => {
            registers.replace(child, out, file::open(path, flags, mode)?);
            Ok(())
        }
        Step::Close { fd } => {
            file::close(child, registers.take(fd)?);
            Ok(())
        }
        Step::CloseOthers { first, keep } => {
            // The registers are invalid from here on.
            *registers = Registers::default();
            close_others(child, first, keep, channel)
        }
        Step::CloseRange { first, last } => file::close_range(child, first, last),
        Step::CloseRangeOnExec { first, last } => file::close_range_on_exec(child, first, last),
        Step::Dup { from, least, out } => {
            registers.set(out, file::fcntl_dupfd_cloexec(registers.get(from)?, least)?);
            Ok(())
        }
        Step::Dup3 { from, to } => file::dup3(child, registers.get(from)?, to),
        Step::KeepOnExec { fd } => file::fcntl_keep_on_exec(child, fd),
        Step::FchownStreams { uid, devices } => {
            [Fd::STDIN, Fd::STDOUT, Fd::STDERR].into_iter().try_for_each(|stream| give(stream, uid, devices))
        }
        Step::Await { fd } => file::read(registers.get(fd)?, &mut [0]).map(drop),
        Step::Write { fd, bytes } => write_atomically(registers.get(fd)?, bytes),
        Step::WriteFile { path, bytes, tolerate } => tolerating(tolerate, write_file(child, path, bytes)),

        Step::OpenProc { out } => {
            registers.replace(child, out, at::openat2_proc()?);
            Ok(())
        }
        Step::OpenInProc { proc, path, flags, out } => {
            registers.replace(child, out, at::openat2_in_proc(registers.get(proc)?, path, flags)?);
            Ok(())
        }

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

        Step::OpenInRoot { root, path, out } => {
            registers.replace(child, out, at::openat2_in_root(registers.get(root)?, path)?);
            Ok(())
        }
        Step::EnsureDirectory { root, target, out } => {
            registers.replace(child, out, ensure_directory(child, registers.get(root)?, target)?);
            Ok(())
        }
        Step::Attach { mount, root, target, place } => {
            let mount = registers.get(mount.into())?;
            let place = ensure_place(child, registers.get(root)?, target, place, mount)?;
            let attached = mount::move_mount(mount, place);
            file::close(child, place);
            attached
        }
        Step::Mknod { directory, name, node, mode, uid, gid } => {
            let directory = registers.get(directory)?;
            match at::mknodat(directory, name, node, mode) {
                Err(Errno::EXIST) if at::is_node(directory, name, node)? => Ok(()),
                made => made.and_then(|()| at::fchownat(directory, name, uid, gid)),
            }
        }
        Step::SymlinkIn { directory, name, target, tolerate } => {
            tolerating(tolerate, at::symlinkat(target, registers.get(directory)?, name))
        }
        Step::Fsopen { fstype, out } => {
            registers.replace(child, out, mount::fsopen(fstype)?);
            Ok(())
        }
        Step::FsconfigString { fs, key, value } => {
            mount::fsconfig_set_string(registers.get(fs.into())?, key, value)
        }
        Step::FsconfigFlag { fs, key } => mount::fsconfig_set_flag(registers.get(fs.into())?, key),
        Step::FsconfigFd { fs, key, fd } => {
            mount::fsconfig_set_fd(registers.get(fs.into())?, key, registers.get(fd)?)
        }
        Step::Fsmount { fs, attributes } => {
            let configured = registers.get(fs.into())?;
            mount::fsconfig_create(configured)?;
            registers.replace(child, fs, mount::fsmount(configured, attributes)?);
            Ok(())
        }
        Step::OpenTree { path, extent, out } => {
            registers.replace(child, out, mount::open_tree_clone(path, extent)?);
            Ok(())
        }
        Step::OpenDevice { path, node, out } => {
            let tree = mount::open_tree_clone(path, Extent::Top)?;
            registers.replace(child, out, tree);
            if at::is_open_node(tree, node)? { Ok(()) } else { Err(Errno::NODEV) }
        }
        Step::OpenTreeOrRequest { path, extent, mount, out } => {
            let found = match mount::open_tree_clone(path, extent) {
                Err(Errno::ACCESS) => report::request_tree(channel, mount),
                found => found,
            };
            registers.replace(child, out, found?);
            Ok(())
        }
        Step::RequestTree { mount, out } => {
            registers.replace(child, out, report::request_tree(channel, mount)?);
            Ok(())
        }
        Step::FsconfigModeOf { fs, root, path } => {
            tree::fsconfig_mode_of(child, registers.get(fs.into())?, registers.get(root)?, path)
        }
        Step::CopyUp { root, path, mount } => {
            copy::copy_up(child, registers.get(root)?, path, registers.get(mount.into())?)
        }
        Step::Fspick { mount, out } => {
            registers.replace(child, out, mount::fspick(registers.get(mount)?)?);
            Ok(())
        }
        Step::Label { mount, label } => tree::label(child, registers.get(mount.into())?, label),
        Step::Hide { path } => cover::hide(path),
        Step::UnlinkIn { directory, name } => {
            tolerating(Some(Errno::NOENT), at::unlinkat(registers.get(directory)?, name))
        }
        Step::Reconfigure { fs } => {
            let configuration = registers.take(fs.into())?;
            let configured = mount::fsconfig_reconfigure(configuration);
            file::close(child, configuration);
            configured
        }
        Step::MountSetattrUnlocked { mount, change, unlocked } => {
            let mount = registers.get(mount)?;
            let set =
                |change| mount::mount_setattr(mount, Extent::Top, change, MountPropagationFlags::empty());
            match set(AttributeChange { clear: change.clear.union(unlocked), ..change }) {
                Err(Errno::PERM) => set(change),
                done => done,
            }
        }
        Step::MountSetattrAbove { directory, propagation } => {
            tree::mount_setattr_above(child, registers.get(directory)?, propagation)
        }
        Step::OpenTreeOf { fd, extent, out } => {
            registers.replace(child, out, mount::open_tree_clone_of(registers.get(fd)?, extent)?);
            Ok(())
        }
        Step::MountSetattr { mount, extent, change, propagation } => {
            mount::mount_setattr(registers.get(mount)?, extent, change, propagation)
        }
        Step::MoveMount { mount, target } => mount::move_mount(registers.get(mount)?, registers.get(target)?),
        Step::Mask { root, path, null, empty } => {
            let template = registers.get(empty.into()).ok();
            if let Some(made) =
                cover::mask(child, registers.get(root)?, path, registers.get(null)?, template)?
            {
                registers.set(empty, made);
            }
            Ok(())
        }
        Step::ReadOnly { root, path } => cover::read_only(child, registers.get(root)?, path),
        Step::Enter { root, path, entered, tolerate } => {
            if registers.get(entered.into()).is_ok() {
                return Ok(());
            }
            tolerating(
                tolerate,
                enter(child, registers.get(root)?, path).map(|fd| registers.set(entered, fd)),
            )
        }
        Step::Fchdir { directory } => process::fchdir(registers.get(directory)?),

        Step::JoinSessionKeyring { name, permissions, tolerate } => {
            tolerating(tolerate, keys::join_session_keyring(name, permissions))
        }
        Step::Setsid => process::setsid().map(drop),
        Step::Setpgid { group } => process::setpgid(None, group),
        Step::Tiocsctty { terminal } => process::ioctl_tiocsctty(terminal),
        Step::Tcsetpgrp { terminal } => process::tcsetpgrp(terminal, process::getpgrp()),
        Step::OpenPty { root, path, master, slave } => {
            let (shows, used) = terminal::open(child, registers.get(root)?, path)?;
            registers.replace(child, master, shows);
            registers.replace(child, slave, used);
            Ok(())
        }
        Step::Tiocswinsz { terminal, rows, columns } => {
            ioctl_tiocswinsz(registers.get(terminal)?, rows, columns)
        }

        Step::ResetHandlers => signal::reset_handlers(),
        Step::DefaultAction { signal } => signal::rt_sigaction_default(signal),
        Step::ExitOnSignal { signal } => signal::rt_sigaction_exit(signal),
        Step::IgnoreSignal { signal } => signal::rt_sigaction_ignore(signal),
        Step::SignalMask { blocked } => signal::rt_sigprocmask(blocked).map(drop),
        Step::ParentDeathSignal { signal, parent } => die_with_parent(signal, parent),

        Step::Unshare { namespaces } => namespace::unshare(namespaces),
        Step::Setns { fd, namespaces } => namespace::setns(registers.get(fd)?, namespaces),
        Step::CloneParent { namespaces } => clone_parent(child, namespaces, script.journal),
        Step::CloneAndReap { .. } => reap::clone_and_reap(child, script),
        Step::VforkAndReap { .. } => Err(reap::vfork_and_reap(child, script, registers)),
        Step::Sethostname { name } => namespace::sethostname(name),
        Step::Setdomainname { name } => namespace::setdomainname(name),
        Step::LoopbackUp => namespace::loopback_up(),
        Step::NewNet { loopback } => Err(net::begin(child, script, registers, loopback)),
        Step::JoinNewNet => net::join(child, script.journal),
        Step::Request { what } => report::request(channel, what),
        Step::RequestWith { what, fd } => report::request_with(channel, what, registers.get(fd)?),
        Step::Hook { hook } => {
            let [stdout, stderr] = hook.streams.map(|stream| stream.map(|stream| registers.get(stream)));
            let streams = [stdout.transpose()?, stderr.transpose()?];
            hook::run(child, hook, streams, &mut registers.said)?;
            registers.passed(script.journal);
            Ok(())
        }

        Step::Setrlimit { resource, limit } => limits::setrlimit(resource, limit),
        Step::Setpriority { nice } => limits::setpriority_process(None, nice),
        Step::SchedSetattr { attr } => limits::sched_setattr(None, &attr),
        Step::SchedSetaffinity { mask } => limits::sched_setaffinity(mask),
        Step::IoprioSet { class, level } => limits::ioprio_set(class, level),

        Step::SetMempolicy { mode, nodes } => limits::set_mempolicy(mode, nodes),
        Step::Personality { persona } => process::personality(persona),

        Step::Setgroups { groups } => process::setgroups(groups),
        Step::Setresgid { gid } => process::setresgid(gid),
        Step::Setresuid { uid } => process::setresuid(uid),
        Step::NoNewPrivs => process::prctl_set_no_new_privs(),
        Step::ForgetMemory => {
            script.unneeded.iter().try_for_each(|unneeded| memory::forget(child, *unneeded))
        }
        Step::Undumpable => process::prctl_set_dumpable(Dumpable::No),

        Step::DropBounding { keep } => drop_bounding(keep),
        Step::KeepCaps { keep } => process::prctl_set_keepcaps(keep),
        Step::Capset { capabilities } => process::capset(capabilities),
        Step::RaiseAmbient { capabilities } => {
            bits(capabilities).try_for_each(process::prctl_cap_ambient_raise)
        }
        Step::LandlockRuleset { handled, scoped, out } => {
            registers.replace(child, out, landlock::create_ruleset(handled, scoped)?);
            Ok(())
        }
        Step::LandlockAllow { ruleset, beneath, rights, tolerate } => {
            let (ruleset, beneath) = (registers.get(ruleset)?, registers.get(beneath)?);
            tolerating(tolerate, landlock::allow_beneath(ruleset, beneath, rights))
        }
        Step::LandlockRestrict { ruleset } => landlock::restrict_self(child, registers.get(ruleset)?),
        Step::Seccomp { flags, program } => process::seccomp_set_mode_filter(child, flags, program).map(drop),
        Step::SeccompListener { flags, program } => {
            let listener = process::seccomp_new_listener(child, flags, program)?;
            // Before a process listens, the filter must allow only this one `write`.
            report::request_about(channel, Request::Listener, listener)?;
            file::close(child, listener);
            Ok(())
        }
        Step::OpenSeccompListener { flags, program, out } => {
            registers.replace(child, out, process::seccomp_new_listener(child, flags, program)?);
            Ok(())
        }

        Step::CheckExecutable { candidates } => first(candidates, at::check_executable),
        Step::Park { listener } => {
            report::request(channel, Request::Parked)?;
            // The parent's death no longer kills the child. Until here it did, so that no half-made container stayed
            // behind.
            process::prctl_set_pdeathsig(None)?;
            // The parent waits for this end of file before it exits.
            if let Some(channel) = channel {
                file::close(child, channel);
            }
            registers.reporter = Some(file::accept(listener)?);
            Ok(())
        }
        Step::ExecveFirst { candidates, argv, envp } => {
            first(candidates, |path| Err(process::execve(path, argv, envp)))
        }
        Step::Execve { path, argv, envp } => Err(process::execve(path, argv, envp)),
    }
}

/// Exits this process in favour of a new one, in which this function returns and the list continues.
fn clone_parent(child: &InChild, namespaces: Namespaces, journal: &Journal) -> Result {
    let pid = journal.next_fork().ok_or(Errno::TOOMANYREFS)?;
    match clone::clone_parent(child, namespaces, pid)? {
        None => Ok(()),
        Some(_) => process::exit_group(0),
    }
}

fn enter(child: &InChild, root: Fd, path: &CStr) -> Result<Fd> {
    let directory = at::openat2_in_root(root, path)?;
    match process::fchdir(directory) {
        Ok(()) => Ok(directory),
        Err(errno) => {
            file::close(child, directory);
            Err(errno)
        }
    }
}

/// Treats the error that a step was told to tolerate as success.
fn tolerating(tolerate: Option<Errno>, result: Result) -> Result {
    match result {
        Err(errno) if Some(errno) == tolerate => Ok(()),
        other => other,
    }
}

/// Writes in one call, because files of procfs and cgroupfs take their content whole or not at all.
fn write_atomically(fd: Fd, bytes: &[u8]) -> Result {
    if file::write(fd, bytes)? == bytes.len() { Ok(()) } else { Err(Errno::IO) }
}

fn write_file(child: &InChild, path: &CStr, bytes: &[u8]) -> Result {
    let fd = file::open(path, OFlags::WRONLY, Mode::empty())?;
    let written = write_atomically(fd, bytes);
    file::close(child, fd);
    written
}

/// Gives a standard stream to the program's user. Otherwise the program could not reopen it through `/proc/self/fd`.
fn give(stream: Fd, uid: Uid, devices: Devices) -> Result {
    // The host's null device and the caller's terminal keep their owner (CVE-2026-88265).
    if at::owner(stream)? == uid || devices == Devices::Hosts && at::is_device(stream)? {
        return Ok(());
    }
    match file::fchown(stream, uid) {
        // Tolerated: the owner has no id in this user namespace, or the mount is read-only.
        Err(Errno::PERM | Errno::ROFS) => Ok(()),
        given => given,
    }
}

/// Sets the parent-death signal, then checks that the parent lives. The kernel sends no signal for a parent that died
/// before the call.
fn die_with_parent(signal: Signal, parent: Option<Pid>) -> Result {
    process::prctl_set_pdeathsig(Some(signal))?;
    if parent.is_some() && process::getppid() != parent { Err(Errno::SRCH) } else { Ok(()) }
}

/// Tries the candidates in order until one succeeds. Like execvp(3), it skips those that are missing or must not be
/// used, and prefers the error of the latter. The error of a single candidate is returned unchanged.
fn first(candidates: &[&CStr], mut act: impl FnMut(&CStr) -> Result) -> Result {
    if let [candidate] = candidates {
        return act(candidate);
    }
    let mut reason = Errno::NOENT;
    for candidate in candidates {
        match act(candidate) {
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(errno @ (Errno::ACCESS | Errno::ISDIR)) => reason = errno,
            done => return done,
        }
    }
    Err(reason)
}

/// Returns the numbers of the capabilities in `set`.
fn bits(set: u64) -> impl Iterator<Item = u8> {
    (0..64).filter(move |bit| set.wrapping_shr(u32::from(*bit)) & 1 != 0)
}

/// Drops every capability outside `keep`. `EINVAL` marks the first number beyond the kernel's last capability.
fn drop_bounding(keep: u64) -> Result {
    for capability in bits(!keep) {
        match process::prctl_capbset_drop(capability) {
            Err(Errno::INVAL) => break,
            done => done?,
        }
    }
    Ok(())
}
