//! Tests that the kernel accepts the programs and acts on their answers.
//!
//! A small C program, `oracle/kernel.c`, installs filters in child processes and makes calls, so this file
//! needs no unsafe code. The tests are skipped without a C compiler, or where filters may not be installed. HUSK_ORACLES
//! names a directory of compiled ones.

use crate::util::{self, ENGINES, Width, native, profile_of};
use husk_seccomp::{Abi, Action, Arch, Flags, Profile, Program, Rule, Table, call_number};
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

const EPERM: i64 = -1;
const ENOSYS: i64 = -38;

/// The architectures of 64-bit and of 32-bit programs.
const ARCHES: [Arch; 2] =
    if cfg!(target_arch = "x86_64") { [Arch::X86_64, Arch::X86] } else { [Arch::Aarch64, Arch::Arm] };

/// Docker's profile, for the architectures of this machine.
fn docker() -> Profile {
    let mut profile = profile_of("docker");
    if cfg!(not(target_arch = "x86_64")) {
        profile.architectures = ARCHES.to_vec();
    }
    profile
}

#[test]
fn dockers_program_denies_and_allows() {
    let calls = [
        "call getpid 0 0",
        "call syslog a 0",
        "call clone3 0 0",
        "call personality ffffffff 0",
        "call personality 1 0",
        "call 7ff 0 0",      // no such call yet
        "call 40000067 a 0", // syslog of x32
        "call gettid 0 0",
    ];
    let Some(answer) = install(&program_of(&docker()), &calls) else { return };
    let [getpid, syslog, clone3, persona, other_persona, newer, x32_syslog, gettid] = answer.returned[..]
    else {
        panic!("{answer:?}")
    };
    assert!(getpid > 0);
    assert_eq!(syslog, EPERM);
    assert_eq!(clone3, ENOSYS);
    assert!(persona >= 0);
    assert_eq!(other_persona, EPERM);
    assert_eq!(newer, ENOSYS);
    assert_eq!(x32_syslog, if cfg!(target_arch = "x86_64") { EPERM } else { ENOSYS });
    assert!(gettid > 0);
    assert_eq!(answer.killed, None);
}

#[test]
fn calls_of_32_bits_have_their_own_rules() {
    let calls = ["call32 getpid 0 0", "call32 syslog a 0", "call32 clone3 0 0"];
    let Some(answer) = install(&program_of(&docker()), &calls) else { return };
    if has_no_32_bit_calls(&answer) {
        return;
    }
    assert!(answer.returned[0] > 0);
    assert_eq!(answer.returned[1..], [EPERM, ENOSYS]);
}

#[test]
fn unlisted_architecture_kills() {
    let profile = Profile { default_action: Action::Allow, ..Profile::default() };
    let Some(answer) = install(&program_of(&profile), &["call32 getpid 0 0"]) else { return };
    if has_no_32_bit_calls(&answer) {
        return;
    }
    assert!(answer.returned.is_empty(), "{answer:?}");
    assert_eq!(answer.killed, Some(31), "SIGSYS");
}

/// Returns whether the kernel has no 32-bit calls. Such a kernel sends `SIGSEGV` before it runs a filter.
fn has_no_32_bit_calls(answer: &Answer) -> bool {
    let none = answer.killed == Some(11);
    if none {
        crate::util::skipped(format_args!("the kernel has no 32-bit calls"));
    }
    none
}

#[test]
fn kernel_accepts_flags_and_long_programs() {
    // The profile has so many rules that it needs intermediate jumps, so the kernel would reject a wrong one.
    let rules = (0..300)
        .map(|value| Rule {
            names: vec!["ioctl".to_owned(), "prctl".to_owned()],
            action: Action::Errno(value),
            conditions: vec![husk_seccomp::Condition {
                argument: husk_seccomp::Argument::new(1).unwrap(),
                comparison: husk_seccomp::Comparison::Equal(value.into()),
            }],
        })
        .collect();
    let profile = Profile {
        default_action: Action::Allow,
        architectures: vec![ARCHES[1]],
        flags: Flags::LOG | Flags::SPEC_ALLOW,
        rules,
    };
    let program = program_of(&profile);
    assert!(program.instructions.len() > 1000);
    let calls = ["call ioctl 0 0", "call ioctl 0 22", "call prctl 0 12b", "call getpid 0 0"];
    let Some(answer) = install(&program, &calls) else { return };
    assert_eq!(answer.returned[..3], [0, -0x22, -0x12b]);
    assert!(answer.returned[3] > 0);
}

// Prints the time without asserting it.
#[test]
fn kernel_accepts_engines_programs() {
    for engine in ENGINES {
        let program = program_of(&profile_of(engine));
        let Some(mut answer) = install(&program, &["call getpid 0 0"]) else { return };
        assert!(answer.returned[0] > 0);
        answer.load.sort_unstable();
        let (least, median) = (answer.load[0] / 1000, answer.load[answer.load.len() / 2] / 1000);
        println!(
            "{engine}: {} instructions, installed in {median} µs (median), {least} µs (least)",
            program.instructions.len()
        );
    }
}

fn program_of(profile: &Profile) -> Program {
    Table::new(profile, &native()).unwrap().0.program().unwrap()
}

/// The results from the child processes.
#[derive(Debug, Default)]
struct Answer {
    load: Vec<u64>,
    returned: Vec<i64>,
    killed: Option<i32>,
}

/// Makes calls under a program: all through the 64-bit entry point, or all through the 32-bit one.
fn install(program: &Program, calls: &[&str]) -> Option<Answer> {
    husk_deadline::watch(&[]);
    let mut text = format!("flags {:x}\n", program.flags.bits());
    for instruction in &program.instructions {
        let (code, jt, jf, k) = (instruction.code, instruction.jt, instruction.jf, instruction.k);
        writeln!(text, "code {code:x} {jt:x} {jf:x} {k:x}").unwrap();
    }
    let width = if calls[0].starts_with("call32 ") { Width::Word32 } else { Width::Word64 };
    let oracle = match oracle(width) {
        Ok(oracle) => oracle,
        Err(reason) => {
            crate::util::skipped(format_args!("{reason}"));
            return None;
        }
    };
    let mut process =
        Command::new(oracle).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the oracle starts");
    process.stdin.take().unwrap().write_all((text + &numbered(calls, width)).as_bytes()).unwrap();
    let mut text = String::new();
    process.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(process.wait().unwrap().success());
    let mut answer = Answer::default();
    for line in text.lines() {
        let (word, number) = line.split_once(' ').unwrap();
        match word {
            "load" => answer.load.push(number.parse().unwrap()),
            "returned" => answer.returned.push(number.parse().unwrap()),
            "killed" => answer.killed = Some(number.parse().unwrap()),
            // EINVAL means a wrong program; any other error, that filters may not be installed.
            _ if number == "22" => panic!("the kernel refuses the program"),
            _ => {
                crate::util::skipped(format_args!("no filter may be installed (error number {number})"));
                return None;
            }
        }
    }
    Some(answer)
}

/// Returns the lines with numbers instead of names of calls.
fn numbered(calls: &[&str], width: Width) -> String {
    let abi = match (cfg!(target_arch = "x86_64"), width) {
        (true, Width::Word64) => Abi::X86_64,
        (true, Width::Word32) => Abi::X86,
        (false, Width::Word64) => Abi::Aarch64,
        (false, Width::Word32) => Abi::Arm,
    };
    let line = |call: &&str| {
        let [word, name, rest] = call.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{call}") };
        let number = call_number(name, abi).map_or_else(|| name.to_owned(), |number| format!("{number:x}"));
        format!("{word} {number} {rest}\n")
    };
    calls.iter().map(line).collect()
}

fn oracle(width: Width) -> &'static Result<PathBuf, String> {
    static WIDE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    static NARROW: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let oracle = if util::is_narrow(width) { &NARROW } else { &WIDE };
    oracle.get_or_init(|| util::oracle("kernel", width))
}
