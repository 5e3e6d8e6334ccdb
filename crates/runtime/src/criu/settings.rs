//! What can be asked of both, checkpoint and restore, and how CRIU is told.

use super::Message;
use super::protocol::option;
use crate::error::Error;
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::{Errno, Fd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, mkdirat, open, openat, statat, unlinkat};
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// What checkpoint and restore are asked alike.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Where the images are.
    pub images: PathBuf,
    /// Where CRIU works and writes its log, if not there.
    pub work: Option<PathBuf>,
    /// What is turned on.
    pub switches: Vec<Switch>,
    /// What CRIU does with cgroups.
    pub cgroups: CgroupMode,
    /// The file of CRIU's own options, an absolute path, if not the usual one.
    pub configuration: Option<PathBuf>,
}

impl Settings {
    pub(crate) fn is_on(&self, switch: Switch) -> bool {
        self.switches.contains(&switch)
    }
}

/// Something to turn on, by the number of its field in `criu_opts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// The container runs on.
    LeaveRunning = 3,
    /// Sockets of the Unix domain whose other end is elsewhere.
    ExtUnixSk = 4,
    /// TCP connections that are open.
    TcpEstablished = 5,
    /// A session whose leader is elsewhere.
    ShellJob = 7,
    /// Locks on files.
    FileLocks = 8,
    /// Pages that a newer image has are dropped from an older one.
    AutoDedup = 16,
    /// Files that have no name any more get one.
    LinkRemap = 18,
    /// TCP connections that are about to be are left out.
    TcpSkipInFlight = 46,
    /// Pages come when they are used.
    LazyPages = 48,
}

/// What CRIU does with cgroups: `criu_cg_mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupMode {
    /// Nothing.
    Ignore = 0,
    /// Properties of those that it makes.
    Soft = 3,
    /// Properties of all.
    Full = 4,
    /// Properties of all, none of which may be there.
    Strict = 5,
    /// What it does if it is not told.
    #[default]
    Default = 6,
}

impl CgroupMode {
    /// The mode of this name; without a name, the one that CRIU has without being told.
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

/// Where images and logs are, open for as long as CRIU looks for them among our descriptors.
pub(crate) struct Directories {
    pub(crate) images: OwnedFd,
    work: Option<OwnedFd>,
}

impl Directories {
    /// Opens both. The one to work in is made if it is not there.
    pub(crate) fn open(settings: &Settings) -> Result<Self, Error> {
        let images = open_directory(&settings.images)?;
        let work = settings.work.as_deref().map(|work| make(work).and_then(|()| open_directory(work)));
        Ok(Self { images, work: work.transpose()? })
    }

    /// Looks whether everything among the images is a file or a directory: CRIU opens what it finds there, and would wait
    /// for ever for the other end of a fifo. What [`clear`](Self::clear) will take away is not looked at.
    pub(crate) fn check_images(&self, cleared: [&str; 2]) -> Result<(), Error> {
        /// More is no chain that anybody makes.
        const LONGEST_CHAIN: usize = 1000;
        let cleared: &[&str] = if self.work.is_none() { &cleared } else { &[] };
        let mut parent = check_directory(self.images.as_fd(), cleared)?;
        for _ in 0..LONGEST_CHAIN {
            match parent {
                Some(directory) => parent = check_directory(directory.as_fd(), &[])?,
                None => return Ok(()),
            }
        }
        Err(Error::Criu("the chain of parent images has no end".to_owned()))
    }

    /// Says where they are.
    pub(crate) fn tell(&self, options: &mut Message) {
        options.number(option::IMAGES_DIR_FD, Fd::of(&self.images).number());
        if let Some(work) = &self.work {
            options.number(option::WORK_DIR_FD, Fd::of(work).number());
        }
    }

    /// Takes away what stands where CRIU is going to write: it goes where links lead, and waits for who reads from a fifo.
    pub(crate) fn clear(&self, names: [&str; 2]) -> Result<(), Error> {
        for name in names {
            match unlinkat(self.of_log(), name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(Error::file("remove", name, errno)),
            }
        }
        Ok(())
    }

    /// Where CRIU writes its log.
    pub(crate) fn of_log(&self) -> &OwnedFd {
        self.work.as_ref().unwrap_or(&self.images)
    }
}

/// Looks at one directory of images. Returns the directory of those that they add to, if there is one.
fn check_directory(directory: BorrowedFd<'_>, cleared: &[&str]) -> Result<Option<OwnedFd>, Error> {
    /// A link to those (criu, `CR_PARENT_LINK`).
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
            // A link that leads nowhere keeps nobody waiting.
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(failed("look at the image", &name, errno)),
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

/// Makes a directory that only we look into, unless it is there.
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

/// The annotation that names a file of criu's options.
pub(crate) const ANNOTATION: &str = "org.criu.config";

/// What users of runc have written for it.
const CONFIGURATION: &str = "/etc/criu/runc.conf";

/// The file of CRIU's options. They name scripts that CRIU runs, so the caller decides which file it is: an annotation, which
/// whoever wrote an image may have put there, can name no other.
fn configuration<'s>(
    settings: &'s Settings,
    annotations: &BTreeMap<String, String>,
) -> Result<&'s Path, Error> {
    match (annotations.get(ANNOTATION), &settings.configuration) {
        (None, None) => Ok(Path::new(CONFIGURATION)),
        (None, Some(said)) => Ok(said),
        (Some(annotation), Some(said)) if Path::new(annotation) == said => Ok(said),
        (Some(annotation), _) => Err(Error::Step {
            origin: format!("annotations.{ANNOTATION}"),
            failure: format!(
                "{annotation:?} is not what the caller says: pass --criu-config {annotation:?} to have CRIU obey it"
            ),
        }),
    }
}

/// The options that both have.
pub(crate) fn options(
    settings: &Settings,
    log: &str,
    annotations: &BTreeMap<String, String>,
) -> Result<Message, Error> {
    let configuration = configuration(settings, annotations)?;
    let mut options = Message::default();
    options
        .number(option::LOG_LEVEL, 4)
        .bytes(option::LOG_FILE, log)
        .flag(option::NOTIFY_SCRIPTS, true)
        // For who does not know the second.
        .flag(option::MANAGE_CGROUPS, true)
        .number(option::MANAGE_CGROUPS_MODE, settings.cgroups as i32)
        // Neither have we made the devices of a network namespace, nor do we make them again.
        .number(option::EMPTY_NS, i64::from(Namespaces::NET.bits()))
        .flag(option::ORPHAN_PTS_MASTER, true);
    for switch in &settings.switches {
        options.flag(*switch as u32, true);
    }
    // What stands in that file goes before what is said here.
    options.bytes(option::CONFIG_FILE, configuration.as_os_str().as_bytes());
    Ok(options)
}
