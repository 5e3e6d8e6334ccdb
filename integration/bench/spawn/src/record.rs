//! Keeps the numbers of each round, and computes results from them.
//!
//! The numbers are stored as CSV, after comment lines with facts about the machine. Everything in a report is computed
//! from that file, so a result can be shown again.

use crate::Failure;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A group of measurements that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Experiment {
    /// Every way to start a process.
    Start,
    /// The same in new namespaces.
    Isolation,
    /// Reading a line that the program writes.
    Output,
    /// Many small commands, from a process with busy threads.
    Batch,
}

/// The CPUs on which parent and child run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Any CPU that the scheduler chooses.
    AnyCpu,
    /// Both on the same CPU, so that no result depends on whether another one must be woken.
    OneCpu,
}

/// The meaning of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    /// Time until the call that starts the process returned.
    Returned,
    /// Time until the process was reaped.
    Reaped,
    /// Wall-clock time per start, averaged over many.
    Wall,
    /// CPU time in user space per start, averaged over many.
    User,
    /// CPU time in the kernel per start, averaged over many.
    System,
}

const EXPERIMENTS: [(Experiment, &str); 4] = [
    (Experiment::Start, "start"),
    (Experiment::Isolation, "isolation"),
    (Experiment::Output, "output"),
    (Experiment::Batch, "batch"),
];

const PLACEMENTS: [(Placement, &str); 2] = [(Placement::AnyCpu, "any"), (Placement::OneCpu, "one")];

const METRICS: [(Metric, &str); 5] = [
    (Metric::Returned, "returned"),
    (Metric::Reaped, "reaped"),
    (Metric::Wall, "wall"),
    (Metric::User, "user"),
    (Metric::System, "system"),
];

impl Experiment {
    pub(crate) fn name(self) -> &'static str {
        name_in(&EXPERIMENTS, self)
    }
}

fn name_in<T: Copy + PartialEq>(names: &[(T, &'static str)], wanted: T) -> &'static str {
    names.iter().find(|(thing, _)| *thing == wanted).map_or("", |(_, name)| name)
}

fn named<T: Copy>(names: &[(T, &'static str)], wanted: &str) -> Result<T, Failure> {
    let found = names.iter().find(|(_, name)| *name == wanted);
    found.map(|(thing, _)| *thing).ok_or_else(|| format!("there is no {wanted}").into())
}

/// Identifies what a number measures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) experiment: Experiment,
    pub(crate) contender: String,
    pub(crate) program: String,
    pub(crate) mib: u64,
    pub(crate) placement: Placement,
    pub(crate) metric: Metric,
}

/// The result of one contender in one round, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) key: Key,
    pub(crate) round: u32,
    /// The number of starts that were measured.
    pub(crate) count: usize,
    /// The median, or the mean if only totals are known.
    pub(crate) value: u64,
    /// The tenth and the ninetieth percentile, if each start was measured.
    pub(crate) spread: Option<(u64, u64)>,
}

/// All data of a run.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Results {
    /// Facts about the machine and the run.
    pub(crate) facts: Vec<(String, String)>,
    pub(crate) rows: Vec<Row>,
}

/// The medians over all rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) value: f64,
    pub(crate) spread: Option<(f64, f64)>,
    /// The number of starts in all rounds.
    pub(crate) count: usize,
}

const HEADER: &str = "experiment,contender,program,mib,cpus,metric,round,count,p10_ns,value_ns,p90_ns";

impl Results {
    pub(crate) fn to_csv(&self) -> String {
        let mut csv = String::new();
        for (name, value) in &self.facts {
            csv += &format!("# {name}: {value}\n");
        }
        csv += HEADER;
        csv.push('\n');
        for Row { key, round, count, value, spread } in &self.rows {
            let experiment = key.experiment.name();
            let cpus = name_in(&PLACEMENTS, key.placement);
            let metric = name_in(&METRICS, key.metric);
            let (p10, p90) =
                spread.map_or_else(Default::default, |(p10, p90)| (p10.to_string(), p90.to_string()));
            let Key { contender, program, mib, .. } = key;
            let written = writeln!(
                csv,
                "{experiment},{contender},{program},{mib},{cpus},{metric},{round},{count},{p10},{value},{p90}"
            );
            // Writing to a string does not fail.
            debug_assert!(written.is_ok());
        }
        csv
    }

    pub(crate) fn from_csv(csv: &str) -> Result<Self, Failure> {
        let mut results = Self::default();
        for line in csv.lines().filter(|line| *line != HEADER) {
            if let Some(fact) = line.strip_prefix("# ") {
                let (name, value) = fact.split_once(": ").ok_or_else(|| format!("not a fact: {line}"))?;
                results.facts.push((name.to_owned(), value.to_owned()));
                continue;
            }
            let fields: Vec<&str> = line.split(',').collect();
            let [experiment, contender, program, mib, cpus, metric, round, count, p10, value, p90] =
                fields[..]
            else {
                return Err(format!("not a row: {line}").into());
            };
            let key = Key {
                experiment: named(&EXPERIMENTS, experiment)?,
                contender: contender.to_owned(),
                program: program.to_owned(),
                mib: mib.parse()?,
                placement: named(&PLACEMENTS, cpus)?,
                metric: named(&METRICS, metric)?,
            };
            let spread = if p10.is_empty() { None } else { Some((p10.parse()?, p90.parse()?)) };
            let row =
                Row { key, round: round.parse()?, count: count.parse()?, value: value.parse()?, spread };
            results.rows.push(row);
        }
        Ok(results)
    }

    /// Returns the memory sizes of an experiment's parents, in MiB.
    pub(crate) fn sizes(&self, experiment: Experiment) -> Vec<u64> {
        let of_it = self.rows.iter().filter(|row| row.key.experiment == experiment);
        of_it.map(|row| row.key.mib).collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub(crate) fn summary(&self, key: &Key) -> Option<Summary> {
        let rows: Vec<&Row> = self.rounds(key).collect();
        let spreads: Option<Vec<(u64, u64)>> = rows.iter().map(|row| row.spread).collect();
        let spread = spreads.and_then(|spreads| {
            let p10 = median(spreads.iter().map(|(p10, _)| *p10 as f64))?;
            Some((p10, median(spreads.iter().map(|(_, p90)| *p90 as f64))?))
        });
        let value = median(rows.iter().map(|row| row.value as f64))?;
        Some(Summary { value, spread, count: rows.iter().map(|row| row.count).sum() })
    }

    /// Returns how many times as long one takes as another: the median of the rounds' ratios. A disturbance affects
    /// both sides of a round's ratio.
    pub(crate) fn ratio(&self, key: &Key, base: &Key) -> Option<f64> {
        median(self.rounds(key).filter_map(|row| {
            let other = self.rounds(base).find(|other| other.round == row.round)?;
            Some(row.value as f64 / other.value.max(1) as f64)
        }))
    }

    fn rounds(&self, key: &Key) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.key == *key)
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2)?;
    let lower = values.get((values.len() - 1) / 2)?;
    Some(f64::midpoint(*lower, *upper))
}

/// Returns the tenth percentile, the median and the ninetieth percentile, each as the nearest measured value.
pub(crate) fn percentiles(mut values: Vec<u64>) -> Option<[u64; 3]> {
    values.sort_unstable();
    let last = values.len().checked_sub(1)?;
    Some([10, 50, 90].map(|percent| values[(last * percent + 50) / 100]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(contender: &str, round: u32, value: u64) -> Row {
        let key = Key {
            experiment: Experiment::Start,
            contender: contender.to_owned(),
            program: "tiny".to_owned(),
            mib: 100,
            placement: Placement::OneCpu,
            metric: Metric::Reaped,
        };
        Row { key, round, count: 3, value, spread: Some((value - 1, value + 1)) }
    }

    #[test]
    fn written_results_read_back() {
        let mut rows = vec![row("bare", 0, 50), row("husk-spawn", 0, 51)];
        rows[1].spread = None;
        let facts = vec![("kernel".to_owned(), "6.18: a test".to_owned())];
        let results = Results { facts, rows };
        assert_eq!(Results::from_csv(&results.to_csv()).unwrap(), results);
    }

    #[test]
    fn percentiles_use_the_nearest_rank() {
        assert_eq!(percentiles((0..=10).rev().collect()), Some([1, 5, 9]));
        assert_eq!(percentiles(vec![7]), Some([7, 7, 7]));
        assert_eq!(percentiles(vec![]), None);
    }

    #[test]
    fn disturbed_round_does_not_change_a_ratio() {
        let rows = [("bare", [50, 500, 60]), ("fork", [100, 1000, 120])];
        let rows = rows.iter().flat_map(|(name, values)| {
            (0..).zip(values).map(|(round, value)| row(name, round, *value)).collect::<Vec<_>>()
        });
        let results = Results { facts: Vec::new(), rows: rows.collect() };
        let [bare, fork] = ["bare", "fork"].map(|name| row(name, 0, 1).key);
        assert_eq!(results.ratio(&fork, &bare), Some(2.0));
        let summary = results.summary(&bare).unwrap();
        assert_eq!(summary, Summary { value: 60.0, spread: Some((59.0, 61.0)), count: 9 });
    }
}
