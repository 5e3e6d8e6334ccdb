//! Divides tests among machines. Each machine computes the same division from its own list of the tests and the same
//! recorded durations; machines do not talk to each other.
//!
//! With durations, the longest test goes to the machine that has least to do, then the next one. The machines run every
//! binary of `cargo test`, so the recorded tests of other binaries count as well: otherwise each binary would
//! give its longest test to the first machine.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// How long tests took, by suite and by test, or by the unit that several tests share.
#[derive(Clone, Debug, Default)]
pub struct Durations {
    units: BTreeMap<(String, String), BTreeMap<String, u64>>,
}

/// The cost in microseconds that a test has at least: that of its sandbox.
const LEAST: u64 = 1000;
/// The cost in microseconds that a test has at most, so that sums do not overflow.
const MOST: u64 = 1 << 40;

impl Durations {
    /// Records that a test of a unit took so many microseconds. A later record of the test replaces an earlier one.
    pub fn add(&mut self, suite: String, unit: String, test: String, micros: u64) {
        self.units.entry((suite, unit)).or_default().insert(test, micros.min(MOST));
    }

    /// Returns a number that differs between different durations.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut digest = Digest::default();
        for ((suite, unit), tests) in &self.units {
            for (test, micros) in tests {
                [suite, unit, test, &micros.to_string()].into_iter().for_each(|field| digest.add(field));
            }
        }
        digest.0
    }

    /// Returns all units with what they cost.
    fn costs(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        let cost = |tests: &BTreeMap<String, u64>| {
            tests.values().fold(0_u64, |sum, micros| sum.saturating_add(*micros)).clamp(LEAST, MOST)
        };
        self.units.iter().map(move |((suite, unit), tests)| (suite.as_str(), unit.as_str(), cost(tests)))
    }

    /// Returns the median cost, which tests without a record are expected to have.
    fn median(&self) -> u64 {
        let mut costs: Vec<_> = self.costs().map(|(.., cost)| cost).collect();
        costs.sort_unstable();
        costs.get(costs.len() / 2).copied().unwrap_or(LEAST)
    }
}

/// Which tests of a suite belong to this machine.
#[derive(Clone, Copy, Debug)]
pub struct Division<'d> {
    /// The name of the suite, which is the same on all machines.
    pub suite: &'d str,
    /// The shard to run, counted from 1, and the number of shards. Every test is in exactly one shard.
    pub shard: Option<(usize, usize)>,
    /// How long tests took earlier. With it, the longest tests of a shard start first.
    pub durations: Option<&'d Durations>,
}

impl Division<'_> {
    /// Returns the indices of the tests to run, in this order. The names are those of all tests.
    pub(crate) fn chosen(&self, names: &[&str]) -> Vec<usize> {
        let (part, parts) = self.shard.unwrap_or((1, 1));
        match self.durations {
            None => (0..names.len()).filter(|place| place % parts == part - 1).collect(),
            Some(durations) => self.by_durations(durations, names, (part, parts)),
        }
    }

    fn by_durations(
        &self,
        durations: &Durations,
        names: &[&str],
        (part, parts): (usize, usize),
    ) -> Vec<usize> {
        let own: BTreeMap<_, _> = durations
            .costs()
            .filter(|(suite, ..)| *suite == self.suite)
            .map(|(_, name, cost)| (name, cost))
            .collect();
        let median = durations.median();
        let listed = names.iter().enumerate().map(|(place, name)| {
            let cost = own.get(name).copied().unwrap_or(median);
            (Reverse(cost), self.suite, *name, Some(place))
        });
        let others = durations.costs().filter(|(suite, ..)| *suite != self.suite);
        let others = others.map(|(suite, name, cost)| (Reverse(cost), suite, name, None));
        let mut tests: Vec<_> = listed.chain(others).collect();
        tests.sort_unstable();
        // More machines than tests would have nothing to do.
        let mut machines: BinaryHeap<_> =
            (0..parts.min(tests.len())).map(|machine| Reverse((0_u64, machine))).collect();
        let mut chosen = Vec::new();
        for (Reverse(cost), .., place) in tests {
            let Some(mut least) = machines.peek_mut() else { break };
            let Reverse((load, machine)) = &mut *least;
            *load = load.saturating_add(cost);
            if *machine == part - 1 {
                chosen.extend(place);
            }
        }
        chosen
    }
}

/// The tests of a suite that this machine will run, and as much about all tests as shows whether machines agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The units of this shard.
    pub names: Vec<String>,
    /// The number of units in all shards.
    pub all: usize,
    /// The [`digest`] of the names of all units.
    pub digest: u64,
}

impl Listed {
    pub(crate) fn new(all: &[&str], chosen: &[usize]) -> Self {
        let names = chosen.iter().filter_map(|place| all.get(*place)).map(|name| (*name).to_owned());
        Self { names: names.collect(), all: all.len(), digest: digest(all.iter().copied()) }
    }
}

/// Returns a number that differs between different sets of names, whatever their order. It is the same in every
/// version of husk, and is not a defence against names that were chosen to have the same digest.
pub fn digest<'n>(names: impl Iterator<Item = &'n str>) -> u64 {
    let mut digest = Digest::default();
    names.collect::<BTreeSet<_>>().into_iter().for_each(|name| digest.add(name));
    digest.0
}

/// FNV-1a with 64 bits.
struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Adds a text and its end.
    fn add(&mut self, text: &str) {
        for byte in text.bytes().chain([0xff]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Division, Durations, Listed, digest};
    use std::collections::BTreeMap;

    fn durations(tests: &[(&str, &str, u64)]) -> Durations {
        let mut durations = Durations::default();
        for (suite, test, millis) in tests {
            durations.add((*suite).to_owned(), (*test).to_owned(), (*test).to_owned(), millis * 1000);
        }
        durations
    }

    /// Returns the tests of each shard.
    fn shards<'n>(
        names: &[&'n str],
        parts: usize,
        suite: &str,
        durations: Option<&Durations>,
    ) -> Vec<Vec<&'n str>> {
        let shard = |part| {
            let division = Division { suite, shard: Some((part, parts)), durations };
            division.chosen(names).into_iter().map(|place| names[place]).collect()
        };
        (1..=parts).map(shard).collect()
    }

    #[test]
    fn shards_end_together() {
        let known =
            durations(&[("s", "a", 70), ("s", "b", 40), ("s", "c", 30), ("s", "d", 5), ("s", "gone", 900)]);
        let names = ["d", "c", "b", "a"];
        assert_eq!(shards(&names, 2, "s", Some(&known)), [vec!["a", "d"], vec!["b", "c"]]);
        assert_eq!(shards(&names, 2, "s", None), [["d", "b"], ["c", "a"]]);
        // A single machine begins with the longest test.
        let division = Division { suite: "s", shard: None, durations: Some(&known) };
        assert_eq!(division.chosen(&names), [3, 2, 1, 0]);
    }

    #[test]
    fn longest_tests_of_several_binaries_go_to_different_shards() {
        let known = durations(&[("one", "a", 100), ("one", "b", 1), ("two", "a", 99), ("two", "b", 1)]);
        assert_eq!(shards(&["a", "b"], 2, "one", Some(&known))[0], ["a"]);
        assert_eq!(shards(&["a", "b"], 2, "two", Some(&known))[1][0], "a");
    }

    #[test]
    fn test_without_a_record_counts_as_the_median() {
        let known = durations(&[("s", "a", 10), ("s", "b", 50), ("s", "c", 60)]);
        // 60, new 50, b 50, a 10.
        assert_eq!(shards(&["a", "b", "c", "new"], 2, "s", Some(&known)), [vec!["c", "a"], vec!["b", "new"]]);
    }

    /// Tries many lists, records and numbers of shards. Each list arrives in two orders.
    #[test]
    fn every_test_is_in_exactly_one_shard() {
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..300 {
            let count = random(40);
            let names: Vec<_> = (0..count).map(|number| format!("t{number}")).collect();
            let mut names: Vec<_> = names.iter().map(String::as_str).collect();
            let mut known = Durations::default();
            for _ in 0..random(60) {
                let (suite, name) = (format!("s{}", random(2)), format!("t{}", random(50)));
                let micros = [0, 1, 5, u64::MAX][random(4) as usize];
                known.add(suite, name.clone(), name, micros);
            }
            let parts = random(50) as usize + 1;
            let mut seen = BTreeMap::new();
            for (part, shard) in shards(&names, parts, "s1", Some(&known)).into_iter().enumerate() {
                shard.into_iter().for_each(|name| assert_eq!(seen.insert(name, part), None, "{name}"));
            }
            assert_eq!(seen.len(), names.len());
            names.reverse();
            for (part, shard) in shards(&names, parts, "s1", Some(&known)).into_iter().enumerate() {
                shard.into_iter().for_each(|name| assert_eq!(seen.remove(name), Some(part), "{name}"));
            }
        }
    }

    #[test]
    fn unit_takes_as_long_as_its_tests_together() {
        let mut known = durations(&[("s", "a", 50)]);
        for test in ["b::1", "b::2", "b::3"] {
            known.add("s".to_owned(), "b".to_owned(), test.to_owned(), 30_000);
        }
        // A later record replaces an earlier one.
        known.add("s".to_owned(), "a".to_owned(), "a".to_owned(), 60_000);
        let costs: Vec<_> = known.costs().collect();
        assert_eq!(costs, [("s", "a", 60_000), ("s", "b", 90_000)]);
    }

    #[test]
    fn machines_can_compare_what_they_listed() {
        let listed = Listed::new(&["b", "a", "c"], &[2]);
        assert_eq!((listed.names, listed.all), (vec!["c".to_owned()], 3));
        assert_eq!(listed.digest, digest(["a", "b", "c"].into_iter()));
        assert_ne!(digest(["ab"].into_iter()), digest(["a", "b"].into_iter()));
        // Recorded in reports, so it must not change.
        assert_eq!(digest(["a"].into_iter()), 0x089b_c907_b544_c769);
        let (one, two) = (durations(&[("s", "a", 1)]), durations(&[("s", "a", 2)]));
        assert_ne!(one.digest(), two.digest());
    }
}
