//! The decision table: for every number of every architecture, what happens to the call.
//!
//! Here a profile gets its meaning, which is libseccomp's (see the crate's documentation for the
//! rules in words). The table is all that [`emit`](crate::emit) sees, and what a person reads.

use crate::arch::{Abi, Machine, Width};
use crate::error::{Error, Warning};
use crate::interpret::Data;
use crate::profile::{Action, Comparison, Condition, Flags, Profile, Rule};
use crate::syscalls::Call;

/// `ENOSYS`, the same number wherever husk runs.
pub(crate) const ENOSYS: u16 = 38;

/// What happens to every call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// What happens where no rule holds.
    pub default_action: Action,
    /// How the filter is to be installed.
    pub flags: Flags,
    /// The architectures, the native one first, x32 right behind it. The thread that makes a call of
    /// any other is killed.
    pub sections: Vec<Section>,
    /// What ranges refer to. All differ.
    decisions: Vec<Decision>,
}

/// The calls of one architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The architecture.
    pub abi: Abi,
    /// Why it is here.
    pub presence: Presence,
    /// The highest number that the profile names, where new calls are added.
    pub newest: Option<u32>,
    /// All its numbers, in order, without a gap. Neighbours differ.
    pub ranges: Vec<Range>,
}

/// Why a table has a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is native, or the profile lists it.
    Listed,
    /// Its numbers are among those of another: x32 in the eyes of an x86-64 kernel.
    Unlisted,
    /// The same, and the profile lists it, but this kernel has no such calls.
    NotRun,
}

/// Numbers that share a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub first: u32,
    /// The last.
    pub last: u32,
    /// What happens to them.
    pub(crate) decision: DecisionId,
}

/// An index into the table's decisions: equal if the decisions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecisionId(u16);

/// What happens to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Always the same.
    Action(Action),
    /// It depends on the arguments: the first test that holds and leads to an action decides. If none
    /// does, it is the table's default action.
    Tests {
        /// How much of an argument is compared.
        width: Width,
        /// In the order they are made.
        tests: Vec<Test>,
    },
}

/// A condition, and what follows if it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// The condition; its numbers fit the width.
    pub condition: Condition,
    /// What follows.
    pub then: Then,
}

/// What follows a condition that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// The end.
    Action(Action),
    /// More tests. If none of them holds, the one beside the first is next.
    Tests(Vec<Test>),
}

impl Table {
    /// What the profile means on the machine.
    ///
    /// # Errors
    ///
    /// If a notification would have to wait for itself, and if two rules disagree.
    pub fn new(profile: &Profile, machine: &Machine) -> Result<(Self, Vec<Warning>), Error> {
        let mut warnings = Vec::new();
        let flags = flags(profile, &mut warnings)?;
        let named = resolve(profile, &mut warnings);
        let chains: Vec<_> = profile.rules.iter().map(chains).collect();

        let mut table =
            Self { default_action: profile.default_action, flags, sections: vec![], decisions: vec![] };
        for (abi, presence) in abis(profile, machine) {
            let section = match presence {
                Presence::Listed => table.section(abi, profile, &named, &chains)?,
                Presence::Unlisted => table.unlisted(abi),
                Presence::NotRun => table.not_run(abi),
            };
            table.sections.push(section);
        }
        Ok((table, warnings))
    }

    /// The decision about a range of this table.
    #[must_use]
    pub fn decision(&self, range: Range) -> &Decision {
        self.decision_with(range.decision)
    }

    pub(crate) fn decision_with(&self, id: DecisionId) -> &Decision {
        &self.decisions[usize::from(id.0)]
    }

    /// What happens to a call.
    #[must_use]
    pub fn look_up(&self, data: &Data) -> Action {
        let sections = self.sections.iter().filter(|section| section.abi.audit_arch() == data.arch);
        let range = sections
            .flat_map(|section| &section.ranges)
            .find(|range| (range.first..=range.last).contains(&data.number));
        match range.map(|range| self.decision(*range)) {
            // libseccomp's default for an architecture that is not in a filter.
            None => Action::KillThread,
            Some(Decision::Action(action)) => *action,
            Some(Decision::Tests { width, tests }) => {
                first_that_holds(tests, *width, &data.arguments).unwrap_or(self.default_action)
            }
        }
    }

    fn section(
        &mut self,
        abi: Abi,
        profile: &Profile,
        named: &[Named],
        chains: &[Vec<Vec<Condition>>],
    ) -> Result<Section, Error> {
        let (mut newest, mut newest_apart) = (None, None);
        let mut entries = Vec::with_capacity(named.len());
        for &Named { rule, call } in named {
            let direct = call.number(abi).map(|number| (number, None));
            let multiplexed = call.multiplexed(abi).map(|call| (call.number, Some(call.selector)));
            for (number, selector) in direct.into_iter().chain(multiplexed) {
                let newest_of_kind =
                    if number < abi.growth_limit() { &mut newest } else { &mut newest_apart };
                *newest_of_kind = Some(number).max(*newest_of_kind);
                // libseccomp refuses such a rule, so that runc and crun leave it out.
                if profile.rules[rule].action != self.default_action {
                    entries.push(Entry { number, order: entries.len(), rule, call, selector });
                }
            }
        }
        entries.sort_unstable_by_key(|entry| (entry.number, entry.order));

        let mut found = Vec::with_capacity(entries.len() + 2);
        for entries in entries.chunk_by(|one, other| one.number == other.number) {
            let number = entries[0].number;
            let decision = decide(abi, entries, &profile.rules, chains)?;
            found.push((number, number, self.intern(decision)));
        }
        let (first, last) = abi.numbers();
        if answers_newer_calls(self.default_action) {
            let newer = self.intern(Decision::Action(Action::Errno(ENOSYS)));
            if let (Some(newest), Some(_)) = (newest, newest_apart) {
                let place = found.partition_point(|(number, ..)| *number <= newest);
                found.insert(place, (newest + 1, abi.growth_limit() - 1, newer));
            }
            if let Some(newest) = newest_apart.or(newest) {
                found.push((newest + 1, last, newer));
            }
        }
        let default = self.intern(Decision::Action(self.default_action));
        Ok(Section { abi, presence: Presence::Listed, newest, ranges: cover(first, last, &found, default) })
    }

    /// As libseccomp has it: a call of an ABI that is not in the filter, except for the number that a
    /// tracer sets to skip a call, which must not kill.
    fn unlisted(&mut self, abi: Abi) -> Section {
        let (first, last) = abi.numbers();
        let foreign = self.intern(Decision::Action(Action::KillThread));
        let default = self.intern(Decision::Action(self.default_action));
        let ranges = cover(first, last, &[(first, last - 1, foreign)], default);
        Section { abi, presence: Presence::Unlisted, newest: None, ranges }
    }

    /// What the kernel would say itself, unless the profile is one that lets the kernel say it.
    fn not_run(&mut self, abi: Abi) -> Section {
        let (first, last) = abi.numbers();
        let action = if answers_newer_calls(self.default_action) {
            Action::Errno(ENOSYS)
        } else {
            self.default_action
        };
        let decision = self.intern(Decision::Action(action));
        Section { abi, presence: Presence::NotRun, newest: None, ranges: cover(first, last, &[], decision) }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a decision needs an instruction, of which few fit")]
    fn intern(&mut self, decision: Decision) -> DecisionId {
        let index = self.decisions.iter().position(|known| *known == decision);
        DecisionId(index.unwrap_or_else(|| {
            self.decisions.push(decision);
            self.decisions.len() - 1
        }) as u16)
    }
}

/// A call that a rule names.
struct Named {
    rule: usize,
    call: &'static Call,
}

/// A rule for a number.
struct Entry {
    number: u32,
    /// Rules count in the order of the profile.
    order: usize,
    rule: usize,
    call: &'static Call,
    /// What the first argument must be, for a multiplexed call.
    selector: Option<u8>,
}

/// The flags to install with, and whether notifications can work.
fn flags(profile: &Profile, warnings: &mut Vec<Warning>) -> Result<Flags, Error> {
    if profile.default_action == Action::Notify {
        return Err(Error::NotifyByDefault);
    }
    let mut notify = profile.rules.iter().enumerate().filter(|(_, rule)| rule.action == Action::Notify);
    if let Some((rule, _)) = notify.clone().find(|(_, rule)| rule.names.iter().any(|name| name == "write")) {
        return Err(Error::NotifyWrite { rule });
    }
    if notify.next().is_some() {
        return Ok(profile.flags | Flags::NEW_LISTENER);
    }
    if profile.flags.contains(Flags::WAIT_KILLABLE_RECV) {
        warnings.push(Warning::NothingToReceive);
    }
    Ok(profile.flags.without(Flags::WAIT_KILLABLE_RECV))
}

/// The calls that rules name, in the order of the profile.
fn resolve(profile: &Profile, warnings: &mut Vec<Warning>) -> Vec<Named> {
    let mut named = Vec::with_capacity(profile.rules.iter().map(|rule| rule.names.len()).sum());
    for (rule, Rule { names, .. }) in profile.rules.iter().enumerate() {
        for name in names {
            match Call::named(name) {
                Some(call) => named.push(Named { rule, call }),
                None => warnings.push(Warning::UnknownCall { rule, name: name.clone() }),
            }
        }
    }
    named
}

/// The sections a table has.
fn abis(profile: &Profile, machine: &Machine) -> Vec<(Abi, Presence)> {
    let mut listed = vec![machine.native];
    for abi in profile.architectures.iter().filter_map(|arch| arch.abi(machine)) {
        if !listed.contains(&abi) {
            listed.push(abi);
        }
    }
    let mut abis = vec![(machine.native, Presence::Listed)];
    if machine.native == Abi::X86_64 {
        let presence = match (listed.contains(&Abi::X32), machine.others.contains(&Abi::X32)) {
            (true, true) => Presence::Listed,
            (true, false) => Presence::NotRun,
            (false, _) => Presence::Unlisted,
        };
        abis.push((Abi::X32, presence));
    }
    let others = listed.into_iter().filter(|abi| *abi != Abi::X32 && machine.others.contains(abi));
    abis.extend(others.map(|abi| (abi, Presence::Listed)));
    abis
}

/// A rule's conditions, in the order of their arguments. Several lists are alternatives.
fn chains(rule: &Rule) -> Vec<Vec<Condition>> {
    let mut all = rule.conditions.clone();
    all.sort_by_key(|condition| condition.argument);
    if all.windows(2).any(|pair| pair[0].argument == pair[1].argument) {
        return rule.conditions.iter().map(|condition| vec![*condition]).collect();
    }
    vec![all]
}

/// Whether calls that are newer than the profile get `ENOSYS` instead of the default action, so that
/// a program which tries a new call first goes on to the older one. So does runc, and for the same
/// default actions (libcontainer/seccomp/patchbpf): what lets calls pass, lets new ones pass.
const fn answers_newer_calls(default_action: Action) -> bool {
    !matches!(default_action, Action::Allow | Action::Log | Action::Trace(_))
}

/// What several rules say about one number.
fn decide(
    abi: Abi,
    entries: &[Entry],
    rules: &[Rule],
    chains: &[Vec<Vec<Condition>>],
) -> Result<Decision, Error> {
    let mut tests = Vec::new();
    let mut narrowed = Vec::new();
    for entry in entries {
        let action = rules[entry.rule].action;
        for chain in &chains[entry.rule] {
            narrowed.clear();
            let chain = match entry.selector {
                None => &chain[..],
                // The selector takes the place of a condition on the first argument.
                Some(selector) => {
                    narrowed.push(Condition {
                        argument: FIRST,
                        comparison: Comparison::Equal(u64::from(selector)),
                    });
                    &chain[chain.partition_point(|condition| condition.argument == FIRST)..]
                }
            };
            narrowed.extend(chain.iter().filter_map(|condition| narrow(*condition, abi.width())));
            if narrowed.is_empty() {
                return Ok(Decision::Action(action));
            }
            insert(&mut tests, &narrowed, action).map_err(|Conflict| Error::Conflict {
                rule: entry.rule,
                call: entry.call.name(),
                abi,
            })?;
        }
    }
    Ok(Decision::Tests { width: abi.width(), tests })
}

const FIRST: crate::profile::Argument = match crate::profile::Argument::new(0) {
    Some(argument) => argument,
    None => panic!("a call has a first argument"),
};

/// The condition in as many bits as count, unless it holds always.
fn narrow(condition: Condition, width: Width) -> Option<Condition> {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, MaskedEqual, NotEqual};
    let bits = match width {
        Width::Word32 => u64::from(u32::MAX),
        Width::Word64 => u64::MAX,
    };
    let comparison = match condition.comparison {
        NotEqual(value) => NotEqual(value & bits),
        Less(value) => Less(value & bits),
        LessOrEqual(value) => LessOrEqual(value & bits),
        Equal(value) => Equal(value & bits),
        GreaterOrEqual(value) => GreaterOrEqual(value & bits),
        Greater(value) => Greater(value & bits),
        MaskedEqual { mask, .. } if mask & bits == 0 => return None,
        MaskedEqual { mask, value } => MaskedEqual { mask: mask & bits, value: value & mask & bits },
    };
    Some(Condition { comparison, ..condition })
}

/// Two rules disagree.
struct Conflict;

/// Adds a rule to those of a number. This is where libseccomp's order is made; the crate's
/// documentation has it in words.
fn insert(level: &mut Vec<Test>, chain: &[Condition], action: Action) -> Result<(), Conflict> {
    let [condition, rest @ ..] = chain else { return Ok(()) };
    for (index, test) in level.iter_mut().enumerate() {
        if test.condition == *condition {
            return match &mut test.then {
                Then::Action(earlier) if rest.is_empty() && *earlier != action => Err(Conflict),
                // The earlier rule holds wherever this one does.
                Then::Action(_) => Ok(()),
                Then::Tests(tests) if !rest.is_empty() => insert(tests, rest, action),
                // This rule holds wherever the earlier ones do.
                Then::Tests(tests) if all_lead_to(tests, action) => {
                    test.then = Then::Action(action);
                    Ok(())
                }
                Then::Tests(_) => Err(Conflict),
            };
        }
        if rank(test.condition) < rank(*condition) {
            level.insert(index, new_test(*condition, rest, action));
            return Ok(());
        }
    }
    level.push(new_test(*condition, rest, action));
    Ok(())
}

fn new_test(condition: Condition, rest: &[Condition], action: Action) -> Test {
    let then = match rest {
        [] => Then::Action(action),
        [next, rest @ ..] => Then::Tests(vec![new_test(*next, rest, action)]),
    };
    Test { condition, then }
}

fn all_lead_to(tests: &[Test], action: Action) -> bool {
    tests.iter().all(|test| match &test.then {
        Then::Action(found) => *found == action,
        Then::Tests(tests) => all_lead_to(tests, action),
    })
}

/// Of two conditions the one with the higher rank is tested first; of equals the earlier.
fn rank(condition: Condition) -> (u8, u8, u64) {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, MaskedEqual, NotEqual};
    let (kind, value) = match condition.comparison {
        Equal(value) | NotEqual(value) | MaskedEqual { value, .. } => (3, value),
        Less(value) | LessOrEqual(value) => (2, !value),
        Greater(value) | GreaterOrEqual(value) => (1, value),
    };
    (condition.argument.index(), kind, value)
}

/// Ranges from `first` to `last`: those found, which are in order and apart, and the default between
/// them.
fn cover(first: u32, last: u32, found: &[(u32, u32, DecisionId)], default: DecisionId) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    let mut add = |first, last, decision| match ranges.last_mut() {
        Some(before) if before.decision == decision => before.last = last,
        _ => ranges.push(Range { first, last, decision }),
    };
    let mut next = Some(first);
    for &(start, end, decision) in found {
        if let Some(next) = next.filter(|next| *next < start) {
            add(next, start - 1, default);
        }
        add(start, end, decision);
        next = end.checked_add(1);
    }
    if let Some(next) = next.filter(|next| *next <= last) {
        add(next, last, default);
    }
    ranges
}

fn first_that_holds(tests: &[Test], width: Width, arguments: &[u64; 6]) -> Option<Action> {
    tests.iter().find_map(|Test { condition, then }| {
        let argument = arguments[usize::from(condition.argument.index())];
        let argument = match width {
            Width::Word32 => argument & u64::from(u32::MAX),
            Width::Word64 => argument,
        };
        match then {
            _ if !condition.comparison.holds(argument) => None,
            Then::Action(action) => Some(*action),
            Then::Tests(tests) => first_that_holds(tests, width, arguments),
        }
    })
}
