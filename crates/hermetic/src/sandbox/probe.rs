//! Determines the facts about this machine and its caller.

use crate::cache::view::View;
use crate::error::Error;
use crate::host::{Host, HostFile, Landlock, Procfs, Sysfs};
use crate::plan::{filter, image};
use crate::profile::{Image, Profile};
use crate::sandbox::inside::Inside;
use husk_plan::users;
use husk_script::sys::at::null_streams;
use husk_script::sys::limits::getrlimit;
use rustix::fs::{FileType, OFlags, Stat, fcntl_getfl, fstat, statfs};
use rustix::process::{getegid, geteuid, getuid};
use rustix::system::uname;
use rustix::time::{ClockId, clock_gettime};
use std::io::{stderr, stdin, stdout};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs, io};

/// The type of a sysfs (linux/magic.h).
const SYSFS_MAGIC: rustix::fs::FsWord = 0x6265_6572;

/// Determines everything that the profile's plan depends on, as far as that is possible without trying.
///
/// # Errors
///
/// If a path of the profile or the working directory does not exist, or a standard stream is a directory.
pub fn probe(profile: &Profile) -> Result<Host, Error> {
    let failed = |act: &str, path: &Path| {
        let act = format!("{act} {}", path.display());
        move |error: io::Error| Error::Look { act, reason: error.into() }
    };
    // Through such a stream, a program could reach the host's files, read-only or not.
    let streams = [
        ("standard input", fstat(stdin())),
        ("standard output", fstat(stdout())),
        ("standard error", fstat(stderr())),
    ];
    let is_directory = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    if let Some((name, _)) = streams.iter().find(|(_, stat)| stat.as_ref().is_ok_and(is_directory)) {
        return Err(Error::Stream(name));
    }
    let image = profile.image.as_ref().map(Inside::of).transpose()?;
    let cwd = match &profile.image {
        Some(image) => image.process().map_or("/".into(), |process| process.cwd.clone()),
        None => env::current_dir().map_err(failed("find the working directory", Path::new("")))?,
    };
    let callers = cwd.clone();
    let cwd = profile.directory.clone().unwrap_or(cwd);
    let home = if image.is_none() { caller_home() } else { None };
    let found = profile.shown.iter().map(|show| {
        let found = match &image {
            Some(image) => image.find(&show.path),
            None => fs::canonicalize(&show.path).map(HostFile::of_host),
        };
        found.map_err(failed("find", &show.path))
    });
    let own = ["/dev", "/run", "/var/tmp", "/tmp"].map(PathBuf::from).into_iter();
    let is_directory = |path: &PathBuf| match &image {
        Some(image) => image.has_own(path),
        None => fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()),
    };
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let lacks = |path: &Path| image.as_ref().is_some_and(|image| !image.has(path));
    let mounts = profile.image.iter().flat_map(image::mounts);
    let places = mounts.map(|(_, mount)| mount.destination.as_path());
    let lacks_places = places.chain([&*cwd, "/dev".as_ref(), "/proc".as_ref(), "/tmp".as_ref()]).any(lacks);
    let view = match (&image, profile.inputs.is_empty()) {
        (None, false) => Some(Arc::new(View::of(profile, &callers)?)),
        _ => None,
    };
    Ok(Host {
        uid,
        gid,
        program: {
            let process = profile.image.as_ref().and_then(Image::process);
            let callers = process.map_or((uid, gid), |process| (process.uid, process.gid));
            profile.user.unwrap_or(callers)
        },
        project: project(&callers, home.as_deref()),
        cwd,
        home,
        environment: env::vars_os().collect(),
        own: own.filter(is_directory).collect(),
        found: found.collect::<Result<_, _>>()?,
        most: profile
            .limits
            .resources()
            .map(|(resource, asked)| asked.and_then(|_| getrlimit(resource).maximum)),
        cgroup: false,
        has_pid_max: is_release(uname().release().to_bytes(), (6, 14)),
        overlays_tools: true,
        user_namespace: true,
        procfs: Procfs::Own,
        sysfs: sysfs(),
        clocks: match profile.uptime {
            Some(_) => (clock(ClockId::Monotonic), clock(ClockId::Boottime)),
            None => Default::default(),
        },
        mqueue: Path::new("/proc/sys/fs/mqueue").exists(),
        wait_killable: profile.observed && filter::can_wait_killable(),
        landlock: Landlock::probe(),
        written: [is_written(stdin()), is_written(stdout()), is_written(stderr())],
        null_streams: null_streams().collect(),
        network: None,
        lacks_places,
        view,
    })
}

/// Returns whether a release of Linux is at least this version.
fn is_release(release: &[u8], least: (u32, u32)) -> bool {
    let mut numbers = release.split(|byte| !byte.is_ascii_digit());
    let mut next = || std::str::from_utf8(numbers.next()?).ok()?.parse().ok();
    next().zip(next()).is_some_and(|release| release >= least)
}

/// Returns whether a stream is open for writing.
fn is_written(stream: impl AsFd) -> bool {
    fcntl_getfl(stream).is_ok_and(|flags| flags.intersects(OFlags::WRONLY | OFlags::RDWR))
}

/// Returns the sysfs that a sandbox can have. A user namespace can mount one only where another is visible
/// (fs/namespace.c, `mount_too_revealing`).
fn sysfs() -> Sysfs {
    let is_sysfs = statfs("/sys").is_ok_and(|found| found.f_type == SYSFS_MAGIC);
    if is_sysfs { Sysfs::Own } else { Sysfs::Callers }
}

fn clock(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

impl HostFile {
    /// Describes an existing path without symlinks.
    pub(crate) fn of_host(path: PathBuf) -> Self {
        let found = fs::metadata(&path);
        let mode = found.as_ref().map_or(0o755, |found| found.mode() & 0o1777);
        Self { is_directory: found.is_ok_and(|found| found.is_dir()), path, mode }
    }
}

/// Returns the caller's home directory without symlinks. A directory that holds the system, or everything, is not treated
/// as a home directory.
pub(crate) fn caller_home() -> Option<PathBuf> {
    let home = home().and_then(|home| fs::canonicalize(home).ok());
    home.filter(|home| home.components().count() > 1 && home.is_dir() && !Path::new("/usr").starts_with(home))
}

/// Returns the caller's home directory: `HOME`, or otherwise the entry in /etc/passwd. The C library would ask other
/// sources too, and load programs and a resolver into our process.
fn home() -> Option<PathBuf> {
    let said = env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    said.or_else(|| users::home(&fs::read("/etc/passwd").ok()?, getuid().as_raw()))
}

/// Returns the repository that contains a directory, or the directory itself. A repository that holds the home
/// directory does not count.
pub(crate) fn project(cwd: &Path, home: Option<&Path>) -> PathBuf {
    let holds_home = |path: &Path| home.is_some_and(|home| home.starts_with(path));
    let mut above = cwd.ancestors().take_while(|path| !holds_home(path) && path.components().count() > 2);
    above.find(|path| path.join(".git").exists()).unwrap_or(cwd).to_owned()
}

#[cfg(test)]
mod tests {
    use super::{is_release, project};
    use std::path::Path;

    #[test]
    fn releases_are_compared_by_number() {
        let is = |release: &str| is_release(release.as_bytes(), (6, 14));
        assert!(is("6.14.0") && is("6.18.44-fc") && is("7.0-rc1") && is("10.1"));
        assert!(!is("6.13.9") && !is("6.2.0-39-generic") && !is("5.15") && !is("6") && !is("x"));
    }

    #[test]
    fn project_is_the_repository_or_the_directory_itself() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(project(Path::new("/usr/bin"), None), Path::new("/usr/bin"));
        assert_eq!(project(here, Some(here)), here);
    }
}
