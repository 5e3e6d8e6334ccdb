//! The settings that checkpoint and restore share, and their encoding for CRIU.

use super::ProtobufMessage;
use super::protocol::option;
use crate::error::Error;
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::{Errno, Fd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, mkdirat, open, openat, statat, unlinkat};
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The settings that checkpoint and restore share.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The directory of the images.
    pub images: PathBuf,
    /// The directory where CRIU works and writes its log, if not `images`.
    pub work: Option<PathBuf>,
    pub switches: Vec<Switch>,
    /// How CRIU handles cgroups.
    pub cgroups: CgroupMode,
    /// The file of CRIU's own options, an absolute path. `None` for the usual one.
    pub configuration: Option<PathBuf>,
}

impl Settings {
    pub(crate) fn is_on(&self, switch: Switch) -> bool {
        self.switches.contains(&switch)
    }
}

/// A boolean option, with its field number in `criu_opts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Leave the container running.
    LeaveRunning = 3,
    /// Allow Unix sockets whose peer is outside of the container.
    ExtUnixSk = 4,
    /// Allow open TCP connections.
    TcpEstablished = 5,
    /// Allow a session whose leader is outside of the container.
    ShellJob = 7,
    /// Allow file locks.
    FileLocks = 8,
    /// Drop pages from an older image that a newer one has.
    AutoDedup = 16,
    /// Give unlinked files a name.
    LinkRemap = 18,
    /// Skip TCP connections that are not yet established.
    TcpSkipInFlight = 46,
    /// Load pages when they are used.
    LazyPages = 48,
}

/// How CRIU handles cgroups: `criu_cg_mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupMode {
    /// Leaves them alone.
    Ignore = 0,
    /// Restores properties of the cgroups that it makes.
    Soft = 3,
    /// Restores properties of all cgroups.
    Full = 4,
    /// Restores properties of all cgroups, none of which may exist before.
    Strict = 5,
    /// CRIU's default.
    #[default]
    Default = 6,
}

impl CgroupMode {
    /// Returns the mode of this name. An empty name is CRIU's default.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "" => Some(Self::Default),
            "ignore" => Some(Self::Ignore),
            "soft" => Some(Self::Soft),
            "full" => Some(Self::Full),
            "strict" => Some(Self::Strict),
            _ => None,
        }
    }
}

/// The directories of images and logs. They stay open while CRIU opens them through husk's descriptors.
pub(crate) struct Directories {
    pub(crate) images: OwnedFd,
    work: Option<OwnedFd>,
}

impl Directories {
    /// Opens both directories. Makes the work directory if it does not exist.
    pub(crate) fn open(settings: &Settings) -> Result<Self, Error> {
        let images = open_directory(&settings.images)?;
        let work = settings.work.as_deref().map(|work| make(work).and_then(|()| open_directory(work)));
        Ok(Self { images, work: work.transpose()? })
    }

    /// Checks that every image is a regular file or a directory. CRIU opens every entry, and would wait for ever at a
    /// FIFO. Files that [`clear`](Self::clear) will remove are not checked.
    pub(crate) fn check_images(&self, cleared: [&str; 2]) -> Result<(), Error> {
        /// A longer chain is taken for a loop.
        const LONGEST_CHAIN: usize = 1000;
        let cleared: &[&str] = if self.work.is_none() { &cleared } else { &[] };
        let mut parent = check_directory(self.images.as_fd(), cleared)?;
        for _ in 0..LONGEST_CHAIN {
            match parent {
                Some(directory) => parent = check_directory(directory.as_fd(), &[])?,
                None => return Ok(()),
            }
        }
        Err(Error::Criu("the chain of parent images is a loop".to_owned()))
    }

    /// Adds their descriptors to the options, unless CRIU is to find the images in its working directory.
    pub(crate) fn tell(&self, options: &mut ProtobufMessage, is_rootless: bool) {
        if is_rootless {
            return super::rootless::tell(options);
        }
        options.number(option::IMAGES_DIR_FD, Fd::of(&self.images).number());
        if let Some(work) = &self.work {
            options.number(option::WORK_DIR_FD, Fd::of(work).number());
        }
    }

    /// Removes files at the paths that CRIU will write. CRIU would follow a symlink, or wait for the reader of a
    /// FIFO.
    pub(crate) fn clear(&self, names: [&str; 2]) -> Result<(), Error> {
        for name in names {
            match unlinkat(self.of_log(), name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(Error::file("remove", name, errno)),
            }
        }
        Ok(())
    }

    /// Returns the directory of CRIU's log.
    pub(crate) fn of_log(&self) -> &OwnedFd {
        self.work.as_ref().unwrap_or(&self.images)
    }
}

/// Checks one directory of images. Returns the directory of its parent images, if there is one.
fn check_directory(directory: BorrowedFd<'_>, cleared: &[&str]) -> Result<Option<OwnedFd>, Error> {
    /// The link to the parent images (criu, `CR_PARENT_LINK`).
    const PARENT: &str = "parent";
    let failed = |act, name: &str, errno: Errno| Error::file(act, name, errno);
    for entry in Dir::read_from(directory).map_err(|errno| failed("read", "images", errno))? {
        let entry = entry.map_err(|errno| failed("read", "images", errno))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if cleared.contains(&&*name) {
            continue;
        }
        let found = match statat(directory, entry.file_name(), AtFlags::empty()) {
            Ok(found) => FileType::from_raw_mode(found.st_mode),
            // A dangling link cannot make CRIU wait.
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(failed("examine the image", &name, errno)),
        };
        if !matches!(found, FileType::RegularFile | FileType::Directory) {
            return Err(Error::Criu(format!("the image {name:?} is not a regular file")));
        }
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat(directory, PARENT, flags, Mode::empty()) {
        Ok(parent) => Ok(Some(parent)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(failed("open", PARENT, errno)),
    }
}

/// Makes a directory that only the caller can access, unless it exists.
fn make(path: &Path) -> Result<(), Error> {
    match mkdirat(CWD, path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(Error::file("mkdir", path, errno)),
    }
}

fn open_directory(path: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).map_err(|errno| Error::file("open", path, errno))
}

/// The annotation that names a file of CRIU's options.
pub(crate) const ANNOTATION: &str = "org.criu.config";

/// The default, which is the file that runc uses.
const CONFIGURATION: &str = "/etc/criu/runc.conf";

/// Returns the file of CRIU's options. The file can name scripts that CRIU runs, so the caller decides which file it
/// is. An annotation can name no other file, because the author of an image may have written it.
fn configuration<'s>(
    settings: &'s Settings,
    annotations: &BTreeMap<String, String>,
) -> Result<&'s Path, Error> {
    match (annotations.get(ANNOTATION), &settings.configuration) {
        (None, None) => Ok(Path::new(CONFIGURATION)),
        (None, Some(said)) => Ok(said),
        (Some(annotation), Some(said)) if Path::new(annotation) == said => Ok(said),
        (Some(annotation), _) => Err(Error::step(
            format!("annotations.{ANNOTATION}"),
            format!(
                "{annotation:?} is not the file of the command line; pass --criu-config {annotation:?} to use it"
            ),
        )),
    }
}

/// Encodes the options that checkpoint and restore share.
pub(crate) fn options(
    settings: &Settings,
    log: &str,
    annotations: &BTreeMap<String, String>,
) -> Result<ProtobufMessage, Error> {
    let configuration = configuration(settings, annotations)?;
    let mut options = ProtobufMessage::default();
    options
        .number(option::LOG_LEVEL, 4)
        .bytes(option::LOG_FILE, log)
        .flag(option::NOTIFY_SCRIPTS, true)
        // For a CRIU that does not know `MANAGE_CGROUPS_MODE`.
        .flag(option::MANAGE_CGROUPS, true)
        .number(option::MANAGE_CGROUPS_MODE, settings.cgroups as i32)
        // husk neither makes a network namespace's devices nor restores them.
        .number(option::EMPTY_NS, i64::from(Namespaces::NET.bits()))
        .flag(option::ORPHAN_PTS_MASTER, true);
    for switch in &settings.switches {
        options.flag(*switch as u32, true);
    }
    // The file's options override these.
    options.bytes(option::CONFIG_FILE, configuration.as_os_str().as_bytes());
    Ok(options)
}
