//! The runtime's verbs, each in a short-lived process of its own.
//!
//! A verb may block: a hook may run for long, and a file system may hang. It also makes processes that share its memory
//! until they execute their program, inside the container's cgroup and namespaces. So the daemon performs none itself.
//! It executes its own binary again with the argument [`ARGUMENT`], and a memfd as descriptor [`DESCRIPTOR`]. The memfd
//! holds the request as JSON. The verb's process replaces it with the [`Outcome`] and exits. The daemon reads the
//! outcome once it has reaped the process.
//!
//! # When the daemon dies
//!
//! The kernel then sends SIGTERM to the process of a verb that makes something: `create`, `mount`, `restore` and `exec`.
//! No process would read the streams of such a container. While the file systems are mounted, the signal ends the
//! process at once. From there on husk-runtime handles the signal: it removes all that it has made. The other verbs
//! finish.
//!
//! `containerd-shim-husk-v1 delete`, which containerd runs when it loses the connection, removes the rest. It performs
//! `delete` with `force`: husk-runtime ends a creator that still runs, and then removes the container, its processes and
//! its cgroup. Afterwards the root file system is unmounted, with all mounts that an interrupted `create` has made.

mod images;
mod launch;
mod mounts;
mod perform;

pub(crate) use launch::{Running, Streams, launch};
pub(crate) use perform::{carry_out, perform};

use crate::failure::Failure;
use crate::wire::Mount;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The name of this program, as the first argument of a verb's process.
const PROGRAM: &str = "containerd-shim-husk-v1";

/// The only argument of a verb's process.
pub(crate) const ARGUMENT: &str = "verb";

/// The number of the memfd in the verb's process.
const DESCRIPTOR: i32 = 3;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VerbRequest {
    /// The state directory of the containers: `/run/containerd/runc/NAMESPACE`.
    pub(crate) root: PathBuf,
    /// Whether systemd creates the cgroups.
    pub(crate) systemd_cgroup: bool,
    pub(crate) verb: Verb,
}

/// A verb and its arguments. All paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Verb {
    Create(Create),
    /// Mounts the root file system of a container that is restored later.
    Mount {
        bundle: PathBuf,
        rootfs: Vec<Mount>,
    },
    Restore(Restore),
    Start {
        id: String,
    },
    Exec(Exec),
    Delete {
        id: String,
        /// Whether a container that runs is killed first.
        force: bool,
        /// The directory to unmount everything from, once the container is deleted.
        rootfs: Option<PathBuf>,
    },
    Pause {
        id: String,
    },
    Resume {
        id: String,
    },
    Update {
        id: String,
        /// An object in the format of `linux.resources`.
        resources: String,
    },
    Checkpoint(Checkpoint),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Create {
    pub(crate) id: String,
    pub(crate) bundle: PathBuf,
    /// The mounts that make up the directory `rootfs` of the bundle. Without any, the directory is not touched.
    pub(crate) rootfs: Vec<Mount>,
    /// The listening socket that receives the terminal.
    pub(crate) console_socket: Option<PathBuf>,
    pub(crate) no_pivot_root: bool,
    pub(crate) no_new_keyring: bool,
}

/// Creates a container from a checkpoint, with the root file system that `Mount` has mounted. CRIU finds images of
/// earlier checkpoints by itself: the images link to them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Restore {
    pub(crate) create: Create,
    /// The directory of the images.
    pub(crate) image: PathBuf,
    /// The directory for CRIU's log and temporary files; `None` for that of the images.
    pub(crate) work: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Exec {
    /// The ID of the container.
    pub(crate) id: String,
    /// An object in the format of `process` in config.json.
    pub(crate) process: String,
    /// The listening socket that receives the terminal.
    pub(crate) console_socket: Option<PathBuf>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    pub(crate) id: String,
    /// The directory of the images.
    pub(crate) image: PathBuf,
    /// The directory for CRIU's log and temporary files. `None` for one that is removed afterwards.
    pub(crate) work: Option<PathBuf>,
    /// Images of an earlier checkpoint, relative to `image`.
    pub(crate) parent: Option<PathBuf>,
    /// Whether the container ends.
    pub(crate) exit: bool,
    pub(crate) open_tcp: bool,
    pub(crate) external_unix_sockets: bool,
    pub(crate) terminal: bool,
    pub(crate) file_locks: bool,
    /// Namespaces whose content is not saved. The network is never saved.
    pub(crate) empty_namespaces: Vec<String>,
    /// `soft`, `full`, `strict` or `ignore`; empty for CRIU's default.
    pub(crate) cgroups_mode: String,
}

/// The report of a verb's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The pid of the process that the verb has made, if it makes one.
    pub(crate) result: Result<Option<u32>, Failure>,
    /// The parts of the configuration that husk carries out differently than written, and hooks that failed.
    pub(crate) warnings: Vec<String>,
}

impl Verb {
    /// Returns the words that begin the verb's errors. They are those of containerd-shim-runc-v2.
    fn failed(&self) -> &'static str {
        match self {
            Self::Create(_) | Self::Mount { .. } => "OCI runtime create failed",
            Self::Restore(_) => "OCI runtime restore failed",
            Self::Start { .. } => "OCI runtime start failed",
            Self::Exec(_) => "OCI runtime exec failed",
            Self::Delete { .. } => "failed to delete task",
            Self::Pause { .. } => "OCI runtime pause failed",
            Self::Resume { .. } => "OCI runtime resume failed",
            Self::Update { .. } => "OCI runtime update failed",
            Self::Checkpoint(_) => "checkpoint failed",
        }
    }

    /// Whether the kernel ends the verb's process when the daemon dies. See the module documentation.
    fn ends_with_daemon(&self) -> bool {
        matches!(self, Self::Create(_) | Self::Mount { .. } | Self::Restore(_) | Self::Exec(_))
    }
}

#[cfg(test)]
mod tests {
    use super::{Checkpoint, Create, Exec, Outcome, Restore, Verb, VerbRequest};
    use crate::failure::{Code, Failure};
    use crate::wire::Mount;

    fn verbs() -> Vec<Verb> {
        let id = || "web-1".to_owned();
        let create = Create {
            id: id(),
            bundle: "/run/bundle".into(),
            rootfs: vec![Mount { r#type: "overlay".into(), options: vec!["ro".into()], ..Mount::default() }],
            ..Create::default()
        };
        vec![
            Verb::Create(create.clone()),
            Verb::Mount { bundle: "/bundle".into(), rootfs: create.rootfs.clone() },
            Verb::Restore(Restore { create, image: "/image".into(), work: None }),
            Verb::Start { id: id() },
            Verb::Exec(Exec { id: id(), process: "{\"args\":[\"\u{1}\"]}".into(), console_socket: None }),
            Verb::Delete { id: id(), force: true, rootfs: Some("/rootfs".into()) },
            Verb::Pause { id: id() },
            Verb::Resume { id: id() },
            Verb::Update { id: id(), resources: "{}".into() },
            Verb::Checkpoint(Checkpoint::default()),
        ]
    }

    #[test]
    fn request_survives_its_encoding() {
        for verb in verbs() {
            let request = VerbRequest { root: "/run/root".into(), systemd_cgroup: true, verb };
            let bytes = serde_json::to_vec(&request).unwrap();
            assert_eq!(serde_json::from_slice::<VerbRequest>(&bytes).unwrap(), request);
            // An outcome that the verb did not write is not mistaken for one.
            assert!(serde_json::from_slice::<Outcome>(&bytes).is_err());
        }
    }

    #[test]
    fn outcome_survives_its_encoding() {
        for result in [Ok(None), Ok(Some(7)), Err(Failure::new(Code::NotFound, "container does not exist"))] {
            let outcome = Outcome { result, warnings: vec!["linux.x: ignored".into()] };
            let bytes = serde_json::to_vec(&outcome).unwrap();
            assert_eq!(serde_json::from_slice::<Outcome>(&bytes).unwrap(), outcome);
        }
    }
}
