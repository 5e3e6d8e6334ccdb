//! `run`: a container from its beginning to its end, in the foreground.

use crate::create::{self, Creation, Request, explain, launch};
use crate::error::Error;
use crate::store::Store;
use husk_bundle::Warning;
use husk_plan::Start;
use std::process::ExitStatus;

/// Creates a container, starts it, waits for its end and deletes it. `warn` hears what is carried out
/// otherwise than written, before the program begins.
///
/// # Errors
///
/// As `create` and `start`.
pub fn run(store: &Store, request: &Request, warn: impl FnOnce(&[Warning])) -> Result<ExitStatus, Error> {
    let (container, warnings) = husk_bundle::load(&request.bundle)?;
    warn(&warnings);
    // Never committed: when it is dropped, at the end or on the way, nothing of it is left.
    let creation = Creation::begin(store, &request.id)?;
    let mut record = create::record(request, &container);
    creation.entry.write(&record)?;
    let mut launched = launch(&container, Start::AtOnce)?;
    record.process = create::process(&launched.child);
    creation.entry.write(&record)?;
    create::write_pid(request, &launched.child)?;
    // A child that failed before asks nothing; the wait says at what.
    if launched.child.next_request()?.is_some() {
        launched.child.go_on()?;
    }
    launched.child.wait().map_err(|error| explain(error, &launched.plan))
}
