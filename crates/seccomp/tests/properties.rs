//! Checks properties that hold for every profile, with pseudo-random profiles.

use crate::util::{self, ENGINES, Random, call, profile_of, x86_64};
use husk_seccomp::interpret::{Data, run};
use husk_seccomp::{
    Abi, Action, Arch, Argument, ArgumentTest, Comparison, Condition, Decision, Error, Instruction,
    MAX_INSTRUCTIONS, Machine, Profile, Rule, Table, Then, code,
};
use std::collections::BTreeMap;

const ACTIONS: [Action; 6] =
    [Action::Allow, Action::Errno(1), Action::Errno(38), Action::Trap, Action::Log, Action::KillProcess];

#[test]
fn programs_decide_as_their_tables() {
    for (machine, seed) in [(x86_64(), 0), (Machine::new(Abi::Aarch64), 1 << 32)] {
        for seed in seed..seed + util::rounds(50) {
            let random = &mut Random::new(seed);
            let profile = random_profile(random, 30);
            let Ok((table, _)) = Table::new(&profile, &machine) else { continue };
            check(&format!("random profile {seed}"), &table, random);
        }
    }
}

// Long programs need intermediate jumps.
#[test]
fn long_programs_decide_as_their_tables() {
    let mut longest = 0;
    for seed in 0..util::rounds(4) {
        let random = &mut Random::new(seed);
        let profile = random_profile(random, 400);
        let Ok((table, _)) = Table::new(&profile, &x86_64()) else { continue };
        match table.program() {
            Ok(program) => longest = program.instructions.len().max(longest),
            Err(error) => {
                assert!(matches!(error, Error::TooLong { length } if length > MAX_INSTRUCTIONS));
                continue;
            }
        }
        check(&format!("long random profile {seed}"), &table, random);
    }
    assert!(longest > 1000, "the longest has {longest} instructions");
}

#[test]
fn engines_programs_decide_as_their_tables() {
    for engine in ENGINES {
        let profile = profile_of(engine);
        for machine in [x86_64(), x86_64().without(Abi::X32), x86_64().without(Abi::X86)] {
            let (table, _) = Table::new(&profile, &machine).unwrap();
            check(engine, &table, &mut Random::new(7));
        }
    }
}

#[test]
fn program_over_the_length_limit_is_an_error() {
    let rules = (0..1500)
        .map(|value| Rule {
            names: vec!["ioctl".to_owned()],
            action: Action::Allow,
            conditions: vec![equal(1, value), equal(2, value)],
        })
        .collect();
    let profile = Profile { default_action: Action::Errno(1), rules, ..Profile::default() };
    let (table, _) = Table::new(&profile, &x86_64()).unwrap();
    let error = table.program().unwrap_err();
    assert!(matches!(error, Error::TooLong { length } if length > MAX_INSTRUCTIONS));
    let text = error.to_string();
    assert!(text.starts_with("linux.seccomp.syscalls: "), "{text}");
    assert!(text.ends_with(" instructions; the kernel accepts at most 4096"), "{text}");
}

// seccompiler compiles the same comparisons independently.
#[test]
fn comparisons_match_those_of_seccompiler() {
    let random = &mut Random::new(3);
    for round in 0..700 {
        let value = random.next() >> random.below(64) << random.below(8);
        let mask = random.next() & random.next();
        let (comparison, operator) = match round % 7 {
            0 => (Comparison::NotEqual(value), seccompiler::SeccompCmpOp::Ne),
            1 => (Comparison::Less(value), seccompiler::SeccompCmpOp::Lt),
            2 => (Comparison::LessOrEqual(value), seccompiler::SeccompCmpOp::Le),
            3 => (Comparison::Equal(value), seccompiler::SeccompCmpOp::Eq),
            4 => (Comparison::GreaterOrEqual(value), seccompiler::SeccompCmpOp::Ge),
            5 => (Comparison::Greater(value), seccompiler::SeccompCmpOp::Gt),
            _ => (Comparison::MaskedEqual { mask, value }, seccompiler::SeccompCmpOp::MaskedEq(mask)),
        };
        let argument = random.below(6) as u8;
        let condition = Condition { argument: Argument::new(argument.into()).unwrap(), comparison };
        let profile = Profile {
            default_action: Action::Log,
            rules: vec![Rule {
                names: vec!["ioctl".to_owned()],
                action: Action::Allow,
                conditions: vec![condition],
            }],
            ..Profile::default()
        };
        let ours = Table::new(&profile, &x86_64()).unwrap().0.program().unwrap();
        let theirs = by_seccompiler(argument, operator, value);
        for arguments in util::arguments(&[condition], random) {
            let data = call(Abi::X86_64, 16, arguments);
            assert_eq!(
                run(&ours.instructions, &data),
                run(&theirs, &data),
                "{condition} {arguments:#x?} {:#x?}",
                ours.instructions
            );
        }
    }
}

fn by_seccompiler(argument: u8, operator: seccompiler::SeccompCmpOp, value: u64) -> Vec<Instruction> {
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCondition, SeccompFilter, SeccompRule,
    };
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Qword, operator, value).unwrap();
    let rules = BTreeMap::from([(16, vec![SeccompRule::new(vec![condition]).unwrap()])]);
    let architecture = seccompiler::TargetArch::x86_64;
    let filter = SeccompFilter::new(rules, SeccompAction::Log, SeccompAction::Allow, architecture).unwrap();
    let program = BpfProgram::try_from(filter).unwrap();
    program.iter().map(|i| Instruction { code: i.code, jt: i.jt, jf: i.jf, k: i.k }).collect()
}

/// Checks all properties of a table and its program.
fn check(what: &str, table: &Table, random: &mut Random) {
    ranges_have_no_gap(what, table);
    let program = match table.program() {
        Ok(program) => program.instructions,
        Err(error) => panic!("{what}: {error}"),
    };
    the_kernel_takes(what, &program);
    for section in &table.sections {
        for range in &section.ranges {
            let middle = range.first + (range.last - range.first) / 2;
            let calls: Vec<_> = match table.decision(*range) {
                Decision::Tests { tests, .. } => util::arguments(&conditions(tests), random),
                Decision::Action(_) => vec![[random.next(); 6]],
            };
            for arguments in calls {
                for number in [range.first, middle, range.last] {
                    let data = call(section.abi, number, arguments);
                    let action = table.look_up(&data);
                    assert_eq!(run(&program, &data), Ok(action.value()), "{what}: {data:#x?}\n{table}");
                }
            }
            if *table.decision(*range) == Decision::Action(Action::Allow) {
                let arch = section.abi.audit_arch();
                assert!(is_always_allowed(&program, range.first, arch), "{what}: {}\n{table}", range.first);
            }
        }
    }
    for arch in [0, Abi::X86.audit_arch(), Abi::Arm.audit_arch(), Abi::Aarch64.audit_arch(), u32::MAX] {
        let data = Data { number: 1, arch, ..Data::default() };
        assert_eq!(run(&program, &data), Ok(table.look_up(&data).value()), "{what}: {arch:#x}");
    }
}

fn conditions(tests: &[ArgumentTest]) -> Vec<Condition> {
    tests
        .iter()
        .flat_map(|test| {
            let then = match &test.then {
                Then::Action(_) => Vec::new(),
                Then::Tests(tests) => conditions(tests),
            };
            [test.condition].into_iter().chain(then)
        })
        .collect()
}

fn ranges_have_no_gap(what: &str, table: &Table) {
    for section in &table.sections {
        let (first, last) = match section.abi {
            Abi::X86_64 => (0, 0x3fff_ffff),
            Abi::X32 => (0x4000_0000, u32::MAX),
            _ => (0, u32::MAX),
        };
        assert_eq!(section.ranges.first().unwrap().first, first, "{what}\n{table}");
        assert_eq!(section.ranges.last().unwrap().last, last, "{what}\n{table}");
        for pair in section.ranges.windows(2) {
            assert!(pair[0].first <= pair[0].last, "{what}\n{table}");
            assert_eq!(pair[0].last + 1, pair[1].first, "{what}\n{table}");
            assert_ne!(table.decision(pair[0]), table.decision(pair[1]), "{what}\n{table}");
        }
    }
}

/// Checks the same as the kernel's `bpf_check_classic` and `seccomp_check_filter`.
fn the_kernel_takes(what: &str, program: &[Instruction]) {
    assert_eq!(program.last().unwrap().code, code::RETURN, "{what}");
    for (at, instruction) in program.iter().enumerate() {
        let behind = program.len() - at - 1;
        match instruction.code {
            code::LOAD => assert!(instruction.k % 4 == 0 && instruction.k < 64, "{what}: {at}"),
            code::AND | code::RETURN => {}
            code::JUMP => assert!((instruction.k as usize) < behind, "{what}: {at}"),
            code::EQUAL | code::GREATER | code::AT_LEAST | code::ANY_BIT => {
                assert!(usize::from(instruction.jt.max(instruction.jf)) < behind, "{what}: {at}");
            }
            _ => panic!("{what}: {at}: {instruction:?}"),
        }
    }
}

/// Returns what the kernel's `seccomp_is_const_allow` finds. It follows only loads of the number and the
/// architecture. Calls that are always allowed do not run the program.
fn is_always_allowed(program: &[Instruction], number: u32, arch: u32) -> bool {
    let (mut accumulator, mut at) = (0, 0);
    loop {
        let Instruction { code, jt, jf, k } = program[at];
        at += 1;
        let holds = match (code, k) {
            (code::LOAD, 0) => {
                accumulator = number;
                continue;
            }
            (code::LOAD, 4) => {
                accumulator = arch;
                continue;
            }
            (code::LOAD, _) => return false,
            (code::RETURN, _) => return k == Action::Allow.value(),
            (code::JUMP, _) => {
                at += k as usize;
                continue;
            }
            (code::AND, _) => {
                accumulator &= k;
                continue;
            }
            (code::EQUAL, _) => accumulator == k,
            (code::GREATER, _) => accumulator > k,
            (code::AT_LEAST, _) => accumulator >= k,
            _ => accumulator & k != 0,
        };
        at += usize::from(if holds { jt } else { jf });
    }
}

fn random_profile(random: &mut Random, rules: usize) -> Profile {
    let names: Vec<&str> = include_str!("../src/syscalls.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    let pool: Vec<&str> = (0..rules).map(|_| *random.pick(&names)).collect();
    let mut architectures = Arch::NAMES.map(|(_, arch)| arch).to_vec();
    architectures.retain(|_| !random.one_in(3));
    let (most, default_action) = (1 + random.below(rules), *random.pick(&ACTIONS));
    let rules = (0..most)
        .map(|_| Rule {
            names: (0..=random.below(3)).map(|_| (*random.pick(&pool)).to_owned()).collect(),
            action: *random.pick(&ACTIONS),
            conditions: random_conditions(random),
        })
        .collect();
    Profile { default_action, architectures, rules, ..Profile::default() }
}

fn random_conditions(random: &mut Random) -> Vec<Condition> {
    let count = random.below(4);
    (0..count)
        .map(|_| {
            let value = match random.below(3) {
                0 => random.below(50) as u64,
                1 => random.next() >> 32 << 32 | random.below(3) as u64,
                _ => random.next(),
            };
            let comparison = match random.below(7) {
                0 => Comparison::NotEqual(value),
                1 => Comparison::Less(value),
                2 => Comparison::LessOrEqual(value),
                3 => Comparison::Equal(value),
                4 => Comparison::GreaterOrEqual(value),
                5 => Comparison::Greater(value),
                _ => Comparison::MaskedEqual { mask: random.next() & random.next(), value },
            };
            Condition { argument: Argument::new(random.below(6) as u32).unwrap(), comparison }
        })
        .collect()
}

fn equal(argument: u32, value: u64) -> Condition {
    Condition { argument: Argument::new(argument).unwrap(), comparison: Comparison::Equal(value) }
}
