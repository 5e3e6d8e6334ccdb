//! Joins what the reports of shards say, and finds what is missing in them. It reads and prints nothing.

use super::record::{Begin, Damage, End, Line, MOST_SHARDS, ReadTest};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

/// At most this many names are listed in a problem.
const MOST_NAMED: usize = 10;

/// At most this many problems of a file are listed.
const MOST_PROBLEMS: usize = 100;

/// A shard of a suite.
pub struct Shard {
    /// The index of its file.
    file: usize,
    pub begin: Begin,
    pub tests: Vec<ReadTest>,
    pub end: Option<End>,
}

/// A suite, with its shards by their places.
#[derive(Default)]
pub struct Suite {
    shards: BTreeMap<(usize, usize), Shard>,
}

impl Suite {
    pub fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.shards.values()
    }
}

/// Several reports together.
pub struct Joined {
    /// The suites by their identifiers.
    pub suites: BTreeMap<String, Suite>,
    /// The results that belong to no shard, such as those of rustdoc's tests.
    pub others: Vec<ReadTest>,
    /// Why the reports are not those of all tests.
    pub problems: Vec<String>,
    /// The number of tests without a result.
    pub not_run: usize,
}

impl Joined {
    pub fn tests(&self) -> impl Iterator<Item = &ReadTest> {
        let shards = self.suites.values().flat_map(Suite::shards);
        shards.flat_map(|shard| &shard.tests).chain(&self.others)
    }

    /// Returns the time that each shard took, with its number of tests.
    pub fn shards(&self) -> Vec<((usize, usize), usize, u64)> {
        let mut shards: BTreeMap<(usize, usize), (usize, u64)> = BTreeMap::new();
        for shard in self.suites.values().flat_map(Suite::shards) {
            let (tests, time) = shards.entry(shard.begin.shard).or_default();
            *tests += shard.tests.len();
            *time = time.saturating_add(shard.end.as_ref().map_or(0, |end| end.wall));
        }
        shards.into_iter().map(|(shard, (tests, time))| (shard, tests, time)).collect()
    }
}

/// Reports that are being read.
#[derive(Default)]
pub struct Reading {
    files: Vec<String>,
    shards: Vec<Shard>,
    /// The index of the shard of each run.
    runs: BTreeMap<String, usize>,
    /// The runs that were in an earlier file too.
    repeated: BTreeSet<String>,
    /// Results of no shard, with their files.
    others: Vec<(usize, ReadTest)>,
    /// The numbers of the damaged lines of the file, and the tests in it that belong to none of its shards.
    damaged: Names,
    stray: Names,
    /// The number of problems of the file.
    file_problems: usize,
    /// The names of suites that have several identifiers.
    ambiguous: BTreeSet<String>,
    problems: Vec<String>,
}

impl Reading {
    /// Begins a file. The next lines are from it.
    pub fn file(&mut self, name: String) {
        self.files.push(name);
        self.file_problems = 0;
    }

    /// Ends a file that could not be read for this reason, or has been read.
    pub fn end_file(&mut self, error: Option<String>) {
        let file = self.files.len().saturating_sub(1);
        let (damaged, stray) = (std::mem::take(&mut self.damaged), std::mem::take(&mut self.stray));
        if damaged.count > 0 {
            self.problem(file, &format!("is damaged in line {damaged}"));
        }
        if stray.count > 0 {
            self.problem(file, &format!("has results of shards that are not in it: {stray}"));
        }
        let why = match error {
            None if self.shards.iter().any(|shard| shard.file == file) || !self.repeated.is_empty() => return,
            None => "records no shard; write it with 'husk test --shard PART/PARTS --json FILE'".to_owned(),
            Some(error) => error,
        };
        self.problem(file, &why);
    }

    fn problem(&mut self, file: usize, why: &str) {
        self.file_problems += 1;
        let why = match self.file_problems.cmp(&MOST_PROBLEMS) {
            Ordering::Less => why,
            Ordering::Equal => "has further problems",
            Ordering::Greater => return,
        };
        let file = self.files.get(file).map_or("", String::as_str);
        self.problems.push(format!("{file}: {why}"));
    }

    pub fn line(&mut self, line: Result<Line, Damage>) {
        let file = self.files.len().saturating_sub(1);
        match line {
            Err(Damage::Line(number)) => self.damaged.add(|| number.to_string()),
            Err(Damage::CutOff(number)) => self.problem(file, &format!("is cut off in line {number}")),
            Ok(Line::Begin(begin)) => {
                if self.runs.contains_key(&begin.run) {
                    self.problem(file, &format!("repeats {}", self.named(&begin)));
                    self.repeated.insert(begin.run);
                    return;
                }
                self.runs.insert(begin.run.clone(), self.shards.len());
                self.shards.push(Shard { file, begin, tests: Vec::new(), end: None });
            }
            Ok(Line::Test(test)) if test.run.as_ref().is_some_and(|run| self.repeated.contains(run)) => {}
            Ok(Line::End(run, _)) if self.repeated.contains(&run) => {}
            Ok(Line::Test(test)) => match test.run.clone() {
                None => self.others.push((file, *test)),
                Some(run) => match self.shard(file, &run) {
                    Some(shard) => shard.tests.push(*test),
                    None => self.stray.add(|| test.row.name),
                },
            },
            Ok(Line::End(run, end)) => match self.shard(file, &run) {
                Some(shard) if shard.end.is_none() => shard.end = Some(end),
                _ => self.problem(file, "has an end without a beginning"),
            },
        }
    }

    /// Returns the name of a suite, or its identifier if another one has that name.
    fn title<'b>(&self, begin: &'b Begin) -> &'b str {
        if self.ambiguous.contains(&begin.suite) { &begin.id } else { &begin.suite }
    }

    /// Names a shard of a suite.
    fn named(&self, begin: &Begin) -> String {
        let (part, parts) = begin.shard;
        format!("{} shard {part}/{parts}", self.title(begin))
    }

    /// Returns the shard of a run in this file.
    fn shard(&mut self, file: usize, run: &str) -> Option<&mut Shard> {
        let place = *self.runs.get(run)?;
        self.shards.get_mut(place).filter(|shard| shard.file == file)
    }

    /// Joins what has been read.
    pub fn join(mut self) -> Joined {
        let mut ids: BTreeMap<&str, &str> = BTreeMap::new();
        for Shard { begin, .. } in &self.shards {
            if *ids.entry(&begin.suite).or_insert(&begin.id) != begin.id {
                self.ambiguous.insert(begin.suite.clone());
            }
        }
        let parts = self.parts();
        let mut suites: BTreeMap<String, Suite> = BTreeMap::new();
        for shard in std::mem::take(&mut self.shards) {
            let suite = suites.entry(shard.begin.id.clone()).or_default();
            match suite.shards.get(&shard.begin.shard) {
                Some(known) => {
                    let (what, at) = (self.named(&shard.begin), |file: usize| self.files.get(file).cloned());
                    let (one, other) =
                        (at(known.file).unwrap_or_default(), at(shard.file).unwrap_or_default());
                    self.problems.push(match one == other {
                        true => format!("{what} ran twice in {one}; remove the file before a run"),
                        false => format!("{what} ran twice: in {one} and in {other}"),
                    });
                }
                None => drop(suite.shards.insert(shard.begin.shard, shard)),
            }
        }
        let mut not_run = 0;
        if let Some(parts) = parts {
            self.missing(parts, &suites);
        }
        for suite in suites.values() {
            not_run += self.suite(suite, parts);
        }
        self.twice_alone();
        let others = self.others.into_iter().map(|(_, test)| test).collect();
        Joined { suites, others, problems: self.problems, not_run }
    }

    /// Returns the number of shards, if all reports agree.
    fn parts(&mut self) -> Option<usize> {
        let (first, rest) = self.shards.split_first()?;
        let parts = first.begin.shard.1;
        let other = rest.iter().find(|shard| shard.begin.shard.1 != parts);
        let Some(other) = other else { return Some(parts) };
        let at = |shard: &Shard| {
            let (part, parts) = shard.begin.shard;
            format!("{} has shard {part}/{parts}", self.files.get(shard.file).map_or("", String::as_str))
        };
        let problem = format!("{} and {}: these are not parts of one whole", at(first), at(other));
        self.problems.push(problem);
        None
    }

    /// Reports shards that are missing in all suites, and then those in some.
    fn missing(&mut self, parts: usize, suites: &BTreeMap<String, Suite>) {
        let of =
            |suite: &Suite| -> BTreeSet<usize> { suite.shards().map(|shard| shard.begin.shard.0).collect() };
        let found: BTreeSet<_> = suites.values().flat_map(of).collect();
        let everywhere: Vec<_> = (1..=parts.min(MOST_SHARDS)).filter(|part| !found.contains(part)).collect();
        // There may be as many suites as shards, so only the first names of each are looked for.
        let sentence = |count: usize, missing: &mut dyn Iterator<Item = usize>| {
            let first = missing.take(MOST_NAMED).map(|part| format!("{part}/{parts}")).collect();
            let (noun, verb) = if count == 1 { ("shard", "is") } else { ("shards", "are") };
            format!("{noun} {} {verb} missing", Names { first, count })
        };
        if !everywhere.is_empty() {
            self.problems.push(sentence(everywhere.len(), &mut everywhere.iter().copied()));
        }
        for suite in suites.values() {
            let has = of(suite);
            let count = found.len() - has.len();
            let begin = suite.shards().next().map(|shard| &shard.begin);
            if let Some(begin) = begin.filter(|_| count > 0) {
                let sentence = sentence(count, &mut found.difference(&has).copied());
                self.problems.push(format!("{}: {sentence}", self.title(begin)));
            }
        }
    }

    /// Checks the shards of a suite against each other. Returns the number of tests without a result.
    fn suite(&mut self, suite: &Suite, parts: Option<usize>) -> usize {
        let Some(first) = suite.shards().next() else { return 0 };
        let title = self.title(&first.begin).to_owned();
        let (listed, durations) = (&first.begin.listed, first.begin.durations);
        let mut agree = true;
        for shard in suite.shards() {
            let (one, other) = (self.named(&first.begin), self.named(&shard.begin));
            if shard.begin.durations != durations {
                agree = false;
                self.problems.push(format!("{one} and {other} were divided by different --durations"));
            } else if (shard.begin.listed.all, shard.begin.listed.digest) != (listed.all, listed.digest) {
                agree = false;
                self.problems.push(format!("{one} and {other} have different tests"));
            }
        }
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        let mut twice: BTreeMap<(usize, usize), Vec<&str>> = BTreeMap::new();
        for Shard { begin, .. } in suite.shards() {
            for name in &begin.listed.names {
                if let Some(before) = places.insert(name, begin.shard.0) {
                    twice.entry((before, begin.shard.0)).or_default().push(name);
                }
            }
        }
        let total = first.begin.shard.1;
        for ((one, other), names) in twice {
            let names = some(names.into_iter());
            self.problems
                .push(format!("{title}: ran twice, in shards {one}/{total} and {other}/{total}: {names}"));
        }
        let is_whole = agree && parts == Some(suite.shards.len());
        if is_whole
            && (places.len() != listed.all || crate::runner::digest(places.into_keys()) != listed.digest)
        {
            self.problems.push(format!("{title}: tests that were listed are in no shard, so they never ran"));
        }
        suite.shards().map(|shard| self.results(shard)).sum()
    }

    /// Checks the results of a shard. Returns the number of tests without one.
    fn results(&mut self, shard: &Shard) -> usize {
        let Shard { begin, tests, end, file } = shard;
        let what = self.named(begin);
        // A program may give two of its results one name.
        let alone = tests.iter().filter(|test| test.unit == test.row.name).map(|test| test.unit.as_str());
        let mut seen = BTreeSet::new();
        let twice: Vec<_> = alone.filter(|name| !seen.insert(*name)).collect();
        if !twice.is_empty() {
            self.problems.push(format!("{what}: ran twice: {}", some(twice.into_iter())));
        }
        seen.extend(tests.iter().map(|test| test.unit.as_str()));
        let never: Vec<_> =
            begin.listed.names.iter().map(String::as_str).filter(|name| !seen.contains(name)).collect();
        let Some(end) = end else {
            let names = some(never.iter().copied());
            let which = if never.is_empty() { String::new() } else { format!("; without a result: {names}") };
            self.problem(*file, &format!("the report of {what} ends too early{which}"));
            return never.len();
        };
        if end.results != tests.len() {
            let why = format!("{what} has {} results of {}", tests.len(), end.results);
            self.problem(*file, &why);
        }
        let not_begun: BTreeSet<&str> = end.not_begun.iter().map(String::as_str).collect();
        let begun: Vec<_> = never.iter().copied().filter(|name| !not_begun.contains(name)).collect();
        if !begun.is_empty() {
            self.problems.push(format!("{what}: never ran: {}", some(begun.into_iter())));
        }
        if end.not_run > 0 {
            let names = some(end.not_begun.iter().map(String::as_str));
            self.problems.push(format!("{what}: {} tests were not run: {names}", end.not_run));
        }
        end.not_run.max(never.len())
    }

    /// Reports results of no shard that two files have. One file may have a test that nextest has run again.
    fn twice_alone(&mut self) {
        let mut places: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let mut twice = Vec::new();
        for (file, test) in &self.others {
            let before = places.insert((&test.suite, &test.row.name), *file);
            if let Some(before) = before.filter(|before| before != file) {
                let at = |file: usize| self.files.get(file).map_or("", String::as_str);
                let name = &test.row.name;
                twice.push(format!(
                    "{}: {name} ran twice: in {} and in {}",
                    test.suite,
                    at(before),
                    at(*file)
                ));
            }
        }
        self.problems.extend(twice);
    }
}

/// The first of many names, and the number of all.
#[derive(Default)]
struct Names {
    first: Vec<String>,
    count: usize,
}

impl Names {
    fn add(&mut self, name: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < MOST_NAMED {
            self.first.push(name());
        }
    }
}

impl Display for Names {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.first.join(", "))?;
        match self.count - self.first.len() {
            0 => Ok(()),
            more => write!(f, " and {more} others"),
        }
    }
}

/// Returns the first names, and how many others there are.
fn some<'n>(names: impl ExactSizeIterator<Item = &'n str>) -> Names {
    let count = names.len();
    Names { first: names.take(MOST_NAMED).map(str::to_owned).collect(), count }
}
