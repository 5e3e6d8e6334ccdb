//! Compares three ways to start processes with the pids that they had before. A program can use up pids until the wanted
//! one is next, write to `ns_last_pid`, or call clone3 with `set_tid`, in C or by husk-spawn.
//!
//! ```text
//! husk-bench-spawn pids measure RESTORER TINY [--smoke]   prints CSV
//! husk-bench-spawn pids report FILE.csv                   writes the table and the plot of a result
//! husk-bench-spawn pids restore PROGRAM PID...            is husk's contender; the others are in pids.c
//! ```
//!
//! Each contender is the first process of new user, pid and mount namespaces, in which the caller is root. All run on
//! one CPU, where a spin is fastest.

mod report;

use crate::Failure;
use husk_spawn::sys::mount::{MountFlags, MountPropagationFlags};
use husk_spawn::{Command, IdMap, Namespaces, Step};
use rustix::process::{getegid, geteuid};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::time::{Duration, Instant};

/// The numbers of processes.
const COUNTS: [i32; 4] = [1, 2, 4, 8];
/// The distance between two pids.
const GAP: i32 = 1000;

/// Each way: its name in pids.c and in the results.
const WAYS: [&str; 4] = ["spin", "last-pid", "set-tid", "husk"];
/// Each order of the pids. In the falling one, every pid but the first has just been passed.
const ORDERS: [&str; 2] = ["rising", "falling"];

/// How long a spin that goes all the way round may take, and a spin of more than one round, which only shows its rate.
const WHOLE_ROUND: u64 = 400;
const RATE: u64 = 5;

pub(crate) fn pids(arguments: &[String]) -> Result<(), Failure> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["measure", restorer, tiny] => measure(restorer, tiny, 20, WHOLE_ROUND),
        ["measure", restorer, tiny, "--smoke"] => measure(restorer, tiny, 1, 1),
        ["report", csv] => report::write(csv.as_ref()),
        ["restore", program, ref pids @ ..] => restore(program, pids),
        _ => Err("pids measure|report|restore ...".into()),
    }
}

fn measure(restorer: &str, tiny: &str, rounds: usize, whole_round: u64) -> Result<(), Failure> {
    for (name, value) in crate::machine::facts() {
        println!("# {name}: {value}");
    }
    bind_to_one_cpu()?;
    println!("# pid_max outside: {}", fs::read_to_string("/proc/sys/kernel/pid_max")?.trim());
    println!("# user: {}", if geteuid().is_root() { "root" } else { "not root" });
    println!("order,way,processes,round,pid_max,started,forks,nanoseconds");
    for round in 0..rounds {
        for (count, order, turn) in combinations() {
            // Another contender begins each time, so that a disturbance affects all of them alike.
            let way = WAYS[(turn + round) % WAYS.len()];
            let goes_round = way == "spin" && order == "falling" && count > 1;
            if goes_round && round > 0 {
                continue;
            }
            let seconds = if goes_round && count > 2 { RATE.min(whole_round) } else { whole_round };
            let pids =
                (1..=count).map(|index| GAP * if order == "rising" { index } else { count + 1 - index });
            let pids: Vec<String> = pids.map(|pid| pid.to_string()).collect();
            let mut command = match way {
                "husk" => Command::new("/proc/self/exe"),
                _ => Command::new(restorer),
            };
            match way {
                "husk" => command.args(["pids", "restore", tiny]),
                _ => command.args([way, &seconds.to_string(), tiny]),
            };
            let output = first_of_namespaces(command.args(&pids)).output()?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                return Err(format!("{way}, {order}, {count} processes: {}: {said}", output.status).into());
            }
            println!("{order},{way},{count},{round},{}", String::from_utf8(output.stdout)?.trim());
        }
    }
    Ok(())
}

/// Returns each number of processes with each order, once for every way.
fn combinations() -> impl Iterator<Item = (i32, &'static str, usize)> {
    let all = COUNTS.iter().flat_map(|count| ORDERS.iter().map(move |order| (*count, *order)));
    all.flat_map(|(count, order)| (0..WAYS.len()).map(move |turn| (count, order, turn)))
}

/// Makes the command the first process of namespaces in which it is root and has a `/proc` of its own.
fn first_of_namespaces(command: &mut Command) -> &mut Command {
    let root = |outside| [IdMap { inside: 0, outside, count: 1 }];
    command
        .new_namespaces(Namespaces::USER | Namespaces::PID | Namespaces::MOUNT)
        .uid_map(&root(geteuid().as_raw()))
        .gid_map(&root(getegid().as_raw()))
        .step(Step::MountChange {
            target: c"/",
            flags: MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
        })
        .step(Step::Mount {
            source: c"proc",
            target: c"/proc",
            fstype: c"proc",
            flags: MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC,
            data: c"",
        })
}

fn bind_to_one_cpu() -> Result<(), Failure> {
    let allowed = sched_getaffinity(None)?;
    let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).ok_or("there is no CPU")?;
    let mut only = CpuSet::new();
    only.set(first);
    Ok(sched_setaffinity(None, &only)?)
}

/// Starts the program with each of the pids, and prints what the contenders in C print.
fn restore(program: &str, pids: &[&str]) -> Result<(), Failure> {
    let most = fs::read_to_string("/proc/sys/kernel/pid_max")?;
    let pids: Vec<i32> = pids.iter().map(|pid| pid.parse()).collect::<Result<_, _>>()?;
    // The first start maps the memory that later ones use again.
    Command::new(program).status()?;
    let begun = Instant::now();
    let mut children = Vec::new();
    for pid in &pids {
        let child = Command::new(program).pids(&[*pid]).spawn_and_exec()?;
        if child.id() != pid.unsigned_abs() {
            return Err(format!("pid {pid} became {}", child.id()).into());
        }
        children.push(child);
    }
    let took: Duration = begun.elapsed();
    for mut child in children {
        child.wait()?;
    }
    println!("{},{},{},{}", most.trim(), pids.len(), pids.len(), took.as_nanos());
    Ok(())
}
