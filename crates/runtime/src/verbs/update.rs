//! `update`: changes the limits of a container.
//!
//! Limits that are not named stay as they are. Device rules are never changed, because a hook may have allowed more
//! devices since.

use crate::cgroups;
use crate::cgroups::resctrl;
use crate::error::Error;
use crate::inspect::state::{self as status, Status};
use crate::store::Store;
use husk_bundle::Warning;
use husk_cgroup::Resources;

/// The changes that `update` makes.
#[derive(Clone, Debug, Default)]
pub struct UpdateRequest {
    pub resources: Resources,
    /// The share of the L3 cache, in the format of resctrl.
    pub l3_cache_schema: Option<String>,
    /// The share of the memory bandwidth, in the format of resctrl.
    pub memory_bandwidth_schema: Option<String>,
}

/// Parses resources in the format of `linux.resources`.
///
/// # Errors
///
/// If they are invalid.
pub fn resources(bytes: &[u8]) -> Result<(Resources, Vec<Warning>), Error> {
    Ok(husk_bundle::resources::parse(bytes)?)
}

/// Changes the limits of a container. Calls `warn` with those that have no effect on this host.
///
/// # Errors
///
/// If the container is not running, or at the first limit that cannot be set. Earlier ones stay set.
pub fn update(
    store: &Store,
    id: &str,
    update: &UpdateRequest,
    warn: impl FnOnce(&[Warning]),
) -> Result<(), Error> {
    let entry = store.entry(id)?;
    entry.lock()?;
    let record = entry.read()?;
    if matches!(status::of(&entry, &record)?, Status::Stopped | Status::Creating) {
        return Err(Error::State("container not running"));
    }
    let schemata = [&update.l3_cache_schema, &update.memory_bandwidth_schema];
    resctrl::update(&record, schemata.map(Option::as_deref))?;
    warn(&cgroups::update(&record, &update.resources)?);
    Ok(())
}
