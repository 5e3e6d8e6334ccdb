//! The requests to checkpoint and restore, and the work directory of a checkpoint.

use super::Checkpoint;
use crate::failure::{Code, Failure};
use husk_runtime::checkpoint::{CheckpointRequest, CheckpointScope};
use husk_runtime::{CgroupMode, Settings, Switch, Timings, tolerate};
use std::fs;
use std::path::{Path, PathBuf};

pub(super) fn settings_of_restore(images: PathBuf, work: Option<PathBuf>) -> Settings {
    Settings { images, work, ..Settings::default() }
}

/// The directory where CRIU works.
pub(super) enum WorkDirectory {
    /// The client has chosen it, and keeps it.
    Clients,
    /// It is removed at the end.
    Ours(PathBuf),
}

impl WorkDirectory {
    /// Removes the directory unless it is the client's. After a failure the log is kept in the bundle, which is the
    /// current directory, and its path is returned. containerd-shim-runc-v2 uses the same name.
    pub(super) fn finish(self, has_failed: bool) -> Option<PathBuf> {
        let Self::Ours(directory) = self else { return None };
        let log = directory.with_file_name("criu-dump.log");
        let kept = has_failed && fs::copy(directory.join("dump.log"), &log).is_ok();
        tolerate(fs::remove_dir_all(directory), "it is in the bundle, which containerd removes");
        kept.then_some(log)
    }
}

/// Converts a request to the runtime's. `failed` begins the errors.
pub(super) fn checkpoint_request(
    checkpoint: Checkpoint,
    failed: &str,
) -> Result<(WorkDirectory, CheckpointRequest), Failure> {
    let invalid = |reason: &str| Failure::new(Code::InvalidArgument, format!("{failed}: {reason}"));
    if let Some(other) = checkpoint.empty_namespaces.iter().find(|kind| *kind != "network") {
        return Err(invalid(&format!("a checkpoint without the {other} namespace is not supported")));
    }
    let cgroups = CgroupMode::named(&checkpoint.cgroups_mode)
        .ok_or_else(|| invalid(&format!("cgroups mode {:?} is unknown", checkpoint.cgroups_mode)))?;
    let switches = [
        (!checkpoint.exit, Switch::LeaveRunning),
        (checkpoint.open_tcp, Switch::TcpEstablished),
        (checkpoint.external_unix_sockets, Switch::ExtUnixSk),
        (checkpoint.terminal, Switch::ShellJob),
        (checkpoint.file_locks, Switch::FileLocks),
    ];
    let (directory, work) = match checkpoint.work {
        Some(work) => (WorkDirectory::Clients, work),
        None => {
            let work =
                std::path::absolute(Path::new("criu-work")).map_err(|error| invalid(&error.to_string()))?;
            (WorkDirectory::Ours(work.clone()), work)
        }
    };
    let settings = Settings {
        images: checkpoint.image,
        work: Some(work),
        switches: switches.into_iter().filter(|(is_on, _)| *is_on).map(|(_, switch)| switch).collect(),
        configuration: None,
        cgroups,
    };
    let request = CheckpointRequest {
        settings,
        scope: CheckpointScope::Whole,
        parent: checkpoint.parent,
        page_server: None,
        status_fd: None,
        timings: Timings::default(),
        id: checkpoint.id,
    };
    Ok((directory, request))
}

#[cfg(test)]
mod tests {
    use super::checkpoint_request;
    use crate::failure::Code;
    use crate::verbs::Checkpoint;
    use husk_runtime::{CgroupMode, Switch};

    #[test]
    fn container_keeps_running_unless_exit_is_requested() {
        let switches = |exit| {
            let checkpoint = Checkpoint { exit, terminal: true, ..Checkpoint::default() };
            let (_, request) = checkpoint_request(checkpoint, "failed").ok().unwrap();
            request.settings.switches
        };
        assert_eq!(switches(false), [Switch::LeaveRunning, Switch::ShellJob]);
        assert_eq!(switches(true), [Switch::ShellJob]);
    }

    #[test]
    fn unsupported_options_are_refused() {
        let network = vec!["network".to_owned()];
        let good =
            Checkpoint { cgroups_mode: "soft".into(), empty_namespaces: network, ..Checkpoint::default() };
        let (_, request) = checkpoint_request(good, "failed").ok().unwrap();
        assert_eq!(request.settings.cgroups, CgroupMode::Soft);
        let mode = Checkpoint { cgroups_mode: "loose".into(), ..Checkpoint::default() };
        let namespace = Checkpoint { empty_namespaces: vec!["ipc".into()], ..Checkpoint::default() };
        for bad in [mode, namespace] {
            assert_eq!(checkpoint_request(bad, "failed").err().unwrap().code, Code::InvalidArgument);
        }
    }
}
