//! `create`: sets the container up to the point where its process waits for `start`.

use crate::cgroups::resctrl;
use crate::cgroups::{self, CgroupManager, ChildCgroup, NewCgroup};
use crate::child::inherited;
use crate::child::launch::{Launched, launch};
use crate::child::serve::ChildReady;
use crate::child::terminal::{Console, Stay};
use crate::child::timings::Timings;
use crate::criu::streams;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::sockets::notify;
use crate::sockets::pidfd::Watcher;
use crate::store::atomic::write_atomically;
use crate::store::process::ProcessId;
use crate::store::record::{self, Record, RecordedHook, RecordedStep};
use crate::store::{Entry, Store};
use crate::verbs::delete::forget;
use husk_bundle::container::NamespaceKind;
use husk_bundle::{Container, Warning};
use husk_listing::Line;
use husk_plan::{Invocation, Keyring, NewRoot, Plan, ProgramStart};
use husk_script::Step;
use husk_script::sys::Fd;
use husk_script::sys::tolerate;
use husk_spawn::Child;
use log::debug;
use rustix::process::geteuid;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The request to `create` and `run`.
#[derive(Clone, Debug)]
pub struct CreateRequest {
    /// The container's ID.
    pub id: String,
    /// The absolute path of the bundle.
    pub bundle: PathBuf,
    /// The absolute path of the configuration, if it is not the bundle's config.json.
    pub config: Option<PathBuf>,
    /// The file for the pid of the container's process.
    pub pid_file: Option<PathBuf>,
    /// The listening socket that receives the terminal.
    pub console_socket: Option<PathBuf>,
    /// The listening socket that receives the pidfd of the container's process.
    pub pidfd_socket: Option<PathBuf>,
    /// How the container's root file system becomes its root.
    pub new_root: NewRoot,
    /// The session keyring of the program.
    pub keyring: Keyring,
    /// The number of the caller's descriptors, from 3 upwards, that are passed on to the program.
    pub preserve_fds: u32,
    /// The manager that creates the cgroup.
    pub cgroups: CgroupManager,
    /// Records when each phase happens.
    pub timings: Timings,
}

impl CreateRequest {
    /// Converts the request for the planner. `start` says when the program begins.
    pub(crate) fn invocation(&self, start: ProgramStart) -> Result<Invocation<'_>, Error> {
        let Self { new_root, keyring, preserve_fds, .. } = *self;
        let listen_fds = inherited::listen_fds();
        inherited::check_descriptors(listen_fds, preserve_fds)?;
        Ok(Invocation { id: &self.id, start, new_root, keyring, listen_fds, preserve_fds })
    }
}

/// Creates a container, whose process waits for `start`, and returns that process's pid. Calls `warn` with the parts of the configuration that are
/// carried out differently than written, and with hooks that failed after the container's end.
///
/// # Errors
///
/// If the ID is taken, the configuration cannot be carried out, or a step or hook fails. Nothing is then left of the
/// container.
pub fn create(
    store: &Store,
    request: &CreateRequest,
    mut warn: impl FnMut(&[Warning]),
) -> Result<u32, Error> {
    let (mut container, warnings) = husk_bundle::load(&request.bundle, request.config.as_deref())?;
    warn(&warnings);
    // Holds signals back before anything is made that a signal could leave behind, and before anything waits for
    // another program.
    let interrupt = Interrupt::hold()?;
    let mut console = Console::of(request.console_socket.as_deref(), &container, Stay::Detached, &interrupt)?;
    let (option, annotation) = (request.pidfd_socket.as_deref(), container.pidfd_receiver.as_deref());
    let watcher = Watcher::of(option, annotation, &interrupt)?;
    let creation = Creation::begin(store, &request.id)?;
    let mut record = record(request, &container);
    let begun = notify::offer(&creation.entry, &mut container, &mut warn)
        .and_then(|()| begin(&container, request, &creation, &mut record, &mut warn));
    let mut launched = begun.map_err(|error| creation.entry.explain(error))?;
    let parked = park(&mut launched, &container, &mut console, request, &creation, &mut record, &interrupt);
    warn(&launched.home.as_mut().map(ChildCgroup::take_warnings).unwrap_or_default());
    match parked.and_then(|()| watcher.tell(&launched.child, &interrupt)) {
        Ok(()) => {
            let pid = launched.child.id();
            launched.child.let_go();
            creation.commit();
            Ok(pid)
        }
        Err(error) => {
            let error = creation.entry.explain(error);
            // Ends the process before its container is removed.
            drop(launched);
            // From here on another signal ends this process, even while hooks run.
            drop(interrupt);
            creation.end(&record, warn);
            Err(error)
        }
    }
}

/// Makes the socket and the cgroup that the container's process needs, and starts the process.
fn begin<'c>(
    container: &'c Container,
    request: &CreateRequest,
    creation: &Creation,
    record: &mut Record,
    warn: &mut impl FnMut(&[Warning]),
) -> Result<Launched<'c>, Error> {
    let socket = creation.entry.socket();
    let listener = UnixListener::bind(&socket).map_err(|reason| Error::file("bind", &socket, reason))?;
    let home = make_home(container, request, creation, record, warn)?;
    let invocation = request.invocation(ProgramStart::On(Fd::of(&listener)))?;
    launch(container, &invocation, home, &request.timings)
}

/// Records the container and makes its cgroup. Recorded first, so that a deleter finds the cgroup.
pub(crate) fn make_home<'c>(
    container: &'c Container,
    request: &CreateRequest,
    creation: &Creation,
    record: &mut Record,
    warn: &mut impl FnMut(&[Warning]),
) -> Result<Option<ChildCgroup<'c>>, Error> {
    let Some(mut home) = NewCgroup::find(container, &request.id, request.cgroups)? else {
        creation.entry.write(record)?;
        return Ok(None);
    };
    debug!("cgroup: {}", home.kept());
    record.cgroup = home.announced();
    creation.entry.write(record)?;
    let made = home.make(warn);
    if !home.is_made() {
        // An existing cgroup may belong to something else, and must not be removed.
        record.cgroup = None;
        creation.entry.write(record)?;
    }
    if made.is_err() {
        // Dropping the `Creation` would not find the cgroup if another command has deleted the record meanwhile.
        // Tolerated: `made` holds the error to report.
        cgroups::leave(record).unwrap_or(None);
    }
    made?;
    Ok(home.is_made().then_some(ChildCgroup::New(Box::new(home))))
}

/// Serves the child until it waits for `start`, and records it as the container's process.
fn park(
    launched: &mut Launched<'_>,
    container: &Container,
    console: &mut Console,
    request: &CreateRequest,
    creation: &Creation,
    record: &mut Record,
    interrupt: &Interrupt,
) -> Result<(), Error> {
    if waits_for_others(container, console) {
        record_on_its_way(launched, creation, record)?;
    }
    if launched.serve(container, record, console, interrupt)? == ChildReady::Failed {
        // Waiting returns the step that failed.
        launched.wait_for_exec(interrupt)?;
        return Err(Error::State("the container's process never waited"));
    }
    resctrl::join(container, launched.child.id(), record, &creation.entry)?;
    record.after_start = after_start(&launched.plan);
    record.process = Some(process(&launched.child)?);
    record.creating = None;
    creation.entry.write(record)?;
    write_pid(request.pid_file.as_deref(), launched.child.id())?;
    launched.go_on()?;
    // Until the child closes the channel, it dies if this process does.
    launched.next_request(interrupt)?;
    debug!("init: closing the pipe to signal completion: {} waits for start", launched.child.id());
    Ok(())
}

/// Returns whether other programs may delay the child or this process before the child is the container's process.
pub(crate) fn waits_for_others(container: &Container, console: &Console) -> bool {
    let hooks = &container.hooks;
    let hooks = [&hooks.prestart, &hooks.create_runtime, &hooks.create_container];
    hooks.iter().any(|hooks| !hooks.is_empty())
        || container.seccomp_listener.is_some()
        || matches!(console, Console::PeerSocket(_))
}

/// Records the child as the process of a container that is being created.
pub(crate) fn record_on_its_way(
    launched: &Launched<'_>,
    creation: &Creation,
    record: &mut Record,
) -> Result<(), Error> {
    record.creating = Some(process(&launched.child)?);
    creation.entry.write(record)
}

/// A container that is being created. Dropping it before it is committed removes the container.
pub(crate) struct Creation {
    pub(crate) entry: Entry,
    committed: bool,
}

impl Creation {
    pub(crate) fn begin(store: &Store, id: &str) -> Result<Self, Error> {
        Ok(Self { entry: store.reserve(id)?, committed: false })
    }

    pub(crate) fn commit(mut self) {
        self.committed = true;
    }

    /// Removes a container that had a process.
    pub(crate) fn end(self, record: &Record, warn: impl FnMut(&[Warning])) {
        let why = "the error that ended the creation is reported, and `delete --force` finishes this";
        tolerate(cgroups::kill_rest(record), why);
        tolerate(forget(&self.entry, record, warn), why);
        self.commit();
    }
}

impl Drop for Creation {
    fn drop(&mut self) {
        if !self.committed {
            let why = "the error that ended the creation is reported, and `delete --force` finishes this";
            tolerate(cgroups::remove(&self.entry), why);
        }
    }
}

pub(crate) fn process(child: &Child) -> Result<ProcessId, Error> {
    ProcessId::of(child.id().cast_signed())
}

pub(crate) fn write_pid(pid_file: Option<&Path>, pid: u32) -> Result<(), Error> {
    match pid_file {
        // The file has no newline, because engines parse all of it as a number.
        Some(path) => write_atomically(path, 0o666, pid.to_string().as_bytes())
            .map_err(|reason| Error::file("write", path, reason)),
        None => Ok(()),
    }
}

pub(crate) fn record(request: &CreateRequest, container: &Container) -> Record {
    Record {
        version: record::VERSION,
        id: request.id.clone(),
        bundle: request.bundle.clone(),
        config: request.config.clone(),
        rootfs: container.rootfs.clone(),
        created: record::now(),
        owner: geteuid().as_raw(),
        annotations: container.annotations.clone(),
        namespaces: husk_plan::apart(container).bits(),
        callers_keyring: request.keyring == Keyring::Callers,
        process: None,
        creating: None,
        ended: None,
        cgroup: None,
        shares_pids: !container
            .namespaces
            .iter()
            .any(|namespace| namespace.kind == NamespaceKind::Pid && namespace.path.is_none()),
        resctrl: None,
        streams: streams::ours(container),
        after_start: Vec::new(),
        poststart: RecordedHook::list(&container.hooks.poststart),
        poststop: RecordedHook::list(&container.hooks.poststop),
    }
}

fn after_start(plan: &Plan<'_>) -> Vec<RecordedStep> {
    let steps = plan.steps.iter().enumerate();
    let after = steps.skip_while(|(_, step)| !matches!(step, Step::Park { .. })).skip(1);
    let line = |(index, step): (usize, &Step<'_>)| {
        Some(RecordedStep::new(u32::try_from(index).ok()?, plan.origin(index), Line(step).to_string()))
    };
    after.filter_map(line).collect()
}
