//! Compares husk-spawn with libraries for the same tasks.
//!
//!     husk-bench-peers TINY MIB ROUNDS STARTS
//!
//! This process touches MIB of memory. In each round every method runs STARTS times, one method after the other, and
//! the order changes from round to round. A round gives a median for each method. The table shows the median of these,
//! and the median of the ratios within the rounds, so that load of the machine affects all methods alike.

use command_group::CommandGroup as _;
use duct::cmd;
use husk_spawn::{Command, Pipeline};
use std::error::Error;
use std::process;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

type Failure = Box<dyn Error>;

/// A way to do a task with the program.
struct Method {
    task: &'static str,
    name: &'static str,
    run: fn(&Runtime, &str) -> Result<bool, Failure>,
}

const START: &str = "start a program and wait";
const GROUP: &str = "the same, in a process group";
const LINE: &str = "read a line of its output";
const PIPE: &str = "`a \\| b`, and read the output of `b`";

/// The first method of each task is the one that others are compared with.
const METHODS: [Method; 16] = [
    Method {
        task: START,
        name: "`std::process`",
        run: |_, tiny| Ok(process::Command::new(tiny).spawn()?.wait()?.success()),
    },
    Method {
        task: START,
        name: "`tokio::process`",
        run: |runtime, tiny| {
            runtime
                .block_on(async { Ok(tokio::process::Command::new(tiny).spawn()?.wait().await?.success()) })
        },
    },
    Method { task: START, name: "duct", run: |_, tiny| Ok(cmd!(tiny).run()?.status.success()) },
    Method { task: START, name: "husk `status`", run: |_, tiny| Ok(Command::new(tiny).status()?.success()) },
    Method {
        task: START,
        name: "husk `spawn`, `wait`",
        run: |_, tiny| Ok(Command::new(tiny).spawn()?.wait()?.success()),
    },
    Method {
        task: START,
        name: "husk `spawn_async`, `wait`",
        run: |runtime, tiny| {
            runtime.block_on(async { Ok(Command::new(tiny).spawn_async()?.wait().await?.success()) })
        },
    },
    Method {
        task: GROUP,
        name: "`std::process`",
        run: |_, tiny| {
            use std::os::unix::process::CommandExt as _;
            Ok(process::Command::new(tiny).process_group(0).spawn()?.wait()?.success())
        },
    },
    Method {
        task: GROUP,
        name: "command-group",
        run: |_, tiny| Ok(process::Command::new(tiny).group_spawn()?.wait()?.success()),
    },
    Method {
        task: GROUP,
        name: "husk `spawn`, `wait`",
        run: |_, tiny| Ok(Command::new(tiny).process_group(0).spawn()?.wait()?.success()),
    },
    Method {
        task: LINE,
        name: "`std::process`",
        run: |_, tiny| Ok(!process::Command::new(tiny).arg("line").output()?.stdout.is_empty()),
    },
    Method {
        task: LINE,
        name: "`tokio::process`",
        run: |runtime, tiny| {
            let output = async { tokio::process::Command::new(tiny).arg("line").output().await };
            Ok(!runtime.block_on(output)?.stdout.is_empty())
        },
    },
    Method { task: LINE, name: "duct", run: |_, tiny| Ok(!cmd!(tiny, "line").read()?.is_empty()) },
    Method {
        task: LINE,
        name: "husk `output`",
        run: |_, tiny| Ok(!Command::new(tiny).arg("line").output()?.stdout.is_empty()),
    },
    Method {
        task: LINE,
        name: "husk `output_async`",
        run: |runtime, tiny| {
            Ok(!runtime.block_on(Command::new(tiny).arg("line").output_async())?.stdout.is_empty())
        },
    },
    Method {
        task: PIPE,
        name: "duct",
        run: |_, tiny| Ok(!cmd!(tiny, "line").pipe(cmd!(tiny, "line")).unchecked().read()?.is_empty()),
    },
    Method {
        task: PIPE,
        name: "husk `Pipeline`",
        run: |_, tiny| {
            let (mut first, mut second) = (Command::new(tiny), Command::new(tiny));
            Ok(!Pipeline::new(first.arg("line")).pipe(second.arg("line")).output()?.stdout.is_empty())
        },
    },
];

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [tiny, mib, rounds, starts] = &arguments[..] else {
        return Err("husk-bench-peers TINY MIB ROUNDS STARTS".into());
    };
    let (rounds, starts): (usize, usize) = (rounds.parse()?, starts.parse()?);
    let memory = vec![1_u8; mib.parse::<usize>()? << 20];
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let methods: Vec<&Method> = METHODS.iter().collect();

    let mut medians: Vec<Vec<Duration>> = vec![Vec::new(); methods.len()];
    for round in 0..=rounds {
        let mut order: Vec<usize> = (0..methods.len()).collect();
        order.rotate_left(round * 5 % methods.len());
        for index in order {
            let times =
                (0..starts).map(|_| time(methods[index], &runtime, tiny)).collect::<Result<Vec<_>, _>>()?;
            // The first round fills caches.
            if round > 0 {
                medians[index].push(median(times));
            }
        }
    }
    assert!(std::hint::black_box(&memory).iter().all(|byte| *byte == 1));

    println!("| parent of {mib} MiB | median | ÷ the first |\n| - | -: | -: |");
    for (index, method) in methods.iter().enumerate() {
        let first = methods.iter().position(|other| other.task == method.task).unwrap_or(index);
        if first == index {
            println!("| *{}* | | |", method.task);
        }
        let ratio = |(own, base): (&Duration, &Duration)| own.as_secs_f64() / base.as_secs_f64();
        let mut ratios: Vec<f64> = medians[index].iter().zip(&medians[first]).map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let micros = median(medians[index].clone()).as_secs_f64() * 1e6;
        println!("| {} | {micros:.0} µs | {:.2} |", method.name, ratios[ratios.len() / 2]);
    }
    Ok(())
}

fn time(method: &Method, runtime: &Runtime, tiny: &str) -> Result<Duration, Failure> {
    let begun = Instant::now();
    let is_done = (method.run)(runtime, tiny)?;
    let time = begun.elapsed();
    if is_done { Ok(time) } else { Err(format!("{}: the program failed", method.name).into()) }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
