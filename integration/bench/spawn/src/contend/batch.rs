//! Experiment "batch": starts many small commands from a process whose other threads keep working.

use super::memory::PAGE;
use super::start::Times;
use super::totals::sum_up;
use super::{Job, by_husk, by_std};
use crate::Failure;
use std::thread;
use std::time::Duration;

/// The number of threads besides the one that starts processes.
const BUSY_THREADS: usize = 7;

/// The number of pages that each thread writes to before it sleeps.
const BUSY_PAGES: usize = 16;

/// How long a thread sleeps each time.
const BUSY_SLEEP: Duration = Duration::from_millis(5);

pub(super) fn measure(job: &Job, memory: &'static mut [u8]) -> Result<(), Failure> {
    let start: fn(&str) -> Result<Times, Failure> = match job.name.as_str() {
        "std-status" => by_std::status,
        "husk-status" => by_husk::status,
        "husk-spawn-and-exec" => by_husk::spawn_and_exec,
        _ => return job.unknown(),
    };
    let size = memory.len() / BUSY_THREADS;
    if size > 0 {
        for part in memory.chunks_exact_mut(size) {
            thread::spawn(|| keep_busy(part));
        }
    }
    let program = job.program()?;
    sum_up(job, || start(program).map(drop))
}

/// Writes to a few pages of its part of the memory, then sleeps, until the process ends.
fn keep_busy(part: &mut [u8]) -> ! {
    let mut at = 0;
    loop {
        for _ in 0..BUSY_PAGES {
            part[at] = part[at].wrapping_add(1);
            at = (at + PAGE) % part.len();
        }
        thread::sleep(BUSY_SLEEP);
    }
}
