//! Compares programs with those of libseccomp for the same profiles.
//!
//! A small C program, `oracle/libseccomp.c`, calls libseccomp. It is compiled here; without a compiler or
//! libseccomp's headers the tests are skipped. The reference is version 2.5.4.

use crate::util::{self, ENGINES, Random, call, profile_of, x86_64};
use husk_seccomp::interpret::{Data, run};
use husk_seccomp::{
    Abi, Action, Arch, Argument, Comparison, Condition, Error, Instruction, Profile, Rule, Table, Warning,
    code,
};
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

#[test]
fn engines_profiles_decide_as_with_libseccomp() {
    let profiles = ENGINES.map(profile_of);
    let Some(mut answers) = ask(&profiles) else { return };
    for ((engine, profile), answer) in ENGINES.into_iter().zip(profiles).zip(&mut answers) {
        assert!(compare(engine, profile, answer, &mut Random::new(1)) == Outcome::Same);
    }
}

// With one action, overlapping rules cannot change the outcome.
#[test]
fn random_profiles_with_one_action_decide_as_with_libseccomp() {
    compare_random(150, |random| {
        let action = *random.pick(&ACTIONS);
        random_profile(random, &[action], Values::Any)
    });
}

// With several actions, the order of rules and their conflicts matter.
#[test]
fn random_profiles_with_several_actions_decide_as_with_libseccomp() {
    compare_random(300, |random| {
        let values = *random.pick(&[Values::InOrder, Values::InOrderMasked]);
        random_profile(random, &ACTIONS, values)
    });
}

fn compare_random(few: u64, make: impl Fn(&mut Random) -> Profile) {
    let count = util::rounds(few);
    let profiles: Vec<_> = (0..count).map(|seed| make(&mut Random::new(seed))).collect();
    let Some(mut answers) = ask(&profiles) else { return };
    let (mut same, mut conflicts, mut stricter, mut broken) = (0, 0, 0, 0);
    for ((seed, profile), answer) in (0..count).zip(profiles).zip(&mut answers) {
        if is_broken(&answer.program) {
            broken += 1;
            continue;
        }
        match compare(&format!("random profile {seed}"), profile, answer, &mut Random::new(seed)) {
            Outcome::Same => same += 1,
            Outcome::Conflict => conflicts += 1,
            Outcome::Stricter => stricter += 1,
        }
    }
    println!(
        "{count} profiles: {same} the same, {conflicts} refused by both, {stricter} by libseccomp alone, \
         {broken} broken by it"
    );
    assert!(same * 2 > count);
    assert!(stricter * 50 < count);
}

/// The outcome of a comparison that found no error.
#[derive(PartialEq)]
enum Outcome {
    /// The programs give the same answers.
    Same,
    /// Both report a conflict between two rules.
    Conflict,
    /// Only libseccomp reports a conflict: it did not see that one of the rules is redundant.
    Stricter,
}

const ACTIONS: [Action; 9] = [
    Action::Allow,
    Action::Errno(1),
    Action::Errno(38),
    Action::KillThread,
    Action::KillProcess,
    Action::Trap,
    Action::Trace(7),
    Action::Log,
    Action::Notify,
];

/// The values of random conditions, limited to those that libseccomp handles by its own rules. See the crate's
/// documentation for its deviations.
#[derive(Clone, Copy, PartialEq)]
enum Values {
    /// Any values, but no comparison is the opposite of another.
    Any,
    /// No upper halves, no `!=`, and `==` for equality.
    InOrder,
    /// Like `InOrder`, but with masks for equality.
    InOrderMasked,
}

fn random_profile(random: &mut Random, actions: &[Action], values: Values) -> Profile {
    let names: Vec<&str> = include_str!("../src/syscalls.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    // Few calls, so that rules overlap, and often those that x86 multiplexes.
    let mut pool: Vec<&str> = (0..random.below(8) + 2).map(|_| *random.pick(&names)).collect();
    let multiplexed = ["socket", "accept", "connect", "recvmmsg", "semop", "shmat", "socketcall", "ipc"];
    pool.extend((0..random.below(4)).map(|_| *random.pick(&multiplexed)));
    let mut architectures = vec![Arch::X86_64, Arch::X86, Arch::X32, Arch::Arm, Arch::Aarch64];
    architectures.retain(|_| !random.one_in(4));
    let default_action = loop {
        let action = *random.pick(&ACTIONS);
        if action != Action::Notify {
            break action;
        }
    };
    let most = if random.one_in(8) { 60 } else { 12 };
    let count = random.below(most);
    // libseccomp 2.5.4 and 2.6.1 forget to load a call's number if x32 is in the filter and only calls of other
    // architectures have no conditions. So this adds such a rule.
    let always =
        Rule { names: vec!["getpid".to_owned()], action: other_than(default_action), conditions: vec![] };
    let rules = (0..count)
        .map(|_| {
            let names: Vec<_> = (0..=random.below(3)).map(|_| (*random.pick(&pool)).to_owned()).collect();
            let writes = names.iter().any(|name| name == "write");
            let action = *random.pick(actions);
            let action = if writes && action == Action::Notify { Action::Allow } else { action };
            Rule { names, action, conditions: random_conditions(random, values) }
        })
        .chain([always])
        .collect();
    Profile { default_action, architectures, rules, ..Profile::default() }
}

fn other_than(action: Action) -> Action {
    if action == Action::Allow { Action::Errno(1) } else { Action::Allow }
}

fn random_conditions(random: &mut Random, values: Values) -> Vec<Condition> {
    let mut arguments: Vec<u32> = (0..6).filter(|_| random.one_in(4)).collect();
    if random.one_in(3) {
        arguments.clear();
    }
    let last = arguments.len().wrapping_sub(1);
    let mut conditions: Vec<_> = arguments
        .iter()
        .enumerate()
        .map(|(index, argument)| Condition {
            argument: Argument::new(*argument).unwrap(),
            comparison: random_comparison(random, index == last, values),
        })
        .collect();
    // Two conditions on one argument are alternatives.
    if arguments.len() == 1 && random.one_in(6) {
        conditions.push(Condition { comparison: random_comparison(random, true, values), ..conditions[0] });
    }
    if random.one_in(2) {
        conditions.reverse();
    }
    conditions
}

fn random_comparison(random: &mut Random, last: bool, values: Values) -> Comparison {
    const LOW: [u64; 9] = [0, 1, 2, 5, 0x26, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xffff_ffff];
    const HIGH: [u64; 4] = [0, 1, 0x8000_0000, 0xffff_ffff];
    let low = *random.pick(&LOW);
    let high = if random.one_in(4) { 0 } else { *random.pick(&HIGH) };
    let value = if values == Values::Any { high << 32 | low } else { low };
    // libseccomp shares the tests after a comparison of halves between rules that begin alike. This is wrong
    // unless the comparison is for equality.
    let kind = if last { random.below(7) } else { [3, 6][random.below(2)] };
    let kind = match (kind, values) {
        (0 | 6, Values::InOrder) => 3,
        (0 | 3, Values::InOrderMasked) => 6,
        (kind, _) => kind,
    };
    match kind {
        0 => Comparison::NotEqual(value ^ 0x300),
        1 => Comparison::Less(value ^ 0x500),
        2 => Comparison::LessOrEqual(value ^ 0x500),
        3 => Comparison::Equal(value),
        4 => Comparison::GreaterOrEqual(value),
        5 => Comparison::Greater(value),
        _ => {
            let mask = random.next();
            let upper =
                if random.one_in(2) && values == Values::Any { mask >> 32 << 32 & random.next() } else { 0 };
            let mask = upper | mask & 0xffff_ffff;
            Comparison::MaskedEqual { mask, value: if random.one_in(2) { value & mask } else { value } }
        }
    }
}

/// libseccomp's answer for a profile.
#[derive(Default)]
struct Answer {
    /// Names that it does not know.
    unknown: Vec<String>,
    /// Names for which it has rejected a rule.
    refused: Vec<String>,
    /// The numbers that it has for names of the profile.
    numbers: HashSet<(String, u32)>,
    program: Vec<Instruction>,
}

/// Returns whether a comparison can be reached with different values in the register. This is a bug in
/// libseccomp 2.5.4 and 2.6.1. It forgets that a path to the next test of an argument's upper half may have
/// loaded the lower half.
fn is_broken(program: &[Instruction]) -> bool {
    // The possible register values before each instruction: the offset of a word, with a mask.
    let mut before: Vec<Vec<(u32, u32)>> = vec![Vec::new(); program.len() + 1];
    before[0] = vec![(u32::MAX, 0)];
    for (at, Instruction { code, jt, jf, k }) in program.iter().enumerate() {
        let mut states = std::mem::take(&mut before[at]);
        states.sort_unstable();
        states.dedup();
        match *code {
            code::RETURN => {}
            code::LOAD => before[at + 1].push((*k, u32::MAX)),
            code::AND => before[at + 1].extend(states.iter().map(|(word, mask)| (*word, mask & k))),
            code::JUMP => before[at + 1 + *k as usize].extend(states),
            _ if states.len() > 1 => return true,
            _ => {
                before[at + 1 + usize::from(*jt)].extend(&states);
                before[at + 1 + usize::from(*jf)].extend(&states);
            }
        }
    }
    false
}

/// Compares the answers of both programs.
fn compare(what: &str, mut profile: Profile, answer: &mut Answer, random: &mut Random) -> Outcome {
    for rule in &mut profile.rules {
        rule.names.retain(|name| !answer.unknown.contains(name));
    }
    let mut unknown = HashSet::new();
    for (abi, number) in profile.rules.iter().flat_map(|rule| &rule.names).flat_map(|name| numbers(name)) {
        let new = listed(&profile, abi) && answer.numbers.insert((abi.name().to_owned(), number));
        // On x86 the oracle does not print the numbers of multiplexed calls, but it has rules for them.
        if new && abi != Abi::X86 {
            println!("{what}: libseccomp has no number {number:#x} on {}", abi.name());
            unknown.insert((abi.audit_arch(), number));
        }
    }
    let (table, warnings) = match Table::new(&profile, &x86_64()) {
        Err(Error::Conflict { call, .. }) => {
            assert!(answer.refused.iter().any(|refused| refused == call), "{what}: {call}: {profile:#?}");
            return Outcome::Conflict;
        }
        other => other.unwrap_or_else(|error| panic!("{what}: {error}: {profile:#?}")),
    };
    // Here a rule has no effect if no listed architecture has its call. In libseccomp it may have one.
    answer.refused.retain(|name| numbers(name).iter().any(|(abi, _)| listed(&profile, *abi)));
    if !answer.refused.is_empty() {
        return Outcome::Stricter;
    }
    assert_eq!(warnings, Vec::<Warning>::new());
    let program = table.program().unwrap();

    let mut count = 0;
    for data in
        calls(&profile, random).into_iter().filter(|call| !unknown.contains(&(call.arch, call.number)))
    {
        let ours = run(&program.instructions, &data).unwrap();
        let theirs = match newer(&profile, answer, &data) {
            true => Action::Errno(38).value(),
            false => run(&answer.program, &data).unwrap(),
        };
        assert!(ours == theirs, "{what}: {ours:#x} is not {theirs:#x}: {data:#x?}\n{profile:#x?}\n{table}");
        count += 1;
    }
    assert!(count > 1000);
    Outcome::Same
}

/// Returns whether runc answers `ENOSYS` because the call is newer than the profile. libseccomp does not do
/// that; runc puts its own program in front of libseccomp's.
fn newer(profile: &Profile, answer: &Answer, data: &Data) -> bool {
    if matches!(profile.default_action, Action::Allow | Action::Log | Action::Trace(_)) {
        return false;
    }
    let name = match (data.arch, data.number) {
        (0xc000_003e, 0..0x4000_0000) => "x86_64",
        (0xc000_003e, _) => "x32",
        (0x4000_0003, _) => "x86",
        _ => return false,
    };
    // x32 has separately numbered calls. runc does not know: if a profile names one of them, runc treats no
    // lower number as newer.
    let apart = |number: u32| number >= 0x4000_0200 && name == "x32";
    let numbers = answer.numbers.iter().filter(|(arch, _)| arch == name).map(|(_, number)| *number);
    let newest = numbers.clone().filter(|number| !apart(*number)).max();
    let newest_apart = numbers.filter(|number| apart(*number)).max();
    match newest_apart {
        Some(newest_apart) if apart(data.number) => data.number > newest_apart,
        _ => newest.is_some_and(|newest| data.number > newest),
    }
}

/// Returns calls with every number that may matter. Calls with conditions get all arguments that may matter.
fn calls(profile: &Profile, random: &mut Random) -> Vec<Data> {
    let mut conditions: HashMap<(u32, u32), Vec<Condition>> = HashMap::new();
    for rule in &profile.rules {
        for name in &rule.names {
            for (abi, number) in numbers(name) {
                let conditions = conditions.entry((abi.audit_arch(), number)).or_default();
                conditions.extend(&rule.conditions);
                if abi == Abi::X86 && MULTIPLEXERS.contains(&number) {
                    let selectors = [0, 1, 2, 3, 5, 6, 18, 19, 20, 21, 22, 0x1_0000_0001];
                    conditions.extend(selectors.map(|selector| Condition {
                        argument: Argument::new(0).unwrap(),
                        comparison: Comparison::Equal(selector),
                    }));
                }
            }
        }
    }
    let extremes = [
        0x3fff_ffff,
        0x4000_0000,
        0x4000_0259,
        0x7fff_ffff,
        0x8000_0000,
        0xbfff_ffff,
        0xc000_0000,
        0xffff_fffe,
        0xffff_ffff,
    ];
    let x32 = (0..=600).map(|number| 0x4000_0000 + number);
    let numbers = (0..=600).chain(x32).chain(extremes).map(|number| (Abi::X86_64, number));
    let numbers = numbers.chain((0..=600).chain(extremes).map(|number| (Abi::X86, number)));
    let mut calls = Vec::new();
    for (abi, number) in numbers.chain([(Abi::Aarch64, 63), (Abi::Arm, 3)]) {
        match conditions.get(&(abi.audit_arch(), number)) {
            Some(conditions) => {
                let arguments = util::arguments(conditions, random);
                calls.extend(arguments.into_iter().map(|arguments| call(abi, number, arguments)));
            }
            None => calls.push(call(abi, number, [(); 6].map(|()| random.next()))),
        }
    }
    calls.push(Data { arch: 0, ..calls[0] });
    calls.push(Data { arch: u32::MAX, ..calls[0] });
    calls
}

/// The numbers of x86's `socketcall` and `ipc`.
const MULTIPLEXERS: [u32; 2] = [102, 117];

fn listed(profile: &Profile, abi: Abi) -> bool {
    let arch = match abi {
        Abi::X86 => Arch::X86,
        Abi::X32 => Arch::X32,
        _ => return true,
    };
    profile.architectures.contains(&arch)
}

/// Returns the numbers for which a name may have a rule, from the list of calls.
fn numbers(name: &str) -> Vec<(Abi, u32)> {
    let line = include_str!("../src/syscalls.txt").lines().find(|line| line.split(' ').next() == Some(name));
    let Some(line) = line else { return Vec::new() };
    let columns: Vec<_> = line.split(' ').skip(1).collect();
    let abis = [Abi::X86_64, Abi::X86, Abi::X32];
    let mut numbers: Vec<_> = abis
        .into_iter()
        .zip(&columns)
        .filter_map(|(abi, column)| Some((abi, column.parse::<u32>().ok()?)))
        .map(|(abi, number)| (abi, if abi == Abi::X32 { number + 0x4000_0000 } else { number }))
        .collect();
    if let Some(multiplexed) = columns.get(5) {
        numbers.push((Abi::X86, if multiplexed.starts_with("ipc") { 117 } else { 102 }));
    }
    numbers
}

/// Sends the profiles to libseccomp and returns its answers, if the oracle is available.
fn ask(profiles: &[Profile]) -> Option<Vec<Answer>> {
    let oracle = match oracle() {
        Ok(oracle) => oracle,
        Err(reason) => {
            crate::util::skipped(format_args!("{reason}"));
            return None;
        }
    };
    let questions = profiles.iter().map(question).collect::<String>();
    let mut process =
        Command::new(oracle).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the oracle starts");
    let mut input = process.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(questions.as_bytes()));
    let mut text = String::new();
    process.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    writer.join().unwrap().unwrap();
    assert!(process.wait().unwrap().success());

    let mut answers = vec![Answer::default()];
    for line in text.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let number = |index: usize| u32::from_str_radix(words[index], 16).unwrap();
        let answer = answers.last_mut().unwrap();
        match words[0] {
            "unknown" => answer.unknown.push(words[1].to_owned()),
            "refused" => answer.refused.push(words[2].to_owned()),
            "number" => {
                answer.numbers.insert((words[1].to_owned(), number(2)));
            }
            "code" => answer.program.push(Instruction {
                code: number(1).try_into().unwrap(),
                jt: number(2).try_into().unwrap(),
                jf: number(3).try_into().unwrap(),
                k: number(4),
            }),
            "end" => answers.push(Answer::default()),
            _ => panic!("{line}"),
        }
    }
    answers.pop();
    assert_eq!(answers.len(), profiles.len());
    Some(answers)
}

/// Prints a profile for the oracle, split into rules as runc and crun pass them to libseccomp. There is one
/// rule for each name. Rules with the default action are left out. If two conditions are on the same argument,
/// each condition becomes a rule.
fn question(profile: &Profile) -> String {
    let mut text = format!("profile {:x}\n", profile.default_action.value());
    text += "arch x86_64\n";
    for (name, arch) in Arch::NAMES {
        // libseccomp would also generate code for architectures that this machine cannot run.
        let run = [Arch::X86, Arch::X32].contains(&arch);
        if run && profile.architectures.contains(&arch) {
            writeln!(text, "arch {}", name.strip_prefix("SCMP_ARCH_").unwrap().to_lowercase()).unwrap();
        }
    }
    for rule in &profile.rules {
        // Such a rule still shows how new the profile is.
        let action = rule.action.value();
        if rule.action == profile.default_action {
            rule.names.iter().for_each(|name| writeln!(text, "named {name}").unwrap());
            continue;
        }
        let words: Vec<_> = rule.conditions.iter().map(condition).collect();
        let repeated = rule.conditions.iter().enumerate().any(|(index, condition)| {
            rule.conditions[..index].iter().any(|earlier| earlier.argument == condition.argument)
        });
        for name in &rule.names {
            if repeated {
                words.iter().for_each(|words| writeln!(text, "rule {action:x} {name}{words}").unwrap());
            } else {
                writeln!(text, "rule {action:x} {name}{}", words.concat()).unwrap();
            }
        }
    }
    text + "end\n"
}

fn condition(condition: &Condition) -> String {
    let (operator, a, b) = match condition.comparison {
        Comparison::NotEqual(value) => (1, value, 0),
        Comparison::Less(value) => (2, value, 0),
        Comparison::LessOrEqual(value) => (3, value, 0),
        Comparison::Equal(value) => (4, value, 0),
        Comparison::GreaterOrEqual(value) => (5, value, 0),
        Comparison::Greater(value) => (6, value, 0),
        Comparison::MaskedEqual { mask, value } => (7, mask, value),
    };
    format!(" {} {operator} {a:x} {b:x}", condition.argument.index())
}

/// Compiles the oracle once, or returns why it is unavailable.
fn oracle() -> &'static Result<PathBuf, String> {
    static ORACLE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    ORACLE.get_or_init(|| {
        if cfg!(not(target_arch = "x86_64")) {
            return Err("the comparison is for x86_64".to_owned());
        }
        let flags = Command::new("pkg-config").args(["--cflags", "--libs", "libseccomp"]).output();
        let flags = flags.map_err(|error| format!("pkg-config: {error}"))?;
        if !flags.status.success() {
            return Err("libseccomp's headers are not installed".to_owned());
        }
        let flags = String::from_utf8_lossy(&flags.stdout).into_owned();
        util::compile("cc", "libseccomp", "libseccomp", flags.split_whitespace())
    })
}
