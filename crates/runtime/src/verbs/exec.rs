//! `exec`: starts another process in a running container.

use crate::cgroups::{self, ChildCgroup};
use crate::child::inherited;
use crate::child::launch::{Launched, command, enter, memory, perform};
use crate::child::serve::ChildReady;
use crate::child::supervise::{Orphans, Signals, supervise};
use crate::child::terminal::{Console, Stay};
use crate::error::Error;
use crate::host::namespaces;
use crate::host::null;
use crate::host::probe::probe_process;
use crate::host::users::Users;
use crate::inspect::state::{self as status, Status};
use crate::interrupt::Interrupt;
use crate::sockets::pidfd::Watcher;
use crate::store::Store;
use crate::store::process;
use crate::store::record::Record;
use crate::verbs::create::write_pid;
use crate::verbs::run::{Executed, as_ended_by_signal};
use husk_bundle::container::{Process, Terminal};
use husk_bundle::{Container, Warning};
use husk_listing::Cause;
use husk_plan::{CgroupEntry, Host, Invocation, JoinTarget, Keyring};
use husk_script::sys::limits::sched_setaffinity;
use husk_script::sys::{Errno, Fd};
use husk_spawn::{Namespaces, Reason};
use log::{Level, debug, log_enabled};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use husk_bundle::container::NoNewPrivileges;
pub use husk_bundle::exec::Changes;

#[derive(Clone, Debug)]
pub struct ExecRequest {
    /// The container's ID.
    pub id: String,
    pub program: ExecProgram,
    /// The file for the process's pid.
    pub pid_file: Option<PathBuf>,
    /// The listening socket that receives the terminal.
    pub console_socket: Option<PathBuf>,
    /// The listening socket that receives the process's pidfd.
    pub pidfd_socket: Option<PathBuf>,
    /// The number of the caller's descriptors, from 3 upwards, that are passed on to the program.
    pub preserve_fds: u32,
    pub wait: Wait,
    pub paused: Paused,
    /// The cgroups below the container's in which the process starts: `PATH`, or `CONTROLLER[,CONTROLLER]:PATH`.
    pub cgroups: Vec<String>,
}

/// The behaviour of `exec` in a paused container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paused {
    /// `exec` fails.
    Refused,
    /// `exec` creates the process, which runs when the container is resumed.
    Waits,
}

/// The process that `exec` creates.
#[derive(Clone, Debug)]
pub enum ExecProgram {
    /// The path of a file with a `process` object as in config.json.
    File(PathBuf),
    /// A `process` object as in config.json.
    Json(Vec<u8>),
    /// The container's own `process` with changes.
    Changed {
        changes: Changes,
        /// `USER[:GROUP]`, as names or numbers of the container.
        user: Option<String>,
    },
}

/// How long `exec` waits for the process that it created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// `exec` waits until the process ends, and passes signals on to it.
    Foreground,
    /// `exec` waits until the program has begun.
    Detached,
}

/// Starts a process in a container. Calls `warn` before the program begins, with the parts of the configuration that
/// are carried out differently than written.
///
/// # Errors
///
/// If the container is not running, the process is invalid, or a step fails.
pub fn exec(store: &Store, request: &ExecRequest, warn: impl FnOnce(&[Warning])) -> Result<Executed, Error> {
    let entry = store.entry(&request.id)?;
    let mut record = entry.read()?;
    // Opened before the status is computed, which checks that the process is alive.
    let init = record.process.map_or(Ok(None), process::open_unchecked)?;
    match status::of(&entry, &record)? {
        Status::Created => record.process.map_or(Ok(()), check_is_open)?,
        Status::Running => {}
        Status::Paused if request.paused == Paused::Waits => {}
        Status::Paused => {
            let text = "cannot exec in a paused container (use --ignore-paused to override)";
            return Err(Error::State(text));
        }
        Status::Stopped => return Err(Error::State("cannot exec in a stopped container")),
        Status::Creating => return Err(Error::State("cannot exec in a container that is not created yet")),
    }
    let init = init.ok_or(Error::State("container not running"))?;
    let (mut container, mut warnings) = husk_bundle::load_for_exec(&record.bundle, record.config.as_deref())?;
    let users = record.process.map(|init| format!("/proc/{}/root", init.pid)).unwrap_or_default();
    let users = Users::below(Path::new(&users));
    let process = process(request, &container, &users, &mut warnings)?;
    if process.terminal != Terminal::No {
        // The terminal is opened in one of the container's mounts.
        container.mounts = husk_bundle::load(&record.bundle, record.config.as_deref())?.0.mounts;
    }
    container.process = Some(process);
    warn(&warnings);
    let (signals, interrupt) = match request.wait {
        Wait::Foreground => (Some(Signals::hold(Orphans::Others)?), Interrupt::held()),
        Wait::Detached => (None, Interrupt::hold()?),
    };
    let stay = if request.wait == Wait::Foreground { Stay::Foreground } else { Stay::Detached };
    let mut console = Console::of(request.console_socket.as_deref(), &container, stay, &interrupt)?;
    let watcher = Watcher::of(request.pidfd_socket.as_deref(), None, &interrupt)?;

    let target = JoinTarget { init: Fd::of(&init), namespaces: Namespaces::from_bits(record.namespaces) };
    let mut host = probe_process(&container, &users);
    if container.process.as_ref().is_some_and(|process| process.terminal == Terminal::No) {
        null::shield(&host)?;
    }
    if target.namespaces.contains(Namespaces::USER) {
        // `exec` joins the user namespace even if the container was created in a new one.
        host.joined_ids = record.process.and_then(|init| namespaces::ids_of(init.pid.unsigned_abs()));
    }
    let start = |home: Option<ChildCgroup<'static>>| {
        let entry = home.as_ref().map_or(CgroupEntry::None, |home| home.entry(false));
        let host = Host { entry, ..host.clone() };
        let plan = husk_plan::exec(&container, target, &host, &request.invocation(&record)?, memory())?;
        let mut command = command(&plan);
        if container.resources.limits_memory() {
            // The limit is already in force, and the OOM killer kills every process that shares its victim's memory.
            command.own_memory();
        }
        if let Some(directory) = home.as_ref().and_then(ChildCgroup::directory) {
            enter(&mut command, directory)?;
        }
        Ok(Launched { home, ..perform(&command, plan)? })
    };
    affinity(&container)?;
    let cgroups = cgroups::below(&request.cgroups)?;
    let mut launched = match start(cgroups::company(&record, &cgroups)?) {
        // A cgroup that enables controllers for its children cannot hold processes (cgroup-v2.rst, "No Internal Process
        // Constraint"). The container's first process will have moved elsewhere.
        Err(Error::Spawn(error)) if cgroups.is_empty() && error.reason() == Reason::Errno(Errno::BUSY) => {
            start(cgroups::of_process(&record)?)?
        }
        Err(Error::Spawn(error)) if error.reason() == Reason::Errno(Errno::BUSY) => {
            return Err(Error::kernel("adding pid of a new process to cgroups", Errno::BUSY));
        }
        started => started?,
    };
    let begun = begin(&mut launched, &container, &mut record, &mut console, &watcher, request, &interrupt);
    match signals {
        Some(signals) => as_ended_by_signal(begun.and_then(|()| {
            if log_enabled!(Level::Debug) {
                launched.wait_for_exec(&interrupt)?;
            }
            let ended = supervise(&mut launched.child, &signals, console.relay());
            ended.map(Executed::Ended).map_err(|error| launched.explain(error))
        })),
        None => {
            begun?;
            launched.wait_for_exec(&interrupt)?;
            let pid = launched.child.id();
            launched.child.let_go();
            Ok(Executed::Detached(pid))
        }
    }
}

/// Lets the program begin, and writes its pid file, and sends its pidfd to the listening socket.
fn begin(
    launched: &mut Launched<'_>,
    container: &Container,
    record: &mut Record,
    console: &mut Console,
    watcher: &Watcher,
    request: &ExecRequest,
    interrupt: &Interrupt,
) -> Result<(), Error> {
    // A child that failed earlier requests nothing; waiting for it returns the error.
    if launched.serve(container, record, console, interrupt)? == ChildReady::Failed {
        return Ok(());
    }
    watcher.tell(&launched.child, interrupt)?;
    write_pid(request.pid_file.as_deref(), launched.child.id())?;
    if let Some(process) = &container.process {
        let Process { args, uid, gid, .. } = process;
        debug!("setns_init: about to exec {args:?} as user {uid}, group {gid}");
    }
    Ok(launched.child.go_on()?)
}

/// Fails if the process of a created container cannot be entered. Its memory is not dumpable until `start`. The kernel
/// then requires CAP_SYS_PTRACE in the user namespace that the container was created from (`ptrace_may_access`).
fn check_is_open(init: process::ProcessId) -> Result<(), Error> {
    match fs::read_link(format!("/proc/{}/ns/user", init.pid)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(Error::State(
            "cannot exec in a container that has not been started: until 'start' only root can enter it",
        )),
        // The join that follows reports any other error.
        _ => Ok(()),
    }
}

/// Sets the `initial` CPU affinity on this process. The new process inherits it until it is in the container's cgroup.
fn affinity(container: &Container) -> Result<(), Error> {
    let initial = container.process.as_ref().and_then(|process| process.exec_affinity.initial.as_ref());
    let Some(mask) = initial.map(|cpus| husk_plan::cpu_mask(cpus)) else { return Ok(()) };
    sched_setaffinity(&mask).map_err(|errno| {
        let failure = format!("sched_setaffinity: {}", Cause::from(errno));
        Error::step("process.execCPUAffinity.initial", failure)
    })?;
    let digits: String = mask.iter().rev().map(|word| format!("{word:016x}")).collect();
    debug!("nsexec: affinity: 0x{}", digits.trim_start_matches('0'));
    Ok(())
}

impl ExecRequest {
    fn invocation(&self, record: &Record) -> Result<Invocation<'_>, Error> {
        let (listen_fds, preserve_fds) = (inherited::listen_fds(), self.preserve_fds);
        inherited::check_descriptors(listen_fds, preserve_fds)?;
        let keyring = if record.callers_keyring { Keyring::Callers } else { Keyring::New };
        Ok(Invocation { id: &self.id, keyring, listen_fds, preserve_fds, ..Invocation::default() })
    }
}

fn process(
    request: &ExecRequest,
    container: &Container,
    users: &Users,
    warnings: &mut Vec<Warning>,
) -> Result<Process, Error> {
    let own = container.process.as_ref().ok_or(Error::State("the container has no process to go by"))?;
    let mut parse = |bytes: &[u8]| -> Result<Process, Error> {
        let (process, more) = husk_bundle::exec::process(bytes, own)?;
        warnings.extend(more);
        Ok(process)
    };
    match &request.program {
        ExecProgram::File(path) => {
            parse(&fs::read(path).map_err(|reason| Error::file("read", path, reason))?)
        }
        ExecProgram::Json(bytes) => parse(bytes),
        ExecProgram::Changed { changes, user } => {
            let mut changes = changes.clone();
            if let Some(user) = user {
                let identity = users.find(user)?;
                changes.user = Some((identity.uid, identity.gid));
                changes.additional_gids.extend(identity.groups);
            }
            Ok(changes.apply(own.clone())?)
        }
    }
}
