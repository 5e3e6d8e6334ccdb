//! Experiment "output": measures the cost of reading a line that a program writes.

use super::totals::sum_up;
use super::{Job, by_husk, by_std};
use crate::Failure;

pub(super) fn measure(job: &Job) -> Result<(), Failure> {
    let read: fn(&str) -> Result<usize, Failure> = match job.name.as_str() {
        "std-output" => by_std::output,
        "husk-output" => by_husk::output,
        "husk-spawn" => by_husk::piped,
        _ => return job.unknown(),
    };
    let program = job.program()?;
    sum_up(job, || match read(program)? {
        0 => Err("the program wrote nothing".into()),
        _ => Ok(()),
    })
}
