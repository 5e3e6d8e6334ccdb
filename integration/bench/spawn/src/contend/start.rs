//! Experiment "start": how long until the call returns, and how long until the child is reaped.

use super::{Job, by_husk, by_std};
use crate::Failure;
use husk_spawn::Namespaces;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

/// What one start took.
#[derive(Clone, Copy, Default)]
pub(super) struct Times {
    /// Until the call that starts the process returned.
    pub(super) returned: Duration,
    /// Until the process was waited for and nothing of it was left here.
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
    // Written to before it is needed, so that no page of it is missing.
    let mut times = vec![Times { returned: Duration::MAX, ..Times::default() }; job.limit];
    let [any, one] = placements()?;
    let of_program = |program| [(program, &any), (program, &one)];
    for (series, (program, cpus)) in job.programs.iter().flat_map(of_program).enumerate() {
        sched_setaffinity(None, cpus)?;
        // The first one reads files and fills caches for the others.
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

/// Any CPU that there is for us, and the last of them.
fn placements() -> io::Result<[CpuSet; 2]> {
    let any = sched_getaffinity(None)?;
    let mut one = CpuSet::new();
    if let Some(last) = (0..CpuSet::MAX_CPU).rev().find(|cpu| any.is_set(*cpu)) {
        one.set(last);
    }
    Ok([any, one])
}

/// What a test that must not meet another is put into, but for the network.
fn isolating() -> Namespaces {
    Namespaces::USER | Namespaces::PID | Namespaces::MOUNT | Namespaces::IPC | Namespaces::UTS
}
