//! Keeps many containers alive at once, and compares the cost of the last ones with the first.

use crate::left::first_number;
use crate::{Outcome, Runtime, at_once, wait_for};
use rustix::process::Pid;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Starts `live` containers one after the other, lists them, and removes them, `width` at a time.
pub(crate) fn crowd(runtime: &Runtime, live: usize, width: usize) -> Outcome<()> {
    let available = || first_number("/proc/meminfo", "MemAvailable:");
    let memory = available()?;
    let (mut pids, mut times) = (Vec::new(), Vec::new());
    for index in 0..live {
        let begun = Instant::now();
        pids.push(runtime.begin(&runtime.lasting, &name(index))?);
        times.push(begun.elapsed());
        // The first look reads what the machine has not read before.
        if index == 0 {
            look(runtime, 1)?;
            look(runtime, 1)?.show("with one alive");
        }
    }
    let used = memory.saturating_sub(available()?);
    if live > 0 {
        look(runtime, live)?.show(&format!("with {live} alive"));
        let few = live.div_ceil(10);
        let (first, last) = (median(&times[..few]), median(&times[live - few..]));
        println!("create and start: {} for the first {few}, {} for the last", shown(first), shown(last));
        println!("memory of the machine for each: {} KiB", used / live as u64);
    }
    at_once(live, width, |index| remove(runtime, index, pids[index]))
}

fn name(index: usize) -> String {
    format!("live-{index}")
}

fn remove(runtime: &Runtime, index: usize, pid: Pid) -> Outcome<()> {
    runtime.call("delete", &["--force", &runtime.id(&name(index))])?;
    wait_for(pid)
}

/// How long it takes to list all containers, and to query the newest one.
struct Look {
    list: Duration,
    state: Duration,
}

/// Measures both, and checks that all containers are listed.
fn look(runtime: &Runtime, live: usize) -> Outcome<Look> {
    let begun = Instant::now();
    let seen = runtime.command("list", &["--quiet"]).stdout(Stdio::piped()).output()?;
    let list = begun.elapsed();
    let ours = String::from_utf8(seen.stdout)?.lines().filter(|id| id.contains("-live-")).count();
    if ours != live {
        return Err(format!("{ours} of {live} are listed").into());
    }
    let begun = Instant::now();
    runtime.call("state", &[&runtime.id(&name(live - 1))])?;
    Ok(Look { list, state: begun.elapsed() })
}

impl Look {
    fn show(&self, when: &str) {
        println!("{when}: list {}, state of the last {}", shown(self.list), shown(self.state));
    }
}

fn shown(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}
