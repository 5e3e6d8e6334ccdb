//! The decision table: what happens to a call, for every number of every architecture.
//!
//! [`emit`](crate::emit) sees nothing but the table, and `husk plan --seccomp` prints it. The meaning of a
//! profile's rules for a single number is in [`rules`].

use crate::arch::{Abi, Machine, Width};
use crate::error::{Error, Warning};
use crate::interpret::Data;
use crate::profile::{Action, Argument, Comparison, Condition, Flags, Profile, Rule};
use crate::rules::{self, ArgumentTest};
use crate::syscalls::Syscall;

/// The same number on all architectures that husk runs on.
pub(crate) const ENOSYS: u16 = 38;

/// The decision for every system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The action if no rule matches.
    pub default_action: Action,
    /// The flags to install the filter with.
    pub flags: Flags,
    /// The architectures: the native one first, then x32. A call of any other kills its thread.
    pub sections: Vec<Section>,
    /// The distinct decisions that ranges refer to.
    decisions: Vec<Decision>,
}

/// The decisions for one ABI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The ABI whose system calls this section lists.
    pub abi: Abi,
    /// The reason why the table has this section.
    pub presence: Presence,
    /// The highest number that the profile names, in the range where Linux adds new calls.
    pub newest: Option<u32>,
    /// All numbers of the ABI, in order and without gaps. Neighbours have different decisions.
    pub ranges: Vec<Range>,
}

/// The reason why a table has a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is native, or the profile lists it.
    Listed,
    /// The profile does not list it, but the kernel reports another ABI's architecture for it: x32 on x86-64.
    Unlisted,
    /// Like `Unlisted`, but the profile lists it and this kernel does not run it.
    NotRun,
}

/// Consecutive numbers that share a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first number.
    pub first: u32,
    /// The last number.
    pub last: u32,
    pub(crate) decision: DecisionId,
}

/// An index into the table's decisions. Equal decisions have equal indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecisionId(u16);

/// The decision for a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The same action for all arguments.
    Action(Action),
    /// Depends on the arguments. The first test that matches and leads to an action decides; otherwise the
    /// table's default action applies.
    Tests {
        /// How many bits of an argument are compared.
        width: Width,
        /// The tests in the order in which they are tried.
        tests: Vec<ArgumentTest>,
    },
}

impl Table {
    /// Computes the meaning of the profile on the machine.
    ///
    /// # Errors
    ///
    /// If a notification would have to wait for itself, or two rules conflict.
    pub fn new(profile: &Profile, machine: &Machine) -> Result<(Self, Vec<Warning>), Error> {
        let mut warnings = Vec::new();
        let flags = flags(profile, &mut warnings)?;
        let named = resolve(profile, &mut warnings);
        let chains: Vec<_> = profile.rules.iter().map(rules::alternatives).collect();

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

    /// Returns the decision for a range of this table.
    #[must_use]
    pub fn decision(&self, range: Range) -> &Decision {
        self.decision_with(range.decision)
    }

    pub(crate) fn decision_with(&self, id: DecisionId) -> &Decision {
        &self.decisions[usize::from(id.0)]
    }

    /// Returns the action for a call.
    #[must_use]
    pub fn look_up(&self, data: &Data) -> Action {
        let sections = self.sections.iter().filter(|section| section.abi.audit_arch() == data.arch);
        let range = sections
            .flat_map(|section| &section.ranges)
            .find(|range| (range.first..=range.last).contains(&data.number));
        match range.map(|range| self.decision(*range)) {
            // libseccomp's default for architectures that are not in a filter.
            None => Action::KillThread,
            Some(Decision::Action(action)) => *action,
            Some(Decision::Tests { width, tests }) => {
                rules::first_that_holds(tests, *width, &data.arguments).unwrap_or(self.default_action)
            }
        }
    }

    fn section(
        &mut self,
        abi: Abi,
        profile: &Profile,
        named: &[NamedCall],
        chains: &[Vec<Vec<Condition>>],
    ) -> Result<Section, Error> {
        let (mut newest, mut newest_apart) = (None, None);
        let mut entries = Vec::with_capacity(named.len());
        for &NamedCall { rule, call } in named {
            let direct = call.number(abi).map(|number| (number, None));
            let multiplexed = call.multiplexed(abi).map(|call| (call.number, Some(call.selector)));
            for (number, selector) in direct.into_iter().chain(multiplexed) {
                let newest_of_kind =
                    if number < abi.growth_limit() { &mut newest } else { &mut newest_apart };
                *newest_of_kind = Some(number).max(*newest_of_kind);
                // libseccomp rejects a rule with the default action, so runc and crun skip it.
                if profile.rules[rule].action != self.default_action {
                    entries.push(RuleEntry { number, order: entries.len(), rule, call, selector });
                }
            }
        }
        entries.sort_unstable_by_key(|entry| (entry.number, entry.order));

        let mut found = Vec::with_capacity(entries.len() + 2);
        for entries in entries.chunk_by(|one, other| one.number == other.number) {
            let number = entries[0].number;
            let decision = decide(abi, entries, profile, chains)?;
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

    /// Creates the section of an ABI that is not in the filter. As in libseccomp, its calls kill the thread.
    /// The exception is the number that a tracer sets to skip a call, which must not kill.
    fn unlisted(&mut self, abi: Abi) -> Section {
        let (first, last) = abi.numbers();
        let foreign = self.intern(Decision::Action(Action::KillThread));
        let default = self.intern(Decision::Action(self.default_action));
        let ranges = cover(first, last, &[(first, last - 1, foreign)], default);
        Section { abi, presence: Presence::Unlisted, newest: None, ranges }
    }

    /// Creates the section of an ABI that the kernel does not run. Its calls get `ENOSYS`, as from the kernel,
    /// unless the default action lets them pass to the kernel.
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

    #[expect(clippy::cast_possible_truncation, reason = "there are fewer calls")]
    fn intern(&mut self, decision: Decision) -> DecisionId {
        let index = self.decisions.iter().position(|known| *known == decision);
        DecisionId(index.unwrap_or_else(|| {
            self.decisions.push(decision);
            self.decisions.len() - 1
        }) as u16)
    }
}

/// A rule's index, and a call that it names.
struct NamedCall {
    rule: usize,
    call: &'static Syscall,
}

/// A rule for one number.
struct RuleEntry {
    number: u32,
    /// The position among all entries, in the order of the profile.
    order: usize,
    rule: usize,
    call: &'static Syscall,
    /// The value of the first argument, for a multiplexed call.
    selector: Option<u8>,
}

/// Returns the flags to install with. Fails if a notification would have to wait for itself.
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

/// Returns the calls that rules name, in the order of the profile.
fn resolve(profile: &Profile, warnings: &mut Vec<Warning>) -> Vec<NamedCall> {
    let mut named = Vec::with_capacity(profile.rules.iter().map(|rule| rule.names.len()).sum());
    for (rule, Rule { names, .. }) in profile.rules.iter().enumerate() {
        for name in names {
            match Syscall::named(name) {
                Some(call) => named.push(NamedCall { rule, call }),
                None => warnings.push(Warning::UnknownCall { rule, name: name.clone() }),
            }
        }
    }
    named
}

/// Returns the ABIs that get a section.
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

/// Returns whether calls newer than the profile get `ENOSYS` instead of the default action. A program that
/// tries a new call first then falls back to an older one. runc does the same for the same default actions
/// (libcontainer/seccomp/patchbpf). If the default lets calls pass, new calls pass too.
const fn answers_newer_calls(default_action: Action) -> bool {
    !matches!(default_action, Action::Allow | Action::Log | Action::Trace(_))
}

/// Combines all rules for one number.
fn decide(
    abi: Abi,
    entries: &[RuleEntry],
    profile: &Profile,
    chains: &[Vec<Vec<Condition>>],
) -> Result<Decision, Error> {
    let mut tests = Vec::new();
    let mut narrowed = Vec::new();
    for entry in entries {
        let action = profile.rules[entry.rule].action;
        for chain in &chains[entry.rule] {
            narrowed.clear();
            let chain = match entry.selector {
                None => &chain[..],
                // The selector replaces a condition on the first argument.
                Some(selector) => {
                    let comparison = Comparison::Equal(u64::from(selector));
                    narrowed.push(Condition { argument: Argument::FIRST, comparison });
                    &chain[chain.partition_point(|condition| condition.argument == Argument::FIRST)..]
                }
            };
            narrowed.extend(chain.iter().filter_map(|condition| rules::narrow(*condition, abi.width())));
            if narrowed.is_empty() {
                return Ok(Decision::Action(action));
            }
            rules::add(&mut tests, &narrowed, action).map_err(|rules::Conflict| Error::Conflict {
                rule: entry.rule,
                call: entry.call.name(),
                abi,
            })?;
        }
    }
    Ok(Decision::Tests { width: abi.width(), tests })
}

/// Returns ranges from `first` to `last`. `found` is sorted and without overlap; the gaps get the default.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arch;
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, MaskedEqual, NotEqual};

    const EPERM: Action = Action::Errno(1);

    fn profile<const N: usize>(rules: [Rule; N]) -> Profile {
        Profile { default_action: EPERM, rules: rules.to_vec(), ..Profile::default() }
    }

    fn rule<const N: usize>(name: &str, action: Action, conditions: [(u32, Comparison); N]) -> Rule {
        let conditions = conditions.map(|(argument, comparison)| Condition {
            argument: Argument::new(argument).unwrap(),
            comparison,
        });
        Rule { names: vec![name.to_owned()], action, conditions: conditions.to_vec() }
    }

    fn table(profile: &Profile) -> Table {
        let (table, warnings) = Table::new(profile, &Machine::new(Abi::X86_64)).unwrap();
        assert_eq!(warnings, []);
        table
    }

    /// Returns the action for an ioctl call.
    fn ioctl(table: &Table, arguments: [u64; 6]) -> Action {
        table.look_up(&Data { number: 16, arch: Abi::X86_64.audit_arch(), arguments, ..Data::default() })
    }

    /// Returns the printed lines of one section, without its name.
    fn section(table: &Table, abi: Abi) -> Vec<String> {
        let text = table.to_string();
        let lines = text.lines().map(str::trim).skip_while(|line| line.split(' ').next() != Some(abi.name()));
        let is_heading = |line: &&str| {
            !line.starts_with(|first: char| first.is_ascii_digit())
                && !line.contains(": ")
                && !line.starts_with("otherwise")
        };
        lines
            .skip(1)
            .take_while(|line| !is_heading(line))
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect()
    }

    #[test]
    fn rule_without_conditions_overrides_rules_with_conditions() {
        let with = rule("ioctl", Action::Allow, [(1, Equal(5))]);
        let without = rule("ioctl", Action::Trap, []);
        for rules in [[with.clone(), without.clone()], [without, with]] {
            assert_eq!(ioctl(&table(&profile(rules)), [0, 5, 0, 0, 0, 0]), Action::Trap);
        }
    }

    #[test]
    fn first_rule_without_conditions_counts() {
        let rules = [rule("ioctl", Action::Log, []), rule("ioctl", Action::Trap, [])];
        assert_eq!(ioctl(&table(&profile(rules)), [0; 6]), Action::Log);
    }

    #[test]
    fn rule_equal_to_the_default_is_dropped() {
        let rules = [rule("ioctl", Action::Allow, [(1, Equal(5))]), rule("ioctl", EPERM, [])];
        let table = table(&profile(rules));
        assert_eq!(ioctl(&table, [0, 5, 0, 0, 0, 0]), Action::Allow);
        assert_eq!(ioctl(&table, [0, 6, 0, 0, 0, 0]), EPERM);
    }

    #[test]
    fn same_conditions_with_another_action_are_an_error() {
        let rules = [
            rule("ioctl", Action::Allow, [(1, Equal(5)), (0, Less(3))]),
            rule("read", Action::Allow, []),
            rule("ioctl", Action::Trap, [(0, Less(3)), (1, Equal(5))]),
        ];
        let error = Table::new(&profile(rules), &Machine::new(Abi::X86_64)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "linux.seccomp.syscalls[2].args: an earlier entry has another action for ioctl under these \
             conditions (on x86_64)"
        );
    }

    #[test]
    fn duplicate_rules_are_merged() {
        let one = rule("ioctl", Action::Allow, [(1, Equal(5))]);
        assert_eq!(table(&profile([one.clone(), one.clone()])), table(&profile([one])));
    }

    #[test]
    fn conditions_that_differ_in_the_upper_half_are_equal_on_x86() {
        let mut profile = profile([
            rule("ioctl", Action::Allow, [(1, Equal(5))]),
            rule("ioctl", Action::Trap, [(1, Equal(0x1_0000_0005))]),
        ]);
        assert_eq!(ioctl(&table(&profile), [0, 0x1_0000_0005, 0, 0, 0, 0]), Action::Trap);
        profile.architectures = vec![Arch::X86];
        let error = Table::new(&profile, &Machine::new(Abi::X86_64)).unwrap_err();
        assert_eq!(error, Error::Conflict { rule: 1, call: "ioctl", abi: Abi::X86 });
    }

    #[test]
    fn later_rule_with_more_conditions_is_ignored() {
        let fewer = rule("ioctl", Action::Allow, [(0, Equal(1))]);
        let more = rule("ioctl", Action::Trap, [(0, Equal(1)), (1, Equal(2))]);
        let both = table(&profile([fewer.clone(), more.clone()]));
        assert_eq!(ioctl(&both, [1, 2, 0, 0, 0, 0]), Action::Allow);
        let error = Table::new(&profile([more, fewer]), &Machine::new(Abi::X86_64)).unwrap_err();
        assert!(matches!(error, Error::Conflict { rule: 1, .. }));
    }

    // Otherwise the second rule would stay and conflict with the third.
    #[test]
    fn redundant_rule_causes_no_conflict() {
        let rules = [
            rule("ioctl", Action::Allow, [(2, Equal(7))]),
            rule("ioctl", Action::Allow, [(0, Equal(1)), (2, Equal(7))]),
            rule("ioctl", Action::Trap, [(0, Equal(1))]),
        ];
        let lines = section(&table(&profile(rules)), Abi::X86_64);
        assert_eq!(lines[1..4], ["16 test ioctl", "a2 == 0x7: allow", "a0 == 0x1: trap"]);
    }

    #[test]
    fn rule_with_fewer_conditions_replaces_rules_with_more() {
        let rules = [
            rule("ioctl", Action::Allow, [(0, Equal(1)), (1, Equal(2))]),
            rule("ioctl", Action::Allow, [(0, Equal(1)), (2, Equal(3))]),
            rule("ioctl", Action::Allow, [(0, Equal(1))]),
        ];
        let lines = section(&table(&profile(rules)), Abi::X86_64);
        assert_eq!(lines[1..4], ["16 test ioctl", "a0 == 0x1: allow", "otherwise errno 1 (EPERM)"]);
    }

    #[test]
    fn comparisons_are_emitted_in_a_fixed_order() {
        let rules = [
            rule("ioctl", Action::Errno(9), [(0, Greater(1))]),
            rule("ioctl", Action::Errno(8), [(0, GreaterOrEqual(7))]),
            rule("ioctl", Action::Errno(7), [(0, Less(9))]),
            rule("ioctl", Action::Errno(6), [(0, Less(4))]),
            rule("ioctl", Action::Errno(5), [(0, Equal(3))]),
            rule("ioctl", Action::Errno(4), [(0, MaskedEqual { mask: 6, value: 7 })]),
            rule("ioctl", Action::Errno(3), [(1, NotEqual(0)), (2, Equal(1))]),
            rule("ioctl", Action::Errno(2), [(1, NotEqual(0)), (3, Equal(1))]),
        ];
        assert_eq!(
            section(&table(&profile(rules)), Abi::X86_64)[1..11],
            [
                "16 test ioctl",
                "a1 != 0x0 and a3 == 0x1: errno 2 (ENOENT)",
                "a1 != 0x0 and a2 == 0x1: errno 3",
                "a0 & 0x6 == 0x6: errno 4",
                "a0 == 0x3: errno 5",
                "a0 < 0x4: errno 6",
                "a0 < 0x9: errno 7",
                "a0 >= 0x7: errno 8",
                "a0 > 0x1: errno 9",
                "otherwise errno 1 (EPERM)",
            ]
        );
    }

    #[test]
    fn two_conditions_on_one_argument_are_alternatives() {
        let conditions = [(0, Equal(1)), (1, Equal(5)), (1, Equal(7))];
        let table = table(&profile([rule("ioctl", Action::Allow, conditions)]));
        for arguments in [[1, 0], [0, 5], [0, 7]] {
            assert_eq!(ioctl(&table, [arguments[0], arguments[1], 0, 0, 0, 0]), Action::Allow);
        }
        assert_eq!(ioctl(&table, [0, 6, 0, 0, 0, 0]), EPERM);
    }

    #[test]
    fn condition_with_a_zero_mask_is_dropped() {
        let nothing = MaskedEqual { mask: 0, value: 7 };
        let upper = MaskedEqual { mask: 0xffff_ffff_0000_0000, value: 0 };
        let mut profile =
            profile([rule("ioctl", Action::Allow, [(1, nothing)]), rule("fcntl", Action::Log, [(1, upper)])]);
        profile.architectures = vec![Arch::X86];
        let table = table(&profile);
        assert_eq!(ioctl(&table, [0; 6]), Action::Allow);
        assert_eq!(section(&table, Abi::X86_64)[3], "72 test fcntl");
        assert!(section(&table, Abi::X86).contains(&"55 log fcntl".to_owned()));
    }

    #[test]
    fn x86_multiplexed_calls_are_told_apart_by_selector() {
        let mut profile = profile([
            rule("socket", Action::Allow, [(0, Equal(2)), (1, Equal(1))]),
            rule("accept", Action::Allow, []),
            rule("shmat", Action::Log, []),
        ]);
        profile.architectures = vec![Arch::X86];
        assert_eq!(
            section(&table(&profile), Abi::X86),
            [
                "0-101 errno 1 (EPERM) restart_syscall .. ioperm (102 calls)",
                "102 test socketcall",
                "a0 == 0x5: allow",
                "a0 == 0x1 and a1 == 0x1: allow",
                "otherwise errno 1 (EPERM)",
                "103-116 errno 1 (EPERM) syslog .. sysinfo (14 calls)",
                "117 test ipc",
                "a0 == 0x15: log",
                "otherwise errno 1 (EPERM)",
                "118-358 errno 1 (EPERM) fsync .. execveat (237 calls)",
                "359 test socket",
                "a0 == 0x2 and a1 == 0x1: allow",
                "otherwise errno 1 (EPERM)",
                "360-396 errno 1 (EPERM) socketpair .. shmctl (31 calls)",
                "397 log shmat",
                "398 and up errno 38 (ENOSYS) newer than the profile",
            ]
        );
    }

    #[test]
    fn unknown_syscall_names_are_dropped_with_a_warning() {
        let mut unknown = rule("read", Action::Allow, []);
        unknown.names.push("raed".to_owned());
        let profile = profile([rule("write", Action::Allow, []), unknown]);
        let (table, warnings) = Table::new(&profile, &Machine::new(Abi::X86_64)).unwrap();
        assert_eq!(
            warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["linux.seccomp.syscalls[1].names: unknown system call \"raed\" ignored"]
        );
        assert_eq!(section(&table, Abi::X86_64)[0], "0-1 allow read write");
    }

    // A call of another architecture is not a mistake.
    #[test]
    fn syscall_names_of_other_architectures_are_dropped() {
        let profile =
            profile([rule("riscv_flush_icache", Action::Allow, []), rule("set_tls", Action::Allow, [])]);
        assert_eq!(
            section(&table(&profile), Abi::X86_64),
            ["0 and up errno 1 (EPERM) read .. rseq_slice_yield (385 calls)"]
        );
    }

    #[test]
    fn newer_calls_return_enosys_unless_the_default_lets_them_pass() {
        for (action, newer) in [
            (EPERM, true),
            (Action::KillThread, true),
            (Action::KillProcess, true),
            (Action::Trap, true),
            (Action::Allow, false),
            (Action::Log, false),
            (Action::Trace(1), false),
        ] {
            let rules = [rule("read", Action::Errno(2), []), rule("clone3", action, [])];
            let profile = Profile { default_action: action, ..profile(rules) };
            let table = table(&profile);
            let number =
                |number| table.look_up(&Data { number, arch: Abi::X86_64.audit_arch(), ..Data::default() });
            // Even a rule that is ignored shows how new the profile is.
            assert_eq!(number(435), action);
            assert_eq!(number(436), if newer { Action::Errno(38) } else { action });
        }
    }

    #[test]
    fn profile_without_rules_knows_no_newer_calls() {
        let table = table(&profile([]));
        assert_eq!(
            section(&table, Abi::X86_64),
            ["0 and up errno 1 (EPERM) read .. rseq_slice_yield (385 calls)"]
        );
    }

    // ARM's private calls and x32's old ones have high numbers, but are not new.
    #[test]
    fn calls_with_private_numbers_do_not_make_a_profile_newer() {
        let mut profile = profile([
            rule("clone3", Action::Allow, []),
            rule("set_tls", Action::Allow, []),
            rule("preadv2", Action::Allow, []),
        ]);
        profile.architectures = vec![Arch::Arm, Arch::X32];
        let (table, _) = Table::new(&profile, &Machine::new(Abi::Aarch64)).unwrap();
        assert_eq!(
            section(&table, Abi::Arm)[3..],
            [
                "435 allow clone3",
                "436-0xeffff errno 38 (ENOSYS) newer than the profile",
                "0xf0000-0xf0004 errno 1 (EPERM) breakpoint cacheflush usr26 usr32",
                "0xf0005 allow set_tls",
                "0xf0006 and up errno 38 (ENOSYS) newer than the profile",
            ]
        );
        let (table, _) = Table::new(&profile, &Machine::new(Abi::X86_64)).unwrap();
        assert_eq!(
            section(&table, Abi::X32)[1..],
            [
                "435 allow clone3",
                "436-511 errno 38 (ENOSYS) newer than the profile",
                "512-545 errno 1 (EPERM) rt_sigaction .. execveat (34 calls)",
                "546 allow preadv2",
                "547 and up errno 38 (ENOSYS) newer than the profile",
            ]
        );
    }

    #[test]
    fn x32_calls_depend_on_profile_and_kernel() {
        let mut profile = profile([rule("read", Action::Allow, [])]);
        let x32 = |profile: &Profile, machine| {
            let (table, _) = Table::new(profile, &machine).unwrap();
            section(&table, Abi::X32)
        };
        let machine = Machine::new(Abi::X86_64);
        let unlisted =
            ["0-0xbffffffe kill thread read .. pwritev2 (374 calls)", "0xbfffffff errno 1 (EPERM)"];
        assert_eq!(x32(&profile, machine.clone()), unlisted);
        assert_eq!(x32(&profile, machine.clone().without(Abi::X32)), unlisted);
        profile.architectures = vec![Arch::X32];
        assert_eq!(
            x32(&profile, machine.clone()),
            ["0 allow read", "1 and up errno 38 (ENOSYS) newer than the profile"]
        );
        let not_run = machine.without(Abi::X32);
        assert_eq!(
            x32(&profile, not_run.clone()),
            ["0 and up errno 38 (ENOSYS) read .. pwritev2 (374 calls)"]
        );
        profile.default_action = Action::Log;
        assert_eq!(x32(&profile, not_run), ["0 and up log read .. pwritev2 (374 calls)"]);
    }

    #[test]
    fn native_architecture_is_always_included_and_foreign_ones_never() {
        let profile = profile([rule("read", Action::Allow, [])]);
        let all = Profile { architectures: Arch::NAMES.map(|(_, arch)| arch).to_vec(), ..profile.clone() };
        let abis = |profile: &Profile, machine: &Machine| -> Vec<_> {
            let (table, _) = Table::new(profile, machine).unwrap();
            table.sections.iter().map(|section| section.abi).collect()
        };
        let machine = Machine::new(Abi::X86_64);
        assert_eq!(abis(&profile, &machine), [Abi::X86_64, Abi::X32]);
        assert_eq!(abis(&all, &machine), [Abi::X86_64, Abi::X32, Abi::X86]);
        assert_eq!(abis(&all, &machine.without(Abi::X86)), [Abi::X86_64, Abi::X32]);
        let machine = Machine::new(Abi::Aarch64);
        assert_eq!(abis(&profile, &machine), [Abi::Aarch64]);
        assert_eq!(abis(&all, &machine), [Abi::Aarch64, Abi::Arm]);
    }

    #[test]
    fn notification_of_a_call_the_runtime_needs_is_refused() {
        let error = |profile| Table::new(&profile, &Machine::new(Abi::X86_64)).unwrap_err().to_string();
        let by_default = Profile { default_action: Action::Notify, ..profile([]) };
        assert_eq!(error(by_default), "linux.seccomp.defaultAction: SCMP_ACT_NOTIFY cannot be the default");
        let write = profile([rule("read", Action::Allow, []), rule("write", Action::Notify, [])]);
        assert_eq!(
            error(write),
            "linux.seccomp.syscalls[1]: SCMP_ACT_NOTIFY cannot be used for the write syscall"
        );
    }

    #[test]
    fn notify_rule_sets_the_listener_flag() {
        let wait = Flags::WAIT_KILLABLE_RECV | Flags::LOG;
        let notify = Profile { flags: wait, ..profile([rule("mount", Action::Notify, [])]) };
        let program = table(&notify).program().unwrap();
        assert!(program.notifies());
        assert_eq!(program.flags.bits(), 1 << 1 | 1 << 3 | 1 << 5);

        let without = Profile { flags: wait, ..profile([]) };
        let (table, warnings) = Table::new(&without, &Machine::new(Abi::X86_64)).unwrap();
        assert_eq!(table.flags, Flags::LOG);
        assert_eq!(
            warnings[0].to_string(),
            "linux.seccomp.flags: SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV ignored without SCMP_ACT_NOTIFY"
        );
        assert!(!table.program().unwrap().notifies());
    }
}
