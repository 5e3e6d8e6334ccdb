//! Protects husk's own binary from containers (CVE-2019-5736).
//!
//! Until a container's process executes its program, its `/proc/PID/exe` is husk. Root of a container without a user
//! namespace can write that file. Root of a container with one can if the caller owns it. So husk replaces the mappings
//! of its own file by those of the same file on a detached read-only mount. Every open of `/proc/PID/exe` is then on that
//! read-only mount, and a detached mount cannot be remounted. If the mappings cannot be replaced, husk executes itself
//! again from that mount. If there cannot be such a mount, it executes a sealed copy in memory.
//!
//! [`prepare_process`] is here too, because every program of husk calls it first; [`arguments`] returns what it was given.

use crate::error::Error;
use husk_script::sys::mount::{
    AttributeChange, Extent, MountAttributes, MountPropagationFlags, mount_setattr,
};
use husk_script::sys::process::execveat_empty;
use husk_script::sys::signal::rt_sigaction_ignore;
use husk_script::sys::tolerate;
use husk_script::sys::{CArray, CPtr, Errno, Fd};
use husk_spawn::Signal;
use rustix::fs::{
    Access, CWD, FsWord, MemfdFlags, Mode, OFlags, SealFlags, StatVfsMountFlags, access, fcntl_add_seals,
    memfd_create, open, stat, statfs,
};
use rustix::io::fcntl_getfd;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::stdio::{stderr, stdin, stdout};
use std::env;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::mem::forget;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::abort;
use std::sync::OnceLock;

static ARGUMENTS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Returns the arguments of this process, including its name.
pub fn arguments() -> &'static [OsString] {
    // Programs with Rust's `main`, such as tests, have not called `prepare_process`.
    ARGUMENTS.get_or_init(|| env::args_os().collect())
}

/// The part of its caller's environment that husk keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Environment {
    /// All of it: hooks may inherit it.
    Callers,
    /// Only the variables that husk reads. A process that joins a container is a copy of husk until it executes its
    /// program. A process in the container that may trace it could read the rest.
    OurOwn,
}

impl Environment {
    /// Returns whether the variable of this name is kept.
    #[must_use]
    pub fn keeps(self, name: &OsStr) -> bool {
        const OURS: &[&str] = &[
            "PATH",
            "LISTEN_FDS",
            "LISTEN_PID",
            "XDG_RUNTIME_DIR",
            "DBUS_SYSTEM_BUS_ADDRESS",
            "DBUS_SESSION_BUS_ADDRESS",
        ];
        self == Self::Callers || OURS.iter().any(|ours| *ours == name)
    }
}

/// Whether a container may be able to write this program. As root, always: the container's root may be root on the
/// host. Otherwise if the caller owns the file or may write it: the caller is root in a container with a user
/// namespace.
#[must_use]
pub fn is_exposed() -> bool {
    const OWN: &str = "/proc/self/exe";
    let user = rustix::process::geteuid();
    let is_users = || stat(OWN).map_or(true, |found| found.st_uid == user.as_raw());
    user.is_root() || is_users() || access(OWN, Access::WRITE_OK).is_ok()
}

/// Has this program run from a file that cannot be written, with the variables that `environment` keeps. Executes it
/// again if its mappings cannot be replaced; then this does not return but is called a second time.
///
/// # Errors
///
/// If neither way works. To continue would leave the binary unprotected.
pub fn seal(environment: Environment) -> Result<Sealed, Error> {
    let failed = |errno| Error::kernel("seal /proc/self/exe", errno);
    let forgotten = husk_spawn::forget_variables(|name| environment.keeps(name));
    let is_kept = forgotten.is_ok() || env::vars_os().all(|(name, _)| environment.keeps(&name));
    if let Some(sealed) = sealed().map_err(failed)?.filter(|_| is_kept) {
        // A program that was executed without a path is named after its descriptor number.
        rustix::thread::set_name(c"husk").map_err(failed)?;
        return Ok(sealed);
    }
    let mount = read_only_mount();
    if is_kept && mount.as_ref().is_ok_and(|mount| run_from(mount).is_ok()) {
        return Ok(Sealed::Mount);
    }
    let arguments = strings(arguments().iter().cloned());
    let kept = env::vars_os().filter(|(name, _)| environment.keeps(name));
    let variables = strings(kept.map(|(name, value)| {
        let mut variable = name;
        variable.push("=");
        variable.push(value);
        variable
    }));
    let (argv, envp) = (pointers(&arguments), pointers(&variables));
    let (Some(argv), Some(envp)) = (CArray::new(&argv), CArray::new(&envp)) else {
        return Err(failed(Errno::INVAL));
    };
    match mount {
        Ok(mount) => Err(failed(execveat_empty(Fd::of(&mount), argv, envp))),
        // husk lacks CAP_SYS_ADMIN here, or the file system cannot be mounted a second time.
        Err(_) => {
            let copy = sealed_copy().map_err(|reason| Error::file("seal", "/proc/self/exe", reason))?;
            Err(failed(execveat_empty(Fd::of(&copy), argv, envp)))
        }
    }
}

/// How the binary is protected from writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sealed {
    /// It is on a read-only mount.
    Mount,
    /// It is a sealed copy in memory.
    Memory,
}

/// Opens this program as a file that no container can write, to start another process from.
///
/// # Errors
///
/// If it can be protected neither way.
pub fn sealed_program() -> Result<OwnedFd, Error> {
    match read_only_mount() {
        Ok(mount) => Ok(mount),
        Err(_) => {
            let copy = sealed_copy().map_err(|reason| Error::file("seal", "/proc/self/exe", reason))?;
            Ok(copy.into())
        }
    }
}

/// Tries which way works on this host.
pub(crate) fn examine() -> io::Result<Sealed> {
    match read_only_mount() {
        Ok(_) => Ok(Sealed::Mount),
        Err(_) => sealed_copy().map(|_| Sealed::Memory),
    }
}

fn sealed() -> Result<Option<Sealed>, Errno> {
    // The file system of every memfd (mm/shmem.c). Only memfds can be sealed.
    const TMPFS_MAGIC: FsWord = 0x0102_1994;
    let found = statfs("/proc/self/exe")?;
    if StatVfsMountFlags::from_bits_retain(found.f_flags.cast_unsigned()).contains(StatVfsMountFlags::RDONLY)
    {
        return Ok(Some(Sealed::Mount));
    }
    if found.f_type != TMPFS_MAGIC {
        return Ok(None);
    }
    let own = rustix::fs::open("/proc/self/exe", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty())?;
    // EINVAL: not a memfd.
    let is_sealed = rustix::fs::fcntl_get_seals(own).is_ok_and(|seals| seals.contains(SEALS));
    Ok(is_sealed.then_some(Sealed::Memory))
}

const SEALS: SealFlags =
    SealFlags::WRITE.union(SealFlags::GROW).union(SealFlags::SHRINK).union(SealFlags::SEAL);

fn read_only_mount() -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = open_tree(CWD, c"/proc/self/exe", flags)?;
    let read_only = AttributeChange::set(MountAttributes::RDONLY);
    mount_setattr(Fd::of(&mount), Extent::Top, read_only, MountPropagationFlags::empty())?;
    Ok(mount)
}

/// Has this program run from the mount without executing it again.
fn run_from(mount: &OwnedFd) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", mount.as_raw_fd());
    husk_spawn::run_from(open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

fn sealed_copy() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut copy = File::from(memfd_create("husk", flags)?);
    io::copy(&mut File::open("/proc/self/exe")?, &mut copy)?;
    fcntl_add_seals(copy.as_fd(), SEALS)?;
    Ok(copy)
}

fn strings(strings: impl Iterator<Item = OsString>) -> Vec<CString> {
    // Strings from the kernel contain no NUL.
    strings.filter_map(|string| CString::new(string.into_vec()).ok()).collect()
}

fn pointers(strings: &[CString]) -> Vec<CPtr<'_>> {
    strings.iter().map(|string| CPtr::from(string.as_c_str())).chain([CPtr::NULL]).collect()
}

/// Does what Rust's runtime does at startup, for programs that start without it. Opens /dev/null for standard streams
/// that the caller closed, so that no other file gets their numbers. Ignores `SIGPIPE`, so that writing to a closed
/// pipe is an error. Keeps the arguments, which Rust's runtime would keep.
pub fn prepare_process<'a>(arguments: impl Iterator<Item = &'a CStr>) {
    let owned = |argument: &CStr| OsStr::from_bytes(argument.to_bytes()).to_owned();
    tolerate(ARGUMENTS.set(arguments.map(owned).collect()), "this is the first call");
    // In this order, because a new descriptor gets the lowest free number.
    for stream in [stdin(), stdout(), stderr()] {
        if fcntl_getfd(stream).is_err() {
            match open("/dev/null", OFlags::RDWR, Mode::empty()) {
                Ok(null) => forget(null),
                Err(_) => abort(),
            }
        }
    }
    tolerate(rt_sigaction_ignore(Signal::PIPE), "this signal can always be ignored");
}
