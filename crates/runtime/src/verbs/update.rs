//! `update`: other limits for a container that is there.
//!
//! What is not named stays as it is. Device rules are never touched: a hook may have allowed more since.

use crate::cgroups;
use crate::cgroups::resctrl;
use crate::error::Error;
use crate::inspect::state::{self as status, Status};
use crate::store::Store;
use husk_bundle::Warning;
use husk_cgroup::Resources;

/// What is to be different.
#[derive(Clone, Debug, Default)]
pub struct Update {
    /// Limits.
    pub resources: Resources,
    /// The share of the L3 cache, as resctrl has it.
    pub l3_cache_schema: Option<String>,
    /// The share of the way to memory.
    pub memory_bandwidth_schema: Option<String>,
}

/// Reads resources as `linux.resources` has them, by themselves.
///
/// # Errors
///
/// If they make no sense.
pub fn resources(bytes: &[u8]) -> Result<(Resources, Vec<Warning>), Error> {
    Ok(husk_bundle::resources::parse(bytes)?)
}

/// Gives a container other limits. `warn` hears of those that have no effect here.
///
/// # Errors
///
/// If it has ended, or the first limit that cannot be set; those before it are.
pub fn update(store: &Store, id: &str, update: &Update, warn: impl FnOnce(&[Warning])) -> Result<(), Error> {
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
