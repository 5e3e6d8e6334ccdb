//! Decides when each contender runs.
//!
//! Each number comes from its own process. In a round every contender runs once. The order changes from round to round,
//! so that a temporary disturbance of the machine affects all contenders alike. Each part has a share of the time:
//! another round begins only if it should end within that share.

use crate::contenders::{Contender, Side, contenders, returns_early};
use crate::record::{Experiment, Key, Metric, Placement, Results, Row, percentiles};
use crate::{Failure, machine};
use husk_spawn::{Command, Stdio};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Paths of the other programs.
#[derive(Default)]
pub(crate) struct Files {
    /// The contenders in C.
    pub(crate) competitors: PathBuf,
    /// The program without libc.
    pub(crate) tiny: PathBuf,
}

/// The extent of a whole run.
pub(crate) struct Effort {
    /// Memory of the parents in "start" and "isolation", in MiB.
    sizes: &'static [u64],
    start: Part,
    isolation: Part,
    /// Memory of the parents in "output", in MiB.
    output_sizes: &'static [u64],
    output: Part,
    /// Memory of the parents in "batch", in MiB. There is only one size.
    batch_sizes: &'static [u64],
    batch: Part,
    /// A remark for the reader of the results.
    note: Option<&'static str>,
}

/// The extent of one experiment.
struct Part {
    /// The maximum number of rounds.
    rounds: u32,
    /// How long all rounds of one size may take. The first round always runs.
    share: Duration,
    /// The time to add to `share` for each GiB that must be touched first.
    share_of_gib: Duration,
    /// The maximum number of starts of a program.
    limit: usize,
    /// How long a program is started repeatedly. A short budget allows many rounds: a machine with other load is slower
    /// for seconds at a time.
    budget: Duration,
    /// The time to add to `budget` for each GiB, since fork is slow then and rounds are few.
    budget_of_gib: Duration,
}

/// Returns the extent of the whole benchmark: ten to twelve minutes, half of them for touching 8 GiB.
pub(crate) fn full() -> Effort {
    let seconds = Duration::from_secs;
    Effort {
        sizes: &[0, 100, 1 << 10, 8 << 10],
        start: Part {
            rounds: 8,
            share: seconds(50),
            share_of_gib: seconds(20),
            limit: 5000,
            budget: Duration::from_millis(100),
            budget_of_gib: Duration::from_millis(25),
        },
        isolation: Part {
            rounds: 5,
            share: seconds(12),
            share_of_gib: seconds(4),
            limit: 5000,
            budget: Duration::from_millis(100),
            budget_of_gib: Duration::from_millis(25),
        },
        output_sizes: &[0, 1 << 10],
        output: Part {
            rounds: 3,
            share: seconds(30),
            share_of_gib: seconds(4),
            limit: 2000,
            budget: seconds(1),
            budget_of_gib: Duration::ZERO,
        },
        batch_sizes: &[500],
        batch: Part {
            rounds: 2,
            share: seconds(130),
            share_of_gib: seconds(0),
            limit: BATCH_STARTS,
            budget: seconds(60),
            budget_of_gib: Duration::ZERO,
        },
        note: None,
    }
}

/// The number of starts in a batch.
pub(crate) const BATCH_STARTS: usize = 12_500;

/// Returns the extent of a quick check that everything works, which takes seconds.
pub(crate) fn smoke() -> Effort {
    let part = || Part {
        rounds: 1,
        share: Duration::ZERO,
        share_of_gib: Duration::ZERO,
        limit: 20,
        budget: Duration::from_millis(20),
        budget_of_gib: Duration::ZERO,
    };
    Effort {
        sizes: &[0, 100],
        start: part(),
        isolation: part(),
        output_sizes: &[0, 100],
        output: part(),
        batch_sizes: &[100],
        batch: part(),
        note: Some("a smoke run: it proves that the benchmark works, its numbers mean nothing"),
    }
}

/// A program's name in the results, and its path.
type Program = (&'static str, String);

/// Runs all experiments.
pub(crate) fn measure(
    files: &Files,
    effort: &Effort,
    mut facts: Vec<(String, String)>,
) -> Result<Results, Failure> {
    let tiny: Program = ("tiny", path(&files.tiny)?);
    let dynamic: Program = ("true", "/bin/true".to_owned());
    let mut run = Run { files, this: path(&std::env::current_exe()?)?, results: Results::default() };

    facts.extend(machine::facts());
    let libc = run.print(Side::C, &["libc".to_owned()])?;
    facts.push(("libc of the contenders in C".to_owned(), libc.trim().to_owned()));
    if let Some(note) = effort.note {
        facts.push(("note".to_owned(), note.to_owned()));
    }
    run.results.facts = facts;

    run.experiment(Experiment::Start, &effort.start, effort.sizes, &[&tiny, &dynamic])?;
    if run.may_isolate(&tiny) {
        run.experiment(Experiment::Isolation, &effort.isolation, effort.sizes, &[&tiny])?;
    }
    run.experiment(Experiment::Output, &effort.output, effort.output_sizes, &[&tiny])?;
    run.experiment(Experiment::Batch, &effort.batch, effort.batch_sizes, &[&tiny])?;
    Ok(run.results)
}

struct Run<'a> {
    files: &'a Files,
    this: String,
    results: Results,
}

impl Run<'_> {
    fn experiment(
        &mut self,
        experiment: Experiment,
        part: &Part,
        sizes: &[u64],
        programs: &[&Program],
    ) -> Result<(), Failure> {
        for &mib in sizes {
            // The memory itself, its page tables, which fork doubles, and everything else.
            let needed = mib + mib / 8 + 512;
            let available = machine::available();
            if available < needed {
                let why = format!("{mib} MiB: {available} MiB are available, {needed} are needed");
                self.skipped(experiment, &why);
                continue;
            }
            self.rounds(experiment, part, mib, programs)?;
        }
        Ok(())
    }

    fn rounds(
        &mut self,
        experiment: Experiment,
        part: &Part,
        mib: u64,
        programs: &[&Program],
    ) -> Result<(), Failure> {
        let all = contenders(experiment);
        let begun = Instant::now();
        let share = part.share + gib(mib, part.share_of_gib);
        let mut longest = Duration::ZERO;
        for round in 0..part.rounds {
            if round > 0 && begun.elapsed() + longest > share {
                break;
            }
            eprintln!("{}, {mib} MiB touched, round {} of {}", experiment.name(), round + 1, part.rounds);
            let this_round = Instant::now();
            for contender in order(all, round) {
                self.contender(experiment, contender, part, mib, round, programs)?;
            }
            longest = longest.max(this_round.elapsed());
        }
        Ok(())
    }

    fn contender(
        &mut self,
        experiment: Experiment,
        contender: &Contender,
        part: &Part,
        mib: u64,
        round: u32,
        programs: &[&Program],
    ) -> Result<(), Failure> {
        let protocol = match experiment {
            Experiment::Start | Experiment::Isolation => "start",
            Experiment::Output => "output",
            Experiment::Batch => "batch",
        };
        let mut arguments = vec![protocol.to_owned(), contender.name.to_owned(), mib.to_string()];
        arguments.push(part.limit.to_string());
        let budget = part.budget + gib(mib, part.budget_of_gib);
        arguments.push(budget.as_millis().to_string());
        arguments.extend(programs.iter().map(|(_, path)| path.clone()));
        let printed = self.print(contender.side, &arguments)?;

        let key = |program: &str, placement, metric| Key {
            experiment,
            contender: contender.name.to_owned(),
            program: program.to_owned(),
            mib,
            placement,
            metric,
        };
        if protocol == "start" {
            let starts = numbers::<3>(&printed)?;
            let placements = [Placement::AnyCpu, Placement::OneCpu];
            let all = programs.iter().flat_map(|(program, _)| placements.map(|cpus| (program, cpus)));
            for (index, (program, cpus)) in (0..).zip(all) {
                let of_it = || starts.iter().filter(|[series, ..]| *series == index);
                let reaped = of_it().map(|[_, _, reaped]| *reaped).collect();
                self.keep(key(program, cpus, Metric::Reaped), round, reaped)?;
                if returns_early(contender) {
                    let returned = of_it().map(|[_, returned, _]| *returned).collect();
                    self.keep(key(program, cpus, Metric::Returned), round, returned)?;
                }
            }
            return Ok(());
        }
        let [[starts, wall, user, system]] = numbers::<4>(&printed)?[..] else {
            return Err(format!("{} printed something else than totals", contender.name).into());
        };
        for (metric, total) in [(Metric::Wall, wall), (Metric::User, user), (Metric::System, system)] {
            let (count, value) = (usize::try_from(starts)?, total / starts.max(1));
            let key = key(programs[0].0, Placement::AnyCpu, metric);
            self.results.rows.push(Row { key, round, count, value, spread: None });
        }
        Ok(())
    }

    fn keep(&mut self, key: Key, round: u32, times: Vec<u64>) -> Result<(), Failure> {
        let count = times.len();
        let [p10, value, p90] =
            percentiles(times).ok_or_else(|| format!("{} measured nothing", key.contender))?;
        self.results.rows.push(Row { key, round, count, value, spread: Some((p10, p90)) });
        Ok(())
    }

    /// Returns whether this process may create namespaces. The contender that is not husk's tries it.
    fn may_isolate(&mut self, (_, tiny): &Program) -> bool {
        let arguments = ["start", "bare-isolated-net", "0", "1", "0", tiny].map(str::to_owned);
        let refused = self.print(Side::C, &arguments).err();
        if refused.is_some() {
            self.skipped(Experiment::Isolation, "new namespaces are refused here");
        }
        refused.is_none()
    }

    fn skipped(&mut self, experiment: Experiment, why: &str) {
        eprintln!("{}, skipped: {why}", experiment.name());
        self.results.facts.push((format!("skipped of {}", experiment.name()), why.to_owned()));
    }

    /// Runs one contender and returns what it printed.
    fn print(&self, side: Side, arguments: &[String]) -> Result<String, Failure> {
        let mut command = match side {
            Side::C => Command::new(&self.files.competitors),
            Side::Rust => {
                let mut command = Command::new(&self.this);
                command.arg("contend");
                command
            }
        };
        let output =
            command.args(arguments).env_clear().envs(environment()).stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(format!("{}: {}", arguments.join(" "), output.status).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// Multiplies a duration by the number of whole GiB.
fn gib(mib: u64, each: Duration) -> Duration {
    each.saturating_mul(u32::try_from(mib / 1024).unwrap_or(u32::MAX))
}

/// Returns all contenders, beginning with another one in each round. Every second round is reversed, so that no
/// contender always follows the same one.
fn order(all: &[Contender], round: u32) -> Vec<&Contender> {
    let mut order: Vec<&Contender> = all.iter().collect();
    // Five has no common divisor with any number of contenders here.
    order.rotate_left((round as usize * 5) % all.len());
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Returns the environment of every contender and every program it starts. It is as large as that of a login shell, and
/// the same on every machine. Some ways to start a process copy it.
fn environment() -> Vec<(String, String)> {
    let mut environment = vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())];
    environment.extend((1..24).map(|number| (format!("VARIABLE_{number}"), format!("{number:-^40}"))));
    environment
}

/// Parses lines of numbers with commas between them.
fn numbers<const N: usize>(text: &str) -> Result<Vec<[u64; N]>, Failure> {
    text.lines()
        .map(|line| {
            let fields = line.split(',').map(str::parse).collect::<Result<Vec<u64>, _>>()?;
            <[u64; N]>::try_from(fields).map_err(|_| format!("not {N} numbers: {line}").into())
        })
        .collect()
}

fn path(path: &std::path::Path) -> Result<String, Failure> {
    let path = path.to_str().ok_or_else(|| format!("{} is not UTF-8", path.display()))?;
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_runs_all_contenders_and_starts_with_another() {
        for experiment in [Experiment::Start, Experiment::Isolation, Experiment::Output, Experiment::Batch] {
            let all = contenders(experiment);
            let mut firsts = Vec::new();
            for round in 0..5 {
                let mut names: Vec<_> = order(all, round).iter().map(|contender| contender.name).collect();
                firsts.push(names[0]);
                names.sort_unstable();
                names.dedup();
                assert_eq!(names.len(), all.len());
            }
            firsts.sort_unstable();
            firsts.dedup();
            assert!(firsts.len() >= 3, "{firsts:?}");
        }
    }

    #[test]
    fn csv_lines_of_numbers_are_parsed() {
        assert_eq!(numbers::<2>("1,2\n3,4\n").unwrap(), [[1, 2], [3, 4]]);
        assert!(numbers::<2>("1,2,3\n").is_err());
    }
}
