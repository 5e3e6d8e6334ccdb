//! `state` and `list`: compute the state of containers, which is never stored.

use crate::cgroups;
use crate::error::Error;
use crate::store::process::Stage;
use crate::store::record::Record;
use crate::store::{Entry, Store};
use husk_plan::hooks::OCI_VERSION;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::PathBuf;

/// The status of a container, as the specification defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It is being created.
    Creating,
    /// Its process waits for `start`.
    Created,
    /// Its program runs.
    Running,
    /// Its processes are frozen.
    Paused,
    /// Its process has ended.
    Stopped,
}

impl Status {
    /// Returns the specification's word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Created => "created",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
        }
    }
}

impl Display for Status {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The state of a container, with runc's field names in runc's order.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The version of the specification that husk implements.
    pub oci_version: &'static str,
    pub id: String,
    /// The pid of its process while that is alive, otherwise 0.
    pub pid: i32,
    pub status: Status,
    pub bundle: PathBuf,
    pub rootfs: PathBuf,
    pub created: String,
    /// The annotations of its configuration.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The name of the user who created it, or `#` and the uid. Empty except in lists.
    pub owner: String,
}

/// Returns the state of a container.
///
/// # Errors
///
/// If this container does not exist.
pub fn state(store: &Store, id: &str) -> Result<State, Error> {
    // Like runc, which names the owner in lists only.
    read(store, id).map(|(state, _)| state)
}

fn read(store: &Store, id: &str) -> Result<(State, u32), Error> {
    let entry = store.entry(id)?;
    let record = entry.read()?;
    let status = of(&entry, &record)?;
    let alive =
        record.process.filter(|_| matches!(status, Status::Created | Status::Running | Status::Paused));
    let state = State {
        oci_version: OCI_VERSION,
        id: record.id,
        pid: alive.map_or(0, |process| process.pid),
        status,
        bundle: record.bundle,
        rootfs: record.rootfs,
        created: record.created,
        annotations: record.annotations,
        owner: String::new(),
    };
    Ok((state, record.owner))
}

/// A container in a list, or its id and the reason why it cannot be read.
pub type Listed = Result<State, (String, Error)>;

/// Returns the state of every container, with the name of its owner. A container that cannot be read is an error of
/// its own and does not hide the others.
///
/// # Errors
///
/// If the store cannot be read.
pub fn list(store: &Store) -> Result<Vec<Listed>, Error> {
    let users = fs::read("/etc/passwd").unwrap_or_default();
    let one = |id: String| match read(store, &id) {
        Ok((state, owner)) => Ok(State { owner: user_name(&users, owner), ..state }),
        Err(error) => Err((id, error)),
    };
    Ok(store.ids()?.into_iter().map(one).collect())
}

/// Returns the name of a user id in a list, or `#` and the id.
fn user_name(users: &[u8], uid: u32) -> String {
    husk_plan::users::name(users, uid).unwrap_or_else(|| format!("#{uid}"))
}

/// Computes the status of a container.
///
/// # Errors
///
/// If the state of its process cannot be read.
pub(crate) fn of(entry: &Entry, record: &Record) -> Result<Status, Error> {
    let Some(process) = record.process else { return Ok(Status::Creating) };
    let stage = process.stage()?;
    Ok(match stage {
        Stage::Ended { .. } => Status::Stopped,
        _ if cgroups::is_frozen(record) => Status::Paused,
        // The socket alone proves nothing: a `start` that was killed may have left it.
        Stage::BeforeExec if entry.has_socket() => Status::Created,
        _ => Status::Running,
    })
}

#[cfg(test)]
mod tests {
    use super::user_name;

    #[test]
    fn owner_is_shown_by_name_or_number() {
        let users = b"root:x:0:0::/root:/bin/sh\n\xff:x:1000:1000::/:\nwho:x:1000:1000::/:/bin/sh\n";
        assert_eq!(user_name(users, 1000), "who");
        assert_eq!(user_name(users, 1001), "#1001");
        assert_eq!(user_name(b"broken\n", 0), "#0");
    }
}
