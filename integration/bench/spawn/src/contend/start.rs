//! Experiment "start": measures the time until the call returns, and until the child is reaped.

use super::{Job, by_husk, by_std};
use crate::Failure;
use husk_spawn::Namespaces;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

/// The durations of one start.
#[derive(Clone, Copy, Default)]
pub(super) struct Times {
    /// The time until the call that starts the process returned.
    pub(super) returned: Duration,
    /// The time until the process was reaped and its resources in this process were released.
    pub(super) reaped: Duration,
}

pub(super) fn measure(job: &Job) -> Result<(), Failure> {
    let start: fn(&str) -> Result<Times, Failure> = match job.name.as_str() {
        "std-status" => by_std::status,
        "std-spawn" => by_std::spawn,
        "std-pre-exec" => by_std::pre_exec,
        "husk-status" => by_husk::status,
        "husk-spawn" => by_husk::spawn,
        "husk-spawn-and-exec" => by_husk::spawn_and_exec,
        "husk-isolated" => |program| by_husk::isolated(program, isolating()),
        "husk-isolated-net" => |program| by_husk::isolated(program, isolating() | Namespaces::NET),
        _ => return job.unknown(),
    };
    let mut lines = String::new();
    // Fills the memory in advance, so that writing to it causes no page fault.
    let mut times = vec![Times { returned: Duration::MAX, ..Times::default() }; job.limit];
    let [any, one] = placements()?;
    let of_program = |program| [(program, &any), (program, &one)];
    for (series, (program, cpus)) in job.programs.iter().flat_map(of_program).enumerate() {
        sched_setaffinity(None, cpus)?;
        // The first start reads files and fills caches for the others.
        start(program)?;
        let begun = Instant::now();
        let mut starts = 0;
        for slot in &mut times {
            *slot = start(program)?;
            starts += 1;
            if begun.elapsed() >= job.budget {
                break;
            }
        }
        for Times { returned, reaped } in &times[..starts] {
            writeln!(lines, "{series},{},{}", returned.as_nanos(), reaped.as_nanos())?;
        }
    }
    Ok(io::stdout().write_all(lines.as_bytes())?)
}

/// Returns all CPUs that this process may use, and the last of them.
fn placements() -> io::Result<[CpuSet; 2]> {
    let any = sched_getaffinity(None)?;
    let mut one = CpuSet::new();
    if let Some(last) = (0..CpuSet::MAX_CPU).rev().find(|cpu| any.is_set(*cpu)) {
        one.set(last);
    }
    Ok([any, one])
}

/// Returns the namespaces that isolate a test from others, without the network namespace.
fn isolating() -> Namespaces {
    Namespaces::USER | Namespaces::PID | Namespaces::MOUNT | Namespaces::IPC | Namespaces::UTS
}
