//! Starts a tree of processes again with the pids and parents that they had, as a restore of a checkpoint must. Needs
//! no root: in new user and pid namespaces, any user may choose pids.
//!
//!     cargo run --release -p husk-spawn --example restore_pids

#![expect(clippy::disallowed_macros, reason = "an example prints as programs do")]

use husk_spawn::{Child, Command, IdMap, Namespaces, Stdio};
use rustix::process::{getegid, geteuid, getpid, getppid};
use std::error::Error;
use std::io::{Read, Write};
use std::time::Instant;

/// The saved tree: each process's pid and its parent's. The first process of a pid namespace always has pid 1. Process
/// 2000 has a child with a lower pid, which forks alone reach only after all other pids.
const SAVED: [(i32, i32); 8] =
    [(1000, 1), (2000, 1), (3000, 1000), (500, 2000), (4000, 2000), (5000, 4000), (6000, 4000), (7000, 6000)];

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        None => begin(),
        Some("first") => first(),
        Some(_) => member(),
    }
}

/// Runs this program again as the first process of new namespaces.
fn begin() -> Result<(), Box<dyn Error>> {
    let root = |outside| [IdMap { inside: 0, outside, count: 1 }];
    let status = Command::new(std::env::current_exe()?)
        .arg("first")
        .new_namespaces(Namespaces::USER | Namespaces::PID)
        .uid_map(&root(geteuid().as_raw()))
        .gid_map(&root(getegid().as_raw()))
        .status()?;
    if status.success() { Ok(()) } else { Err(format!("the restore ended with {status}").into()) }
}

/// Restores the tree, and lists it once it is complete.
fn first() -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    let children = restore_children()?;
    let mut restored = Vec::new();
    for mut child in children {
        // A process prints a line for itself and every descendant, and then closes its output.
        let mut lines = String::new();
        child.stdout.take().ok_or("the output is a pipe")?.read_to_string(&mut lines)?;
        restored.extend(lines.lines().map(pair).collect::<Result<Vec<_>, _>>()?);
        child.wait()?;
    }
    let took = begun.elapsed();
    restored.sort_unstable();
    for (pid, parent) in &restored {
        println!("process {pid}, a child of {parent}");
    }
    let mut saved = SAVED;
    saved.sort_unstable();
    if restored != saved {
        return Err("the tree is not the one that was saved".into());
    }
    println!("{} processes in {took:.2?}", restored.len());
    Ok(())
}

/// Is a process of the tree: restores its own children, and passes on what they print.
fn member() -> Result<(), Box<dyn Error>> {
    let mut lines =
        format!("{} {}\n", getpid().as_raw_pid(), getppid().map_or(0, |parent| parent.as_raw_pid()));
    for mut child in restore_children()? {
        child.stdout.take().ok_or("the output is a pipe")?.read_to_string(&mut lines)?;
        child.wait()?;
    }
    Ok(std::io::stdout().write_all(lines.as_bytes())?)
}

/// Starts the children of this process with their pids.
fn restore_children() -> Result<Vec<Child>, Box<dyn Error>> {
    let own = getpid().as_raw_pid();
    let children = SAVED.iter().filter(|(_, parent)| *parent == own);
    let start = |(pid, _): &(i32, i32)| {
        let mut command = Command::new(std::env::current_exe()?);
        Ok(command.arg("member").pids(&[*pid]).stdout(Stdio::piped()).spawn_and_exec()?)
    };
    children.map(start).collect()
}

fn pair(line: &str) -> Result<(i32, i32), Box<dyn Error>> {
    let (pid, parent) = line.split_once(' ').ok_or("a line has two pids")?;
    Ok((pid.parse()?, parent.parse()?))
}
