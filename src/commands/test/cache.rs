//! `husk test --cache`: the store of remembered results.

use super::options::Test;
use crate::session::Session;
use anyhow::Result;
use husk_hermetic::{Cache, Mode};

/// Opens the store, unless the results of this run cannot be remembered.
pub(super) fn open(test: &Test, session: &Session<'_>) -> Result<Option<Cache>> {
    let Some(directory) = &test.tests.cache else { return Ok(None) };
    if test.rare.shell {
        session.log.note(&"not cached: a shell is not a test");
        return Ok(None);
    }
    if test.rare.plan {
        return Ok(None);
    }
    let mode = if test.tests.cache_verify { Mode::Verify } else { Mode::Use };
    Ok(Some(Cache::open(directory, mode, test.rare.strict)?))
}

/// Writes new results, and tells what could not be remembered.
pub(super) fn finish(cache: Option<&mut Cache>, session: &Session<'_>) {
    cache.map(Cache::finish).unwrap_or_default().iter().for_each(|note| session.log.note(note));
}
