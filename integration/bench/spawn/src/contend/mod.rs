//! Runs the contenders in Rust, with the same protocol as competitors.c for those in C.
//!
//! ```text
//! contend start  NAME MIB LIMIT BUDGET_MS PROGRAM...   a line "series,returned,reaped" per start
//! contend output NAME MIB LIMIT BUDGET_MS PROGRAM      one line "starts,wall,user,system"
//! contend batch  NAME MIB LIMIT BUDGET_MS PROGRAM      the same, among busy threads
//! ```
//!
//! All times are in nanoseconds. "start" measures each program twice. Series 0 is the first program on any CPU, and
//! series 1 the same program bound to one CPU. Series 2 is the second program on any CPU, and so on. Every start
//! creates its command anew, as programs do.

mod batch;
mod by_husk;
mod by_std;
mod memory;
mod output;
mod pre_exec;
mod start;
mod totals;
mod usage;

use crate::Failure;
use std::time::Duration;

/// The task of a contender.
struct Job {
    /// The contender's name in the protocol.
    name: String,
    /// How many times it starts each program at most.
    limit: usize,
    /// How long it keeps starting each program.
    budget: Duration,
    /// Paths of the programs.
    programs: Vec<String>,
}

/// Runs one contender in one experiment. The driver starts a process for each.
pub(crate) fn contend(arguments: &[String]) -> Result<(), Failure> {
    let [experiment, name, mib, limit, budget, programs @ ..] = arguments else {
        return Err("contend EXPERIMENT NAME MIB LIMIT BUDGET_MS PROGRAM...".into());
    };
    let memory = memory::touched(mib.parse()?)?;
    let job = Job {
        name: name.clone(),
        limit: limit.parse()?,
        budget: Duration::from_millis(budget.parse()?),
        programs: programs.to_vec(),
    };
    match experiment.as_str() {
        "start" => start::measure(&job),
        "output" => output::measure(&job),
        "batch" => batch::measure(&job, memory),
        other => Err(format!("there is no experiment {other}").into()),
    }
}

impl Job {
    fn program(&self) -> Result<&str, Failure> {
        self.programs.first().map(String::as_str).ok_or_else(|| "no program is given".into())
    }

    fn unknown<T>(&self) -> Result<T, Failure> {
        Err(format!("there is no contender {} in Rust", self.name).into())
    }
}
