//! `checkpoint`: saves a container's processes by CRIU. The processes end, unless the request keeps them running.

use crate::cgroups::{self, TemporaryFreeze};
use crate::child::timings::Timings;
use crate::criu::external::{leave_namespaces, name_mounts};
use crate::criu::failure::{self, Log};
use crate::criu::protocol::{self, CriuRequest, Feature, option};
use crate::criu::{self, rootless, streams};
use crate::criu::{CriuCommand, Directories, Notification, Settings, Switch};
use crate::error::Error;
use crate::host::namespaces::ids_of;
use crate::host::probe;
use crate::inspect::state::{self as status, Status};
use crate::interrupt::Interrupt;
use crate::sockets::notify;
use crate::store::Store;
use crate::store::process;
use crate::store::record::RecordedCgroup;
use crate::verbs::delete::forget;
use crate::verbs::pause;
use husk_bundle::Warning;
use husk_listing::Cause;
use rustix::fs::{Mode, OFlags, fcntl_getfl, openat};
use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

const LOG: &str = "dump.log";
/// The file in which CRIU writes its statistics, beside the log.
const STATISTICS: &str = "stats-dump";

#[derive(Debug)]
pub struct CheckpointRequest {
    /// The container's ID.
    pub id: String,
    /// The options that `restore` has too.
    pub settings: Settings,
    pub scope: CheckpointScope,
    /// Earlier images, relative to the new ones. Only memory that has changed since is saved.
    pub parent: Option<PathBuf>,
    /// The address and port of a server that takes the memory pages.
    pub page_server: Option<(String, u16)>,
    /// The caller's descriptor to which a zero byte is written when pages can be requested.
    pub status_fd: Option<StatusFd>,
    pub timings: Timings,
}

/// A descriptor that the caller has named by its number.
#[derive(Debug)]
pub struct StatusFd {
    pub number: i32,
    /// The descriptor, closed after it is written to. `None` if the number is not an open descriptor.
    pub descriptor: Option<OwnedFd>,
}

/// How much of a container is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointScope {
    /// All of it.
    Whole,
    /// Saves only the memory, ahead of a full checkpoint. The container keeps running.
    Memory,
}

/// Saves a running container. Calls `warn` with hooks that fail.
///
/// # Errors
///
/// If the container is not running, or CRIU is missing or fails. The container then keeps running.
pub fn checkpoint(
    store: &Store,
    mut request: CheckpointRequest,
    warn: impl FnMut(&[Warning]),
) -> Result<(), Error> {
    let timings = request.timings.clone();
    timings.begin("read the record");
    let entry = store.entry(&request.id)?;
    // Keeps other commands from deleting the container meanwhile.
    entry.lock()?;
    let record = entry.read()?;
    // These messages are worded as runc's.
    let process = match (status::of(&entry, &record)?, record.process) {
        (Status::Running | Status::Paused, Some(process)) => process,
        (Status::Created, _) => {
            return Err(Error::State("Container cannot be checkpointed in created state"));
        }
        (Status::Stopped, _) => {
            return Err(Error::State("Container cannot be checkpointed in stopped state"));
        }
        _ => return Err(Error::State("Container cannot be checkpointed before it is created")),
    };
    let init =
        process::open(process)?.ok_or(Error::State("Container cannot be checkpointed in stopped state"))?;
    let settings = &request.settings;
    let (mut container, _) = husk_bundle::load(&record.bundle, record.config.as_deref())?;
    notify::show_again(&entry, &mut container);
    let is_rootless = rootless::is_unprivileged();
    if is_rootless {
        rootless::check(&container, settings)?;
        rootless::check_binds(&container, process.pid)?;
    }
    let mut options = criu::options(settings, LOG, &record.annotations)?;
    timings.begin("make the directory of the images");
    make_images(settings)?;
    let directories = Directories::open(settings)?;
    directories.clear([LOG, STATISTICS])?;
    check_parent(&request, &directories)?;
    timings.begin("ask CRIU for its version");
    criu::check()?;

    timings.begin("look at the container");
    directories.tell(&mut options, is_rootless);
    options
        .bytes(option::ROOT, record.rootfs.as_os_str().as_encoded_bytes())
        .number(option::PID, process.pid);
    if let Some((address, port)) = &request.page_server {
        options.message(option::PAGE_SERVER, &protocol::numbered(address, i32::from(*port)));
    }
    if let Some(parent) = &request.parent {
        options
            .bytes(option::PARENT_IMG, parent.as_os_str().as_encoded_bytes())
            .flag(option::TRACK_MEM, true);
    }
    if let Some(freezer) = record.cgroup.as_ref().and_then(RecordedCgroup::freezer) {
        options.bytes(option::FREEZE_CGROUP, freezer.as_os_str().as_encoded_bytes());
    }
    if is_rootless {
        leave_namespaces(&rootless::without_shared(&container), process.pid, &mut options)?;
    } else {
        leave_namespaces(&container, process.pid, &mut options)?;
    }
    let kind = match request.scope {
        CheckpointScope::Memory => {
            timings.begin("ask CRIU for its features");
            criu::need(Feature::MemTrack)?;
            CriuRequest::PreDump
        }
        CheckpointScope::Whole => {
            name_mounts(&container, &probe::cgroup(), process.pid, &mut options)?;
            streams::keep(&record, process.pid, &directories.images, &mut options)?;
            CriuRequest::Dump
        }
    };
    let mut status_fd = None;
    let is_lazy = settings.is_on(Switch::LazyPages);
    if is_lazy {
        timings.begin("ask CRIU for its features");
        criu::need(Feature::LazyPages)?;
        status_fd = request.status_fd.take().map(check_status_fd).transpose()?;
    }

    timings.begin("start CRIU");
    // A reader of pages can take as long as it likes. Meanwhile signals end husk, and CRIU goes on to serve the pages.
    let mut freeze = if is_lazy { None } else { TemporaryFreeze::of(&record)? };
    let interrupt = if is_lazy { None } else { Some(Interrupt::hold()?) };
    let mut criu = CriuCommand::new()?.silent();
    if is_rootless {
        rootless::join(&mut criu, &init, process.pid, &settings.images)?;
    }
    let ids = ids_of(process.pid.cast_unsigned()).filter(|_| is_rootless);
    let criu = criu.start()?;
    timings.begin("CRIU: start");
    let notified = |notification: Notification| {
        timings.begin(next_phase(&notification.script));
        match notification.script.as_str() {
            // Only a dump announces itself. After a pre-dump, CRIU lets the processes go on while it writes their memory,
            // so they must not stay frozen until it ends.
            "pre-dump" => freeze.as_mut().map_or(Ok(()), |freeze| freeze.freeze(pause::PATIENCE)),
            "status-ready" => {
                if let Some(fd) = status_fd.take() {
                    // Tolerated: a reader that has gone away need not be notified.
                    rustix::io::write(&fd, b"\0").unwrap_or(0);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    };
    let request = protocol::request(kind, Some(&options));
    let dumped = criu.serve(interrupt.as_ref(), kind, &request, notified);
    let goes_on = dumped.is_err() || kind == CriuRequest::PreDump || settings.is_on(Switch::LeaveRunning);
    if goes_on && let Some(freeze) = freeze {
        // Its error comes first, because the container stands still.
        freeze.thaw()?;
    }
    drop(interrupt);
    let directory = settings.work.as_deref().unwrap_or(&settings.images);
    let log = Log { directories: &directories, directory, name: LOG, shares_pids: record.shares_pids };
    dumped.map_err(|error| failure::explain(error, &log))?;
    timings.end();
    if let Some(ids) = ids {
        rootless::translate(&directories.images, &ids)?;
    }
    if goes_on {
        return Ok(());
    }
    timings.begin("wait for the end of the container");
    process::wait(&init)?;
    timings.begin("delete the container");
    cgroups::kill_rest(&record)?;
    let forgotten = forget(&entry, &record, warn);
    timings.end();
    forgotten
}

/// Returns what CRIU does after it has sent a notification.
fn next_phase(script: &str) -> &'static str {
    match script {
        "pre-dump" => "CRIU: stop the processes",
        "network-lock" => "CRIU: look at the processes",
        "query-ext-files" => "CRIU: save files and memory",
        "status-ready" => "CRIU: serve pages",
        "post-dump" => "CRIU: end the processes, or let them go on",
        _ => "CRIU: go on",
    }
}

/// Makes the directory of the images and its parents, unless they exist. Only the owner may read it, because images
/// hold the container's memory.
fn make_images(settings: &Settings) -> Result<(), Error> {
    let made = DirBuilder::new().mode(0o700).recursive(true).create(&settings.images);
    made.map_err(|reason| Error::file("mkdir", &settings.images, reason))
}

/// Checks that the parent images exist.
fn check_parent(request: &CheckpointRequest, directories: &Directories) -> Result<(), Error> {
    let Some(parent) = &request.parent else { return Ok(()) };
    let invalid = |reason: String| Error::Argument { option: "invalid --parent-path", reason };
    if parent.is_absolute() {
        return Err(Error::Argument { option: "--parent-path", reason: "must be relative".to_owned() });
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(&directories.images, parent, flags, Mode::empty())
        .map(drop)
        .map_err(|errno| invalid(format!("{}: {}", parent.display(), Cause::from(errno))))
}

/// Checks that the descriptor is open and can be written to.
fn check_status_fd(StatusFd { number, descriptor }: StatusFd) -> Result<OwnedFd, Error> {
    let invalid = |reason: &str| Error::Argument {
        option: "invalid --status-fd argument",
        reason: format!("{number}: {reason}"),
    };
    let descriptor = descriptor.ok_or_else(|| invalid("is not open"))?;
    match fcntl_getfl(&descriptor) {
        Ok(flags) if flags & OFlags::ACCMODE != OFlags::RDONLY => Ok(descriptor),
        _ => Err(invalid("not writable")),
    }
}
