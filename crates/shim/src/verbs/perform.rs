//! The child's side: performs the verb that the daemon has requested.

use super::{Checkpoint, Create, DESCRIPTOR, Exec, Outcome, PROGRAM, Verb, VerbRequest, images, mounts};
use crate::failure::{Code, Failure};
use husk_runtime::exec::{ExecProgram, ExecRequest, Paused, Wait};
use husk_runtime::restore::RestoreRequest;
use husk_runtime::{
    CgroupManager, CreateRequest, Environment, Error, Executed, Keyring, NewRoot, Notice, RunMode, Store,
    Timings, UpdateRequest, Warning, tolerate,
};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Performs the verb whose request is in the memfd, and writes the outcome there. Returns the exit code.
pub(crate) fn perform() -> u8 {
    // Returns at once, because the daemon has sealed itself. A program that is not sealed is executed again, so this
    // precedes the rest.
    if let Err(error) = husk_runtime::seal(Environment::Callers) {
        return give_up(&error);
    }
    let Some(memory) = husk_spawn::inherited(DESCRIPTOR).map(File::from) else {
        return give_up(&format!(
            "descriptor {DESCRIPTOR} is not open; only the shim itself uses this command"
        ));
    };
    let outcome = match take(&memory) {
        Ok(request) => carry_out(request),
        Err(error) => {
            let message = format!("the verb's request cannot be read: {error}");
            Outcome { result: Err(Failure::new(Code::InvalidArgument, message)), warnings: Vec::new() }
        }
    };
    match answer(&memory, &outcome) {
        Ok(()) => 0,
        Err(error) => give_up(&error),
    }
}

/// Performs a verb in this process.
pub(crate) fn carry_out(VerbRequest { root, systemd_cgroup, verb }: VerbRequest) -> Outcome {
    let cgroups = if systemd_cgroup { CgroupManager::Systemd } else { CgroupManager::ByPath };
    let mut performer =
        Performer { store: Store::new(root), cgroups, failed: verb.failed(), warnings: Vec::new() };
    Outcome { result: performer.perform(verb), warnings: performer.warnings }
}

/// Reports an error that cannot be reported through the memfd.
fn give_up(error: &dyn Display) -> u8 {
    let told = writeln!(io::stderr(), "{PROGRAM}: {error}");
    tolerate(told, "the exit status says it, too");
    1
}

/// Reads the request and empties the memfd, so that the request cannot be taken for the outcome.
fn take(memory: &File) -> io::Result<VerbRequest> {
    let mut bytes = vec![0; usize::try_from(memory.metadata()?.len()).unwrap_or(usize::MAX)];
    memory.read_exact_at(&mut bytes, 0)?;
    memory.set_len(0)?;
    Ok(serde_json::from_slice(&bytes)?)
}

fn answer(memory: &File, outcome: &Outcome) -> io::Result<()> {
    memory.write_all_at(&serde_json::to_vec(outcome)?, 0)
}

struct Performer {
    store: Store,
    cgroups: CgroupManager,
    /// The words that begin the verb's errors.
    failed: &'static str,
    warnings: Vec<String>,
}

impl Performer {
    fn perform(&mut self, verb: Verb) -> Result<Option<u32>, Failure> {
        match verb {
            Verb::Create(create) => {
                let request = self.create_request(&create);
                mounts::with_root(&create.bundle, &create.rootfs, || {
                    let warn = keep(&mut self.warnings);
                    let created = husk_runtime::create(&self.store, &request, warn);
                    created.map(Some).map_err(|error| explain(self.failed, error))
                })
            }
            Verb::Mount { bundle, rootfs } => mounts::with_root(&bundle, &rootfs, || Ok(None)),
            Verb::Restore(restore) => self.restore(&restore.create, restore.image, restore.work),
            Verb::Exec(exec) => self.exec(exec),
            Verb::Start { id } => {
                self.told(|store, warnings| husk_runtime::start(store, &id, keep(warnings)))
            }
            Verb::Delete { id, force, rootfs } => self.delete(&id, force, rootfs.as_deref()),
            Verb::Pause { id } => self.told(|store, _| husk_runtime::pause(store, &id)),
            Verb::Resume { id } => self.told(|store, _| husk_runtime::resume(store, &id)),
            Verb::Update { id, resources } => self.told(|store, warnings| {
                let (resources, more) = husk_runtime::resources(resources.as_bytes())?;
                keep(warnings)(&more);
                let update = UpdateRequest { resources, ..UpdateRequest::default() };
                husk_runtime::update(store, &id, &update, keep(warnings))
            }),
            Verb::Checkpoint(checkpoint) => self.checkpoint(checkpoint),
        }
    }

    /// Performs a verb that makes no process.
    fn told(
        &mut self,
        act: impl FnOnce(&Store, &mut Vec<String>) -> Result<(), Error>,
    ) -> Result<Option<u32>, Failure> {
        let acted = act(&self.store, &mut self.warnings);
        acted.map(|()| None).map_err(|error| explain(self.failed, error))
    }

    fn create_request(&self, create: &Create) -> CreateRequest {
        CreateRequest {
            id: create.id.clone(),
            bundle: create.bundle.clone(),
            config: None,
            pid_file: None,
            console_socket: create.console_socket.clone(),
            pidfd_socket: None,
            new_root: if create.no_pivot_root { NewRoot::Move } else { NewRoot::Pivot },
            keyring: if create.no_new_keyring { Keyring::Callers } else { Keyring::New },
            preserve_fds: 0,
            cgroups: self.cgroups,
            timings: Timings::default(),
        }
    }

    fn restore(
        &mut self,
        create: &Create,
        image: PathBuf,
        work: Option<PathBuf>,
    ) -> Result<Option<u32>, Failure> {
        let request = RestoreRequest {
            creation: self.create_request(create),
            settings: images::settings_of_restore(image, work),
            lsm_profile: None,
            lsm_mount_context: None,
        };
        let warn = keep(&mut self.warnings);
        let restored = husk_runtime::restore(&self.store, &request, RunMode::Detached, warn);
        restored.map(pid).map_err(|error| explain(self.failed, error))
    }

    fn exec(&mut self, Exec { id, process, console_socket }: Exec) -> Result<Option<u32>, Failure> {
        let request = ExecRequest {
            id,
            program: ExecProgram::Json(process.into_bytes()),
            pid_file: None,
            console_socket,
            pidfd_socket: None,
            preserve_fds: 0,
            wait: Wait::Detached,
            paused: Paused::Refused,
            cgroups: Vec::new(),
        };
        let executed = husk_runtime::exec(&self.store, &request, keep(&mut self.warnings));
        executed.map(pid).map_err(|error| explain(self.failed, error))
    }

    /// Deletes the container, and then unmounts its root file system. A container that is missing, for example because
    /// a checkpoint has ended it, is not an error.
    fn delete(&mut self, id: &str, force: bool, rootfs: Option<&Path>) -> Result<Option<u32>, Failure> {
        let deleted = self.told(|store, warnings| {
            let deleted = if force {
                husk_runtime::force_delete(store, id, keep(warnings))
            } else {
                husk_runtime::delete(store, id, keep(warnings))
            };
            match deleted {
                Err(Error::Missing) => Ok(()),
                deleted => deleted,
            }
        })?;
        rootfs.map_or(Ok(()), mounts::unmount_root)?;
        Ok(deleted)
    }

    fn checkpoint(&mut self, checkpoint: Checkpoint) -> Result<Option<u32>, Failure> {
        let (work, request) = images::checkpoint_request(checkpoint, self.failed)?;
        let saved = husk_runtime::checkpoint(&self.store, request, keep(&mut self.warnings));
        match work.finish(saved.is_err()) {
            None => saved.map(|()| None).map_err(|error| explain(self.failed, error)),
            Some(log) => saved.map(|()| None).map_err(|error| {
                let failure = explain(self.failed, error);
                Failure { message: format!("{} path= {}", failure.message, log.display()), ..failure }
            }),
        }
    }
}

fn pid(executed: Executed) -> Option<u32> {
    match executed {
        Executed::Detached(pid) => Some(pid),
        Executed::Ended(_) => None,
    }
}

/// Returns a function that keeps the warnings for the daemon's log.
fn keep(warnings: &mut Vec<String>) -> impl FnMut(&[Warning]) {
    |new| {
        let important = new.iter().filter(|warning| warning.notice == Notice::Always);
        warnings.extend(important.map(ToString::to_string));
    }
}

fn explain(failed: &str, error: Error) -> Failure {
    let failure = Failure::from(error);
    Failure { message: format!("{failed}: {}", failure.message), ..failure }
}
