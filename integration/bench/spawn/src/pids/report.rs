//! Shows the results as a table and a plot.

use super::{COUNTS, ORDERS, WAYS};
use crate::Failure;
use crate::contenders::Style;
use crate::plot::{self, Panel, Series};
use std::fs;
use std::path::Path;

const DESCRIPTIONS: [(&str, &str); 4] = [
    ("spin until the pid is next", "#b2182b"),
    ("write ns_last_pid", "#d9820f"),
    ("clone3 with set_tid, in C", "#222222"),
    ("husk-spawn's Command::pids", "#1a9850"),
];

/// One run of a contender.
struct Row {
    order: String,
    way: String,
    processes: u64,
    pid_max: u64,
    started: u64,
    forks: u64,
    microseconds: f64,
}

/// The time of one way, for one order and number of processes.
enum Time {
    /// The median, and the 10th and 90th percentile.
    Measured([f64; 3]),
    /// A spin that was stopped: what all of it would take at its rate.
    Computed(f64),
}

impl Time {
    fn value(&self) -> f64 {
        match self {
            Self::Measured([_, median, _]) => *median,
            Self::Computed(value) => *value,
        }
    }
}

/// Writes the table and the plot beside the CSV file.
pub(super) fn write(csv: &Path) -> Result<(), Failure> {
    let text = fs::read_to_string(csv)?;
    let stem = csv.file_stem().and_then(|stem| stem.to_str()).ok_or("the file has no name")?;
    let facts: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# ")).collect();
    let lines = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    let rows =
        lines.map(row).collect::<Option<Vec<Row>>>().ok_or("a line of the CSV file is not a result")?;
    fs::write(csv.with_extension("md"), table(stem, &facts, &rows))?;
    fs::write(csv.with_extension("svg"), drawing(&facts, &rows))?;
    Ok(())
}

fn row(line: &str) -> Option<Row> {
    let [order, way, processes, _, pid_max, started, forks, nanoseconds] =
        line.split(',').collect::<Vec<_>>().try_into().ok()?;
    Some(Row {
        order: order.to_owned(),
        way: way.to_owned(),
        processes: processes.parse().ok()?,
        pid_max: pid_max.parse().ok()?,
        started: started.parse().ok()?,
        forks: forks.parse().ok()?,
        microseconds: nanoseconds.parse::<f64>().ok()? / 1000.0,
    })
}

fn time(rows: &[Row], order: &str, way: &str, processes: u64) -> Option<Time> {
    let mine =
        || rows.iter().filter(|row| row.order == order && row.way == way && row.processes == processes);
    if let Some(row) = mine().find(|row| row.started < processes) {
        // A pid that has been passed is reached again after every other pid of the namespace.
        let forks = row.pid_max as f64 * (processes - 1) as f64;
        return Some(Time::Computed(row.microseconds / row.forks as f64 * forks));
    }
    let mut times: Vec<f64> = mine().map(|row| row.microseconds).collect();
    times.sort_by(f64::total_cmp);
    let at = |share: usize| times.get((times.len().saturating_sub(1) * share + 5) / 10).copied();
    Some(Time::Measured([at(1)?, at(5)?, at(9)?]))
}

fn table(stem: &str, facts: &[&str], rows: &[Row]) -> String {
    let mut text = String::from("# Processes with the pids that they had\n\n");
    for fact in facts {
        text += &format!("- {fact}\n");
    }
    let most: Vec<String> = rows.first().map(|row| row.pid_max.to_string()).into_iter().collect();
    text += &format!("- pid_max of the namespaces: {}\n", most.concat());
    text += "
A process is root of new user and pid namespaces and starts 1 to 8 programs with chosen pids, 1,000 apart, on one CPU.
Times are from before the first start until the last program runs: the median, and in parentheses the 10th and 90th
percentile. *Rising*: each pid is 1,000 above the last one, so a spin passes 1,000 pids for each process. *Falling*:
each is 1,000 below, so from the second process on a spin passes every other pid of the namespace. A spin that falls is
measured once. *Computed* means that it was stopped, and that the time follows from its rate. A namespace's pid_max is
4,194,304 since Linux 6.14, whatever the host's is; before, it was the host's.
";
    for order in ORDERS {
        text += &format!("\n## {}\n\n| processes |", capitalized(order));
        text += &DESCRIPTIONS.map(|(title, _)| format!(" {title} |")).concat();
        text += " spin ÷ husk |\n| -: | -: | -: | -: | -: | -: |\n";
        for count in COUNTS.map(|count| u64::from(count.unsigned_abs())) {
            let times = WAYS.map(|way| time(rows, order, way, count));
            text += &format!("| {count} |");
            text += &times.iter().map(|time| format!(" {} |", cell(time.as_ref()))).collect::<String>();
            text += &match &times {
                [Some(spin), .., Some(husk)] => format!(" {:.0} |\n", spin.value() / husk.value()),
                _ => " |\n".to_owned(),
            };
        }
    }
    text + &format!("\n![Time over the number of processes]({stem}.svg)\n")
}

fn cell(time: Option<&Time>) -> String {
    match time {
        None => String::new(),
        Some(Time::Measured([low, median, high])) if low == high => readable(*median),
        Some(Time::Measured([low, median, high])) => {
            format!("{} ({}, {})", readable(*median), readable(*low), readable(*high))
        }
        Some(Time::Computed(value)) => format!("{}, computed", readable(*value)),
    }
}

fn readable(microseconds: f64) -> String {
    if microseconds < 10_000.0 {
        format!("{microseconds:.0} µs")
    } else if microseconds < 1_000_000.0 {
        format!("{:.0} ms", microseconds / 1e3)
    } else {
        format!("{:.1} s", microseconds / 1e6)
    }
}

fn capitalized(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}

fn drawing(facts: &[&str], rows: &[Row]) -> String {
    let counts = COUNTS.map(|count| u64::from(count.unsigned_abs()));
    let sizes: Vec<_> = counts.iter().map(|count| (*count, count.to_string())).collect();
    let panels = ORDERS.map(|order| Panel {
        title: format!("{} pids", capitalized(order)),
        series: WAYS
            .iter()
            .zip(DESCRIPTIONS)
            .map(|(way, (label, colour))| series(rows, order, way, label, colour))
            .collect(),
    });
    let shown = ["kernel", "CPU:", "date", "commit"];
    let facts: Vec<&str> =
        facts.iter().copied().filter(|fact| shown.iter().any(|name| fact.starts_with(name))).collect();
    let subtitle = facts.join(", ");
    plot::growth("Processes with the pids that they had", &subtitle, "processes (log scale)", &sizes, &panels)
}

fn series(rows: &[Row], order: &str, way: &str, label: &'static str, colour: &'static str) -> Series {
    let counts = COUNTS.map(|count| u64::from(count.unsigned_abs()));
    let points = counts.map(|count| time(rows, order, way, count).map(|time| time.value()));
    Series { label, style: Style { colour, dash: "none" }, points: points.to_vec() }
}
