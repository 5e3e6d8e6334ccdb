//! The answer of the task service's `Stats`: a container's resource usage in the messages of containerd's library for
//! cgroups.
//!
//! Engines ask every few seconds for every container. So only the record and the files of the messages' fields are
//! read, and no mounts or statuses.

#[cfg(test)]
mod tests;
mod v1;
mod v2;

use crate::failure::{Code, Failure};
use crate::wire::Any;
use husk_cgroup::stats::{Files, RdmaEntry as Counted};
use husk_cgroup::{CgroupPaths, Error};
use husk_runtime::Store;
use prost::Message;

/// `RdmaStat`, which both versions have.
#[derive(Clone, PartialEq, Message)]
struct Rdma {
    #[prost(message, repeated, tag = "1")]
    current: Vec<RdmaEntry>,
    #[prost(message, repeated, tag = "2")]
    limit: Vec<RdmaEntry>,
}

/// A device's numbers; `u32::MAX` means unlimited.
#[derive(Clone, PartialEq, Eq, Message)]
struct RdmaEntry {
    #[prost(string, tag = "1")]
    device: String,
    #[prost(uint32, tag = "2")]
    hca_handles: u32,
    #[prost(uint32, tag = "3")]
    hca_objects: u32,
}

impl Rdma {
    fn read(files: &Files<'_>) -> Result<Self, Error> {
        let entries = |name: &str| {
            let entries = files.rdma(name)?.into_iter();
            let entry =
                |Counted { device, hca_handles, hca_objects }| RdmaEntry { device, hca_handles, hca_objects };
            Ok::<_, Error>(entries.map(entry).collect())
        };
        Ok(Self { current: entries("rdma.current")?, limit: entries("rdma.max")? })
    }
}

/// Returns the container's metrics, in the message of the host's cgroup version.
///
/// # Errors
///
/// `NotFound` if the container or its cgroup does not exist.
pub(crate) fn metrics(store: &Store, id: &str) -> Result<Any, Failure> {
    let paths = husk_runtime::cgroup_paths(store, id).map_err(|error| {
        let code = if matches!(error, husk_runtime::Error::Missing) { Code::NotFound } else { Code::Unknown };
        Failure::new(code, error.to_string())
    })?;
    let metrics = read(&paths).map_err(|error| Failure::new(Code::Unknown, error.to_string()))?;
    metrics.ok_or_else(|| Failure::new(Code::NotFound, format!("container {id}: cgroup does not exist")))
}

/// Reads the metrics of these cgroups; `None` if they are gone.
fn read(paths: &CgroupPaths) -> Result<Option<Any>, Error> {
    // With trees of both versions, containerd reports version 1 too.
    if paths.directories().keys().any(|controller| !controller.is_empty()) {
        Ok(v1::read(paths)?.map(|metrics| Any::new(v1::TYPE, &metrics)))
    } else {
        Ok(v2::read(paths)?.map(|metrics| Any::new(v2::TYPE, &metrics)))
    }
}
