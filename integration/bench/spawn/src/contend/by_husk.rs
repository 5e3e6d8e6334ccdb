//! Starts processes with husk-spawn.

use super::start::Times;
use crate::Failure;
use husk_spawn::{Child, Command, IdMap, Namespaces, Stdio};
use std::io::Read;
use std::process::ExitStatus;
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

pub(super) fn spawn_and_exec(program: &str) -> Result<Times, Failure> {
    let begun = Instant::now();
    let child = Command::new(program).spawn_and_exec()?;
    finish(begun, child)
}

/// Starts a program in new namespaces, with only this process's user and group mapped.
pub(super) fn isolated(program: &str, namespaces: Namespaces) -> Result<Times, Failure> {
    let begun = Instant::now();
    let only = |outside| [IdMap { inside: 0, outside, count: 1 }];
    let child = Command::new(program)
        .new_namespaces(namespaces)
        .uid_map(&only(rustix::process::geteuid().as_raw()))
        .gid_map(&only(rustix::process::getegid().as_raw()))
        .spawn_and_exec()?;
    finish(begun, child)
}

/// Returns the length of the program's output, read with `Command::output`.
pub(super) fn output(program: &str) -> Result<usize, Failure> {
    let output = Command::new(program).arg("line").output()?;
    succeeded(output.status)?;
    Ok(output.stdout.len())
}

/// Returns the length of the program's output, read from a pipe. Standard error is not captured.
pub(super) fn piped(program: &str) -> Result<usize, Failure> {
    let mut child = Command::new(program).arg("line").stdout(Stdio::piped()).spawn()?;
    let mut text = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_end(&mut text)?;
    }
    succeeded(child.wait()?)?;
    Ok(text.len())
}

fn finish(begun: Instant, mut child: Child) -> Result<Times, Failure> {
    let returned = begun.elapsed();
    let status = child.wait()?;
    // Closing its descriptor is part of the cost.
    drop(child);
    let reaped = begun.elapsed();
    succeeded(status)?;
    Ok(Times { returned, reaped })
}

pub(super) fn succeeded(status: ExitStatus) -> Result<(), Failure> {
    if status.success() { Ok(()) } else { Err(format!("the program ended with {status}").into()) }
}
