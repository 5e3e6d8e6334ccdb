//! Shows the numbers as tables for people, and as plots (`plot.rs`).

use crate::contenders::{Contender, contenders};
use crate::measure::BATCH_STARTS;
use crate::plot::{self, Bar, Group, Panel, Series};
use crate::record::{Experiment, Key, Metric, Placement, Results, Summary};

/// The names of the programs in the results, with their descriptions.
const PROGRAMS: [(&str, &str); 2] =
    [("tiny", "a program without libc"), ("true", "/bin/true, linked dynamically")];

const PLACEMENTS: [(Placement, &str); 2] = [(Placement::OneCpu, "one"), (Placement::AnyCpu, "any")];

/// The contenders whose time to return is compared: how long an event loop is blocked.
const RESPONSIVE: [&str; 7] =
    ["posix_spawn", "std-spawn", "vfork", "bare", "clone-vm", "husk-spawn-and-exec", "husk-spawn"];

/// husk's contenders that are compared with the floor.
const PROMISED: [&str; 3] = ["husk-status", "husk-spawn-and-exec", "husk-spawn"];

/// The horizontal axis of the plots.
const MEMORY: &str = "memory touched by the parent (log scale)";

/// Returns every file of a report: the suffix of its name, and its text.
pub(crate) fn report(stem: &str, results: &Results) -> Vec<(&'static str, String)> {
    let note = fact(results, "note").map_or_else(String::new, |note| format!("\n{note}"));
    let machine = ["date", "kernel", "CPU", "commit"].map(|name| fact(results, name).unwrap_or("?"));
    let [date, kernel, cpu, commit] = machine;
    let huge = fact(results, "transparent huge pages").unwrap_or("?");
    let subtitle = format!("{date}, Linux {kernel}, {cpu}, THP {huge}, commit {commit}{note}");

    let mut files = vec![(GROWTH, growth(results, &subtitle)), (RETURNED, returned_plot(results, &subtitle))];
    if !results.sizes(Experiment::Isolation).is_empty() {
        files.push((ISOLATED, isolation_plot(results, &subtitle)));
    }
    files.push((".md", text(stem, results)));
    files
}

const GROWTH: &str = "-growth.svg";
const RETURNED: &str = "-returned.svg";
const ISOLATED: &str = "-isolated.svg";

fn text(stem: &str, results: &Results) -> String {
    let mut text = String::from("# What starting a process costs\n\n");
    let facts = results.facts.iter().map(|(name, value)| vec![name.clone(), value.clone()]);
    text += &table(&["", ""], facts);
    text += HOW;
    text += &in_short(results);
    text += &start(stem, results);
    text += &returned(stem, results);
    text += &isolation(stem, results);
    text += &output(results);
    text += &batch(results);
    text
}

const HOW: &str = "
A parent maps the given amount of memory in ordinary pages, writes to every page, and then starts a
program over and over. Every contender is a process of its own; they run in rounds, each once in a
round, in another order each time. A number is the median over the rounds of the round's median, and in
parentheses of its 10th and 90th percentile. A ratio is the median over the rounds of the ratio within
the round. *One CPU* means that parent and child are bound to the same one; otherwise the scheduler
decides. The environment has 24 variables.

*bare* is the floor: `clone3(CLONE_VM | CLONE_VFORK)`, `execve` and `waitid` in C, and nothing that
is there for safety. husk also blocks signals, marks every other descriptor to be closed, resets
SIGPIPE, copies the environment, opens a pidfd, and can say which step failed. *std* is
`std::process::Command`; with a `pre_exec` closure it has to fork.
";

fn in_short(results: &Results) -> String {
    let sizes = results.sizes(Experiment::Start);
    let mut text = String::from(
        "\n## In short\n\nUntil the process is reaped: how many times as long as *bare*, and how many times as long \
         as std's `spawn`.\n\n",
    );
    let mut header = vec!["memory touched".to_owned(), "CPUs".to_owned()];
    for (program, _) in PROGRAMS {
        header.extend(PROMISED.map(|name| format!("{}, {program}", title(Experiment::Start, name))));
    }
    let lines = PLACEMENTS.iter().flat_map(|cpus| sizes.iter().map(move |mib| (*cpus, *mib)));
    let rows = lines.map(|((placement, cpus), mib)| {
        let mut row = vec![size(mib), cpus.to_owned()];
        for (program, _) in PROGRAMS {
            let key = |name| key(Experiment::Start, name, program, mib, placement, Metric::Reaped);
            row.extend(PROMISED.map(|name| {
                let to = |base| ratio(results.ratio(&key(name), &key(base)));
                format!("{}, {}", to("bare"), to("std-spawn"))
            }));
        }
        row
    });
    text += &table(&header, rows);

    if let (Some(&least), Some(&most)) = (sizes.first(), sizes.last()) {
        text += &format!(
            "\nThe same with {} touched, how many times as long as with {}; on one CPU:\n\n",
            size(most),
            size(least)
        );
        let names = ["fork", "posix_spawn", "bare", "std-spawn"].into_iter().chain(PROMISED);
        let rows = names.map(|name| {
            let mut row = vec![title(Experiment::Start, name).to_owned()];
            for (program, _) in PROGRAMS {
                let of = |mib| {
                    let placement = Placement::OneCpu;
                    let key = key(Experiment::Start, name, program, mib, placement, Metric::Reaped);
                    results.summary(&key)
                };
                row.push(ratio(of(most).zip(of(least)).map(|(most, least)| most.value / least.value)));
            }
            row
        });
        text += &table(&["", PROGRAMS[0].0, PROGRAMS[1].0], rows);
    }
    text
}

fn start(stem: &str, results: &Results) -> String {
    let mut text = format!(
        "\n## Every way to start a process\n\nMicroseconds until the call returned and until the process was \
         reaped. With any CPU, much depends on whether another one sleeps and must be woken.\n\n\
         ![Time until the process is reaped, by memory touched]({stem}{GROWTH})\n"
    );
    let mut header = vec![String::new()];
    for (_, cpus) in PLACEMENTS {
        header.extend([format!("returned, {cpus} CPU"), format!("reaped, {cpus} CPU")]);
        header.extend(["÷ bare", "÷ posix_spawn", "÷ std"].map(str::to_owned));
    }
    for (program, words) in PROGRAMS {
        for mib in results.sizes(Experiment::Start) {
            text += &format!("\n### {words}; {}\n\n", touched(mib));
            let rows = contenders(Experiment::Start).iter().map(|contender| {
                let mut row = vec![contender.title.to_owned()];
                for (placement, _) in PLACEMENTS {
                    let key = |name, metric| key(Experiment::Start, name, program, mib, placement, metric);
                    let reaped = key(contender.name, Metric::Reaped);
                    row.push(spread(results.summary(&key(contender.name, Metric::Returned))));
                    row.push(spread(results.summary(&reaped)));
                    row.extend(
                        ["bare", "posix_spawn", "std-spawn"]
                            .map(|base| ratio(results.ratio(&reaped, &key(base, Metric::Reaped)))),
                    );
                }
                row
            });
            text += &table(&header, rows);
        }
    }
    text
}

fn returned(stem: &str, results: &Results) -> String {
    let mut text = format!(
        "\n## Responsiveness\n\nMicroseconds until the call returns, in which the caller can do nothing else; on \
         any CPU. `clone(VM)` and husk's `spawn` do not wait for the exec, and husk uses its stacks again.\n\n\
         ![Time until the call returns]({stem}{RETURNED})\n"
    );
    for (program, words) in PROGRAMS {
        text += &format!("\n### {words}\n\n");
        text += &by_size(results, Experiment::Start, &RESPONSIVE, |name, mib| {
            let placement = Placement::AnyCpu;
            let key = key(Experiment::Start, name, program, mib, placement, Metric::Returned);
            spread(results.summary(&key))
        });
    }
    text
}

fn isolation(stem: &str, results: &Results) -> String {
    if results.sizes(Experiment::Isolation).is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\n## Isolation for each start\n\nMicroseconds until the process is reaped, and how many times as long as \
         bare without namespaces. Every start makes new user, pid, mount, IPC and UTS namespaces, and for *net* \
         a network namespace; the child maps its own user and group. The program has no libc. How long a \
         mount namespace takes depends on how many mounts there are to copy.\n\n\
         ![Time until an isolated process is reaped]({stem}{ISOLATED})\n"
    );
    let names: Vec<&str> = contenders(Experiment::Isolation).iter().map(|contender| contender.name).collect();
    for (placement, cpus) in PLACEMENTS {
        text += &format!("\n### on {cpus} CPU\n\n");
        text += &by_size(results, Experiment::Isolation, &names, |name, mib| {
            let key = |name| key(Experiment::Isolation, name, PROGRAMS[0].0, mib, placement, Metric::Reaped);
            let to_bare = ratio(results.ratio(&key(name), &key("bare")));
            format!("{}; {to_bare}", spread(results.summary(&key(name))))
        });
    }
    text
}

fn output(results: &Results) -> String {
    let mut text = String::from(
        "\n## Reading a program's line of output\n\nMicroseconds for each start, from thousands of them: CPU \
         time of parent and children in user and kernel mode together (how the kernel divides it between the two is \
         a guess for processes that live shorter than a tick), and time by the clock. popen and system \
         start a shell first. std and husk `output()` capture standard error too, by a second pipe.\n",
    );
    for mib in results.sizes(Experiment::Output) {
        text += &format!("\n### {}\n\n", touched(mib));
        text += &totals(results, Experiment::Output, mib, 1e-3, "CPU, µs", "wall, µs");
    }
    text
}

fn batch(results: &Results) -> String {
    let mut text = format!(
        "\n## {BATCH_STARTS} small commands\n\nSeconds for all of them. The parent has seven other threads; each \
         writes to 16 pages of its own, sleeps for 5 ms, and so on, so that fork has writers to fault on the pages \
         it shares. Their CPU time is counted too. A contender that was stopped earlier (*starts measured*) \
         is extrapolated. Descriptors are limited to 1024.\n"
    );
    for mib in results.sizes(Experiment::Batch) {
        text += &format!("\n### {}, eight threads\n\n", touched(mib));
        text += &totals(results, Experiment::Batch, mib, BATCH_STARTS as f64 * 1e-9, "CPU, s", "wall, s");
    }
    text
}

/// Returns a table of what many starts cost: nanoseconds per start, times `scale`.
fn totals(results: &Results, experiment: Experiment, mib: u64, scale: f64, cpu: &str, wall: &str) -> String {
    let all = contenders(experiment);
    let key = |name, metric| key(experiment, name, PROGRAMS[0].0, mib, Placement::AnyCpu, metric);
    let cpu_of = |name| {
        let user = results.summary(&key(name, Metric::User))?;
        let system = results.summary(&key(name, Metric::System))?;
        Some(user.value + system.value)
    };
    let scaled = |value: f64| digits(value * scale);
    let rows = all.iter().map(|Contender { name, title, .. }| {
        let wall_key = key(name, Metric::Wall);
        let time = results.summary(&wall_key);
        vec![
            (*title).to_owned(),
            cpu_of(name).map_or_else(String::new, scaled),
            time.map_or_else(String::new, |time| scaled(time.value)),
            ratio(cpu_of(name).zip(cpu_of("bare")).map(|(cpu, bare)| cpu / bare)),
            ratio(results.ratio(&wall_key, &key("bare", Metric::Wall))),
            time.map_or_else(String::new, |time| time.count.to_string()),
        ]
    });
    table(&["", cpu, wall, "CPU ÷ bare", "wall ÷ bare", "starts measured"], rows)
}

fn growth(results: &Results, subtitle: &str) -> String {
    let panels = PROGRAMS.map(|(program, words)| Panel {
        title: format!("starting {words}, on one CPU"),
        series: series(results, Experiment::Start, program),
    });
    plot::growth(
        "Time until a started process is reaped",
        subtitle,
        MEMORY,
        &sizes(results, Experiment::Start),
        &panels,
    )
}

fn isolation_plot(results: &Results, subtitle: &str) -> String {
    let (program, words) = PROGRAMS[0];
    let panel = Panel {
        title: format!("starting {words} in new namespaces, on one CPU"),
        series: series(results, Experiment::Isolation, program),
    };
    plot::growth(
        "Time until an isolated process is reaped",
        subtitle,
        MEMORY,
        &sizes(results, Experiment::Isolation),
        &[panel],
    )
}

fn returned_plot(results: &Results, subtitle: &str) -> String {
    let (program, words) = PROGRAMS[0];
    let groups: Vec<Group> = results
        .sizes(Experiment::Start)
        .into_iter()
        .map(|mib| Group {
            title: touched(mib),
            bars: RESPONSIVE
                .iter()
                .filter_map(|&name| {
                    let placement = Placement::AnyCpu;
                    let key = key(Experiment::Start, name, program, mib, placement, Metric::Returned);
                    let Summary { value, spread, .. } = results.summary(&key)?;
                    let contender = find(Experiment::Start, name)?;
                    let spread = spread.map(|(p10, p90)| (p10 / 1e3, p90 / 1e3));
                    Some(Bar {
                        label: contender.title,
                        colour: contender.style.colour,
                        value: value / 1e3,
                        spread,
                    })
                })
                .collect(),
        })
        .collect();
    let title = "Time until the call that starts a process returns";
    plot::bars(
        title,
        subtitle,
        &format!("microseconds, starting {words}, on any CPU; line: 10th to 90th percentile"),
        &groups,
    )
}

fn series(results: &Results, experiment: Experiment, program: &str) -> Vec<Series> {
    let points = |name| {
        results
            .sizes(experiment)
            .into_iter()
            .map(|mib| {
                let key = key(experiment, name, program, mib, Placement::OneCpu, Metric::Reaped);
                Some(results.summary(&key)?.value / 1e3)
            })
            .collect()
    };
    contenders(experiment)
        .iter()
        .map(|contender| Series {
            label: contender.title,
            style: contender.style,
            points: points(contender.name),
        })
        .collect()
}

fn sizes(results: &Results, experiment: Experiment) -> Vec<(u64, String)> {
    results.sizes(experiment).into_iter().map(|mib| (mib, size(mib))).collect()
}

/// Returns a table with a row for each contender and a column for each size.
fn by_size(
    results: &Results,
    experiment: Experiment,
    names: &[&str],
    cell: impl Fn(&str, u64) -> String,
) -> String {
    let sizes = results.sizes(experiment);
    let mut header = vec![String::new()];
    header.extend(sizes.iter().map(|&mib| size(mib)));
    let rows = names.iter().map(|name| {
        let mut row = vec![title(experiment, name).to_owned()];
        row.extend(sizes.iter().map(|&mib| cell(name, mib)));
        row
    });
    table(&header, rows)
}

/// Returns a Markdown table. Columns of words are aligned left, columns of numbers right.
fn table(header: &[impl AsRef<str>], rows: impl Iterator<Item = Vec<String>>) -> String {
    let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
    let rows: Vec<Vec<String>> = rows.collect();
    let mut text = line(header.iter().map(AsRef::as_ref).collect());
    let begins = |cell: &String| cell.starts_with(|first: char| first.is_ascii_digit());
    let numbers = (0..header.len()).map(|column| {
        column > 0
            && rows.iter().filter_map(|row| row.get(column)).all(|cell| cell.is_empty() || begins(cell))
    });
    text += &line(numbers.map(|right| if right { "-:" } else { ":-" }).collect());
    for row in &rows {
        text += &line(row.iter().map(String::as_str).collect());
    }
    text
}

fn key(
    experiment: Experiment,
    contender: &str,
    program: &str,
    mib: u64,
    placement: Placement,
    metric: Metric,
) -> Key {
    Key { experiment, contender: contender.to_owned(), program: program.to_owned(), mib, placement, metric }
}

fn find(experiment: Experiment, name: &str) -> Option<&'static Contender> {
    contenders(experiment).iter().find(|contender| contender.name == name)
}

fn title(experiment: Experiment, name: &str) -> &'static str {
    find(experiment, name).map_or("", |contender| contender.title)
}

fn fact<'a>(results: &'a Results, wanted: &str) -> Option<&'a str> {
    results.facts.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
}

fn size(mib: u64) -> String {
    match mib {
        0 => "none".to_owned(),
        mib if mib % 1024 == 0 => format!("{} GiB", mib / 1024),
        mib => format!("{mib} MiB"),
    }
}

fn touched(mib: u64) -> String {
    if mib == 0 { "no memory touched".to_owned() } else { format!("{} touched", size(mib)) }
}

fn spread(summary: Option<Summary>) -> String {
    let Some(summary) = summary else { return String::new() };
    let value = microseconds(summary.value);
    match summary.spread {
        Some((p10, p90)) => format!("{value} ({}, {})", microseconds(p10), microseconds(p90)),
        None => value,
    }
}

fn microseconds(nanoseconds: f64) -> String {
    digits(nanoseconds / 1e3)
}

/// Formats a value with three significant digits, or more if its integer part has more.
fn digits(value: f64) -> String {
    let decimals = if value < 10.0 {
        2
    } else if value < 100.0 {
        1
    } else {
        0
    };
    format!("{value:.decimals$}")
}

fn ratio(ratio: Option<f64>) -> String {
    match ratio {
        Some(ratio) if ratio < 10.0 => format!("{ratio:.2}"),
        Some(ratio) => format!("{ratio:.0}"),
        None => String::new(),
    }
}
