//! Starts processes with the standard library.

use super::by_husk::succeeded;
use super::pre_exec;
use super::start::Times;
use crate::Failure;
use std::process::{Child, Command};
use std::time::Instant;

pub(super) fn status(program: &str) -> Result<Times, Failure> {
    let begun = Instant::now();
    let status = Command::new(program).status()?;
    let reaped = begun.elapsed();
    succeeded(status)?;
    Ok(Times { returned: reaped, reaped })
}

pub(super) fn spawn(program: &str) -> Result<Times, Failure> {
    let begun = Instant::now();
    let child = Command::new(program).spawn()?;
    finish(begun, child)
}

pub(super) fn pre_exec(program: &str) -> Result<Times, Failure> {
    let begun = Instant::now();
    let mut command = Command::new(program);
    pre_exec::by_fork(&mut command);
    let child = command.spawn()?;
    finish(begun, child)
}

/// Returns the length of the program's output, read with `Command::output`.
pub(super) fn output(program: &str) -> Result<usize, Failure> {
    let output = Command::new(program).arg("line").output()?;
    succeeded(output.status)?;
    Ok(output.stdout.len())
}

fn finish(begun: Instant, mut child: Child) -> Result<Times, Failure> {
    let returned = begun.elapsed();
    let status = child.wait()?;
    drop(child);
    let reaped = begun.elapsed();
    succeeded(status)?;
    Ok(Times { returned, reaped })
}
