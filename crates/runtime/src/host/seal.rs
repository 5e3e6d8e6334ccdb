//! Puts husk's own binary out of a container's reach (CVE-2019-5736).
//!
//! Until a container's process has become its program, its `/proc/PID/exe` is husk, and whoever is root
//! in a container without a user namespace is root over that file too; with one, over a file that its user owns.
//! So husk starts itself once more, from a mount of its own file that is read-only, attached nowhere and so out of
//! reach of any remount: `/proc/PID/exe` is then on a read-only mount for whoever opens it. Where such a mount cannot be
//! made, from a sealed copy in memory.
//!
//! Here is, too, what every program of husk does before anything else: see [`settle`].

use crate::error::Error;
use husk_script::sys::mount::{Extent, mount_setattr};
use husk_script::sys::process::execveat_empty;
use husk_script::sys::signal::rt_sigaction_ignore;
use husk_script::sys::tolerate;
use husk_script::sys::{CArray, CPtr, Errno, Fd};
use husk_spawn::Signal;
use rustix::fs::{
    Access, CWD, MemfdFlags, Mode, OFlags, SealFlags, StatVfsMountFlags, access, fcntl_add_seals,
    memfd_create, open, stat, statvfs,
};
use rustix::io::fcntl_getfd;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::stdio::{stderr, stdin, stdout};
use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::mem::forget;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::process::abort;

/// `MOUNT_ATTR_RDONLY`.
const RDONLY: u64 = 0x1;

/// What of our caller's environment we keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Environment {
    /// All of it: there may be hooks that inherit it.
    Callers,
    /// What we look at. A process that joins a container is a copy of us until it is its program, and who may trace
    /// it there would read the rest.
    OurOwn,
}

impl Environment {
    fn keeps(self, name: &OsStr) -> bool {
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

/// Whether a container may be able to write this program: as root, whose container may be root on the host; and where it
/// is the caller's own, who is root in a container with a user namespace.
#[must_use]
pub fn is_exposed() -> bool {
    const OWN: &str = "/proc/self/exe";
    let user = rustix::process::geteuid();
    let is_users = || stat(OWN).map_or(true, |found| found.st_uid == user.as_raw());
    user.is_root() || is_users() || access(OWN, Access::WRITE_OK).is_ok()
}

/// Starts this program once more from where it cannot be written, with as much of the environment as is to be kept.
/// Returns if all that is done already.
///
/// # Errors
///
/// If neither way works. To go on regardless would leave the binary open.
pub fn seal(environment: Environment) -> Result<Sealed, Error> {
    let failed = |errno| Error::kernel("seal /proc/self/exe", errno);
    let is_kept = env::vars_os().all(|(name, _)| environment.keeps(&name));
    if let Some(sealed) = sealed().map_err(failed)?.filter(|_| is_kept) {
        // A program without a path is named after its descriptor, which tells nobody anything.
        rustix::thread::set_name(c"husk").map_err(failed)?;
        return Ok(sealed);
    }
    let arguments = strings(env::args_os());
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
    match read_only_mount() {
        Ok(mount) => Err(failed(execveat_empty(Fd::of(&mount), argv, envp))),
        // Without CAP_SYS_ADMIN here, or on a file system that cannot be mounted twice.
        Err(_) => {
            let copy = sealed_copy().map_err(|reason| Error::file("seal", "/proc/self/exe", reason))?;
            Err(failed(execveat_empty(Fd::of(&copy), argv, envp)))
        }
    }
}

/// How a binary cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sealed {
    /// It is a file of a read-only mount.
    Mount,
    /// It is in memory that is sealed.
    Memory,
}

/// Which of the ways works here.
pub(crate) fn examine() -> io::Result<Sealed> {
    match read_only_mount() {
        Ok(_) => Ok(Sealed::Mount),
        Err(_) => sealed_copy().map(|_| Sealed::Memory),
    }
}

fn sealed() -> Result<Option<Sealed>, Errno> {
    if statvfs("/proc/self/exe")?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Ok(Some(Sealed::Mount));
    }
    let own = rustix::fs::open("/proc/self/exe", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty())?;
    // EINVAL: no file of memory.
    let is_sealed = rustix::fs::fcntl_get_seals(own).is_ok_and(|seals| seals.contains(SEALS));
    Ok(is_sealed.then_some(Sealed::Memory))
}

const SEALS: SealFlags =
    SealFlags::WRITE.union(SealFlags::GROW).union(SealFlags::SHRINK).union(SealFlags::SEAL);

fn read_only_mount() -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = open_tree(CWD, c"/proc/self/exe", flags)?;
    mount_setattr(Fd::of(&mount), Extent::Top, RDONLY, 0, 0)?;
    Ok(mount)
}

fn sealed_copy() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut copy = File::from(memfd_create("husk", flags)?);
    io::copy(&mut File::open("/proc/self/exe")?, &mut copy)?;
    fcntl_add_seals(copy.as_fd(), SEALS)?;
    Ok(copy)
}

fn strings(strings: impl Iterator<Item = OsString>) -> Vec<CString> {
    // What came from the kernel as a string holds no NUL.
    strings.filter_map(|string| CString::new(string.into_vec()).ok()).collect()
}

fn pointers(strings: &[CString]) -> Vec<CPtr<'_>> {
    strings.iter().map(|string| CPtr::from(string.as_c_str())).chain([CPtr::NULL]).collect()
}

/// Has a program that begins without Rust's runtime begin as with it: standard streams that its caller has closed are
/// open, so that no file of ours is taken for one, and to write to who has gone is an error and no signal.
pub fn settle() {
    // The lowest first: what is opened gets the lowest number.
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
