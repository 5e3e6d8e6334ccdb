//! `restore`: restores a checkpointed container. CRIU creates its processes, and the first one is a child of this
//! process.
//!
//! CRIU mounts by path. It runs in a mount namespace of its own, so that none of its mounts is left on the host however
//! it ends. There the root file system is mounted on a directory of the container's store entry. The mount points are
//! made beforehand, by a process that resolves them as the process of a new container does ([`husk_plan::places`]).

use crate::cgroups::resctrl;
use crate::cgroups::{self, ChildCgroup};
use crate::child::hooks;
use crate::child::launch::{command, memory, perform, show_own};
use crate::child::serve::ChildReady;
use crate::child::supervise::supervise;
use crate::child::terminal::Console;
use crate::child::trees::id_maps;
use crate::criu::external::{enter_namespaces, mount_names};
use crate::criu::failure::{self, Log};
use crate::criu::protocol::{self, CriuRequest, option, pair};
use crate::criu::{self, rootless, streams};
use crate::criu::{Criu, CriuCommand, Directories, Notification, ProtobufMessage, Settings};
use crate::error::Error;
use crate::host::files;
use crate::host::null;
use crate::host::probe::probe;
use crate::interrupt::Interrupt;
use crate::sockets::notify;
use crate::store::Store;
use crate::store::process::ProcessId;
use crate::store::record::Record;
use crate::verbs::create::{self, Creation};
use crate::verbs::run::{Executed, RunMode, as_ended_by_signal, hold_signals};
use husk_bundle::container::NamespaceKind;
use husk_bundle::{Container, Warning};
use husk_plan::{CgroupEntry, Host};
use husk_script::sys::namespace::{self, setns, unshare};
use husk_script::sys::tolerate;
use husk_script::sys::{Errno, Fd};
use husk_spawn::{Adopted, Namespaces, Signal};
use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change, move_mount,
    open_tree,
};
use rustix::process::{chdir, fchdir};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;

const LOG: &str = "restore.log";
/// The file in which CRIU writes its statistics, beside the log.
const STATISTICS: &str = "stats-restore";

#[derive(Clone, Debug)]
pub struct RestoreRequest {
    /// The options that `create` has too.
    pub creation: create::CreateRequest,
    /// The options that `checkpoint` has too.
    pub settings: Settings,
    /// The LSM label that replaces that of the processes: `TYPE:NAME`.
    pub lsm_profile: Option<String>,
    /// The LSM label that replaces that of the mounts.
    pub lsm_mount_context: Option<String>,
}

/// Restores a container. In the foreground it behaves like [`run`](crate::run()). Calls `warn` with the parts of the
/// configuration that are carried out differently than written, and with hooks that failed after the container's end.
///
/// # Errors
///
/// If the ID is taken, or CRIU is missing or fails. Nothing is then left of the container.
pub fn restore(
    store: &Store,
    request: &RestoreRequest,
    how: RunMode,
    mut warn: impl FnMut(&[Warning]),
) -> Result<Executed, Error> {
    let timings = &request.creation.timings;
    timings.begin("load config.json");
    let (mut container, warnings) =
        husk_bundle::load(&request.creation.bundle, request.creation.config.as_deref())?;
    warn(&warnings);
    let (signals, interrupt) = hold_signals(how, &container)?;
    let socket = request.creation.console_socket.as_deref();
    let mut console = Console::of(socket, &container, how.stay(), &interrupt)?;
    if rootless::is_unprivileged() {
        rootless::check(&container, &request.settings)?;
    }
    timings.begin("check the images");
    // Checks the images before anything of the container is made.
    Directories::open(&request.settings)?.check_images([LOG, STATISTICS])?;
    timings.begin("ask CRIU for its version");
    criu::check()?;
    timings.begin("reserve the name");
    let creation = Creation::begin(store, &request.creation.id)?;
    let mut record = create::record(&request.creation, &container);
    timings.begin("make the cgroup");
    let home = notify::offer(&creation.entry, &mut container, &mut warn)
        .and_then(|()| create::make_home(&container, &request.creation, &creation, &mut record, &mut warn));
    let home = home.map_err(|error| creation.entry.explain(error))?;
    let mut restoring = Restoring {
        request,
        container: &container,
        creation: &creation,
        record: &mut record,
        home,
        interrupt: &interrupt,
    };
    let restored = restoring.bring_back(&mut console);
    warn(&restoring.home.as_mut().map(ChildCgroup::take_warnings).unwrap_or_default());
    let restored = restored.and_then(|process| creation.entry.release().map(|()| process));
    let ended = restored.and_then(|mut process| {
        let ended = match &signals {
            None => Ok(Executed::Detached(process.id())),
            Some(signals) => supervise(&mut process, signals, console.relay()).map(Executed::Ended),
        };
        ended.or_else(|error| end(process).and(Err(error.into())))
    });
    let ended = ended.map_err(|error| creation.entry.explain(error));
    match (&ended, how) {
        (Ok(_), RunMode::Detached) => creation.commit(),
        _ => {
            // From here on another signal ends a detached `restore`, even while hooks run.
            drop(interrupt);
            creation.end(&record, warn);
        }
    }
    if how == RunMode::Detached { ended } else { as_ended_by_signal(ended) }
}

struct Restoring<'c, 'r> {
    request: &'r RestoreRequest,
    container: &'c Container,
    creation: &'r Creation,
    record: &'r mut Record,
    home: Option<ChildCgroup<'c>>,
    interrupt: &'r Interrupt,
}

impl Restoring<'_, '_> {
    fn bring_back(&mut self, console: &mut Console) -> Result<Adopted, Error> {
        let settings = &self.request.settings;
        let timings = &self.request.creation.timings;
        timings.begin("look at the machine");
        let mut options = criu::options(settings, LOG, &self.record.annotations)?;
        let mut host = probe(self.container);
        // CRIU's standard streams replace the container's pipes.
        null::shield(&host)?;
        if let Some(home) = &self.home {
            show_own(&mut host, home);
        }
        timings.begin("make the mount points");
        self.make_places(&host)?;
        let root = self.creation.entry.make_root()?;
        options.flag(option::EVASIVE_DEVICES, true).flag(option::RST_SIBLING, true);
        options.bytes(option::ROOT, root.as_os_str().as_bytes());
        if let Some(profile) = &self.request.lsm_profile {
            options.bytes(option::LSM_PROFILE, profile);
        }
        if let Some(context) = &self.request.lsm_mount_context {
            options.bytes(option::LSM_MOUNT_CONTEXT, context);
        }
        mount_names(self.container, &host.cgroup, &mut options)?;
        timings.begin("start CRIU");
        let start = CriuCommand::new()?.in_cgroup(self.home.as_ref().and_then(ChildCgroup::directory))?;
        let mut start = if matches!(console, Console::Absent) { start } else { start.silent() };
        let is_rootless = rootless::is_unprivileged();
        let rest = is_rootless.then(|| rootless::without_shared(self.container));
        let namespaces =
            enter_namespaces(rest.as_ref().unwrap_or(self.container), CriuCommand::FIRST_FREE, &mut options)?;
        for (number, namespace) in (CriuCommand::FIRST_FREE..).zip(namespaces) {
            start.command.fd(number, namespace);
        }
        // The directories are opened in the new mount namespace too, because CRIU mounts in the one in
        // which it works.
        let (directories, criu) = if is_rootless {
            rootless::renew(&mut start, self.container, &root, &settings.images)?;
            (Directories::open(settings)?, start.start()?)
        } else {
            apart(self.container, &root, || Ok((Directories::open(settings)?, start.start()?)))?
        };
        directories.clear([LOG, STATISTICS])?;
        directories.tell(&mut options, is_rootless);
        if matches!(console, Console::Absent) {
            streams::replace(&directories.images, &mut options)?;
        }
        self.settle(&criu, &mut options)?;

        timings.begin("write it down");
        // If this process is killed, a deleter finds CRIU by this record.
        self.record.creating = Some(ProcessId::of(criu.pid().cast_signed())?);
        self.creation.entry.write(self.record)?;
        let mut restored = None;
        let request = protocol::request(CriuRequest::Restore, Some(&options));
        let interrupt = self.interrupt;
        timings.begin("CRIU: start");
        let served = criu.serve(Some(interrupt), CriuRequest::Restore, &request, |notification| {
            let next = next_phase(&notification.script);
            timings.begin("answer CRIU");
            let heard = self.hear(notification, console, &mut restored);
            timings.begin(next);
            heard
        });
        timings.end();
        tolerate(fs::remove_dir(&root), "it is removed with the container");
        match (served, restored) {
            (Ok(_), Some(process)) => {
                match create::write_pid(self.request.creation.pid_file.as_deref(), process.id()) {
                    Ok(()) => Ok(process),
                    Err(error) => end(process).and(Err(error)),
                }
            }
            (Ok(_), None) => Err(Error::Criu("criu failed: it restored no process".to_owned())),
            (Err(error), process) => {
                process.map_or(Ok(()), end)?;
                if matches!(error, Error::Interrupted(_)) {
                    // CRIU was killed, and the processes that it has created wait for it.
                    cgroups::kill_all(self.record)?;
                    return Err(error);
                }
                let directory = settings.work.as_deref().unwrap_or(&settings.images);
                let shares_pids = self.record.shares_pids;
                let log = Log { directories: &directories, directory, name: LOG, shares_pids };
                Err(failure::explain(error, &log))
            }
        }
    }

    /// Makes the mount points that are missing.
    fn make_places(&mut self, host: &Host) -> Result<(), Error> {
        let mut places = {
            let plan = husk_plan::places(self.container, host, memory())?;
            let mut command = command(&plan);
            if plan.namespaces.contains(Namespaces::USER) {
                command.uid_map(&id_maps(&self.container.uid_mappings));
                command.gid_map(&id_maps(&self.container.gid_mappings));
            }
            perform(&command, plan)?
        };
        match places.serve(self.container, self.record, &mut Console::Absent, self.interrupt)? {
            ChildReady::Ready => Ok(()),
            // Waiting returns the step that failed.
            ChildReady::Failed => places.wait_for_exec(self.interrupt),
        }
    }

    /// Moves CRIU, and so the processes that it will create, into the cgroup, and tells CRIU the cgroup's paths.
    fn settle(&mut self, criu: &Criu, options: &mut ProtobufMessage) -> Result<(), Error> {
        if let Some(home) = self.home.as_mut().filter(|home| home.entry(false) != CgroupEntry::Born) {
            home.join(criu.pid(), self.record)?;
        }
        let path = format!("/proc/{}/cgroup", criu.pid());
        let text = files::read_procfs(&path).map_err(|reason| Error::file("read", path, reason))?;
        for line in text.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            for controller in controllers.split(',') {
                options.message(option::CG_ROOT, &pair(controller, path));
            }
        }
        Ok(())
    }

    /// Does what is due at the point that CRIU reports.
    fn hear(
        &mut self,
        notification: Notification,
        console: &mut Console,
        restored: &mut Option<Adopted>,
    ) -> Result<(), Error> {
        let nobody =
            || Error::Criu("criu failed: it did not report the pid of the restored process".to_owned());
        match notification.script.as_str() {
            "setup-namespaces" => {
                let pid = notification.pid.ok_or_else(nobody)?.unsigned_abs();
                if is_new(self.container, NamespaceKind::Network) && !rootless::is_unprivileged() {
                    loopback_up(pid)?;
                }
                hooks::before_pivot(self.container, self.record, pid, self.interrupt)
            }
            // All processes exist, and none of them runs yet.
            "post-restore" => {
                let process = Adopted::new(notification.pid.ok_or_else(nobody)?)?;
                let pid = process.id();
                *restored = Some(process);
                resctrl::join(self.container, pid, self.record, &self.creation.entry)?;
                self.home.as_ref().map_or(Ok(()), ChildCgroup::limit)?;
                self.record.process = Some(ProcessId::of(pid.cast_signed())?);
                self.record.creating = None;
                // CRIU creates a time namespace in any case, so that the container's clocks continue where they
                // stopped.
                if is_apart(pid, "time") {
                    self.record.namespaces |= Namespaces::TIME.bits();
                }
                self.creation.entry.write(self.record)
            }
            "orphan-pts-master" => match notification.fd {
                Some(master) => console.receive(master, self.interrupt),
                None => Err(Error::Criu("criu failed: it did not send the terminal".to_owned())),
            },
            _ => Ok(()),
        }
    }
}

/// Returns what CRIU does after it has sent a notification.
fn next_phase(script: &str) -> &'static str {
    match script {
        "pre-restore" => "CRIU: make the first process",
        "setup-namespaces" => "CRIU: mount, and make namespaces",
        "post-setup-namespaces" => "CRIU: restore the other processes, files and memory",
        "post-restore" => "CRIU: unlock the network",
        "network-unlock" => "CRIU: take hold of the processes, restore their credentials",
        "pre-resume" => "CRIU: let the processes go on",
        _ => "CRIU: go on",
    }
}

/// Runs `act` in a thread with a mount namespace of its own, in which the root file system is mounted alone on `root`.
/// No other process sees that mount. The namespace ends with the thread and the processes that it starts.
fn apart<T: Send>(
    container: &Container,
    root: &Path,
    act: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    let mount_root = || {
        unshare(Namespaces::MOUNT)?;
        // As in the container: mounts propagate from the host, but not to it.
        mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
        if let Some((directory, options)) = container.overlay() {
            // A mount namespace comes with a working directory of its own.
            let (here, options) =
                (open(".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?, CString::new(options));
            chdir(&directory)?;
            let options = options.map_err(|_| Errno::INVAL)?;
            mount("overlay", root, "overlay", MountFlags::empty(), options.as_c_str())?;
            return fchdir(here);
        }
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, &container.rootfs, flags | OpenTreeFlags::AT_RECURSIVE)?;
        move_mount(&tree, "", CWD, root, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
    };
    let failed = |errno| Error::kernel("mount the root file system for CRIU", errno);
    let act = || mount_root().map_err(failed).and_then(|()| act());
    thread::scope(|scope| scope.spawn(act).join())
        .unwrap_or_else(|_| Err(Error::State("a thread of ours has failed")))
}

/// Returns whether a process is in another namespace of this kind than this process.
fn is_apart(pid: u32, kind: &str) -> bool {
    let inode =
        |process: &str| fs::metadata(format!("/proc/{process}/ns/{kind}")).map(|found| found.ino()).ok();
    inode(&pid.to_string()) != inode("self")
}

/// Brings the loopback device up before sockets that listen there are restored. CRIU does not do it.
fn loopback_up(pid: u32) -> Result<(), Error> {
    let failed = |errno| Error::kernel("set the loopback device up", errno);
    let namespace = fs::File::open(format!("/proc/{pid}/ns/net"));
    let namespace = namespace.map_err(|reason| Error::kernel("open the network namespace", reason))?;
    let there = move || setns(Fd::of(&namespace), Namespaces::NET).and_then(|()| namespace::loopback_up());
    thread::spawn(there).join().unwrap_or(Err(Errno::IO)).map_err(failed)
}

fn is_new(container: &Container, kind: NamespaceKind) -> bool {
    container.namespaces.iter().any(|namespace| namespace.kind == kind && namespace.path.is_none())
}

/// Kills a process whose container could not be restored.
fn end(mut process: Adopted) -> Result<(), Error> {
    process.signal(Signal::KILL)?;
    process.wait()?;
    Ok(())
}
