//! Measures what many starts cost in total.

use super::Job;
use super::usage::Usage;
use crate::Failure;
use std::time::Instant;

/// Calls `once` until the job's limit or budget is reached, and prints the totals.
pub(super) fn sum_up(job: &Job, once: impl Fn() -> Result<(), Failure>) -> Result<(), Failure> {
    // The first start reads files and fills caches for the others.
    once()?;
    let before = Usage::now()?;
    let begun = Instant::now();
    let mut starts = 0;
    while starts == 0 || (starts < job.limit && begun.elapsed() < job.budget) {
        once()?;
        starts += 1;
    }
    let wall = begun.elapsed();
    let after = Usage::now()?;
    let (user, system) = (after.user - before.user, after.system - before.system);
    println!("{starts},{},{},{}", wall.as_nanos(), user.as_nanos(), system.as_nanos());
    Ok(())
}
