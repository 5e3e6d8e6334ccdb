//! Tests that the kernel accepts the programs and acts on their answers.
//!
//! A small C program, `oracle/kernel.c`, installs filters in child processes and makes calls, so this file
//! needs no unsafe code. The tests are skipped without a C compiler, or where filters may not be installed.

use crate::util::{self, ENGINES, profile_of, x86_64};
use husk_seccomp::{Action, Arch, Flags, Profile, Program, Rule, Table};
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

const EPERM: i64 = -1;
const ENOSYS: i64 = -38;

#[test]
fn dockers_program_denies_and_allows() {
    let calls = [
        "call 27 0 0",        // getpid
        "call 67 a 0",        // syslog
        "call 1b3 0 0",       // clone3
        "call 87 ffffffff 0", // personality
        "call 87 1 0",
        "call 7ff 0 0",      // no such call yet
        "call 40000067 a 0", // syslog of x32
        "call 6e 0 0",       // getppid
    ];
    let Some(answer) = install(&program_of(&profile_of("docker")), &calls) else { return };
    let [getpid, syslog, clone3, persona, other_persona, newer, x32_syslog, getppid] = answer.returned[..]
    else {
        panic!("{answer:?}")
    };
    assert!(getpid > 0);
    assert_eq!(syslog, EPERM);
    assert_eq!(clone3, ENOSYS);
    assert!(persona >= 0);
    assert_eq!(other_persona, EPERM);
    assert_eq!(newer, ENOSYS);
    assert_eq!(x32_syslog, EPERM);
    assert!(getppid > 0);
    assert_eq!(answer.killed, None);
}

#[test]
fn calls_of_32_bits_have_their_own_rules() {
    let calls = ["call 27 0 0", "call32 14 0 0", "call32 67 a 0"];
    let Some(answer) = install(&program_of(&profile_of("docker")), &calls) else { return };
    if has_no_32_bit_calls(&answer) {
        return;
    }
    assert_eq!(answer.returned[1], answer.returned[0]);
    assert_eq!(answer.returned[2], EPERM);
}

#[test]
fn unlisted_architecture_kills() {
    let profile = Profile { default_action: Action::Allow, ..Profile::default() };
    let calls = ["call 27 0 0", "call32 14 0 0", "call 27 0 0"];
    let Some(answer) = install(&program_of(&profile), &calls) else { return };
    if has_no_32_bit_calls(&answer) {
        return;
    }
    assert_eq!(answer.returned.len(), 1);
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
        architectures: vec![Arch::X86, Arch::X32],
        flags: Flags::LOG | Flags::SPEC_ALLOW,
        rules,
    };
    let program = program_of(&profile);
    assert!(program.instructions.len() > 1000);
    let Some(answer) = install(&program, &["call 10 0 0", "call 10 0 22", "call 9d 0 12b", "call 27 0 0"])
    else {
        return;
    };
    assert_eq!(answer.returned[..3], [0, -0x22, -0x12b]);
    assert!(answer.returned[3] > 0);
}

// Prints the time without asserting it.
#[test]
fn kernel_accepts_engines_programs() {
    for engine in ENGINES {
        let program = program_of(&profile_of(engine));
        let Some(mut answer) = install(&program, &["call 27 0 0"]) else { return };
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
    Table::new(profile, &x86_64()).unwrap().0.program().unwrap()
}

/// The results from the child processes.
#[derive(Debug, Default)]
struct Answer {
    load: Vec<u64>,
    returned: Vec<i64>,
    killed: Option<i32>,
}

fn install(program: &Program, calls: &[&str]) -> Option<Answer> {
    husk_deadline::watch(&[]);
    let mut text = format!("flags {:x}\n", program.flags.bits());
    for instruction in &program.instructions {
        let (code, jt, jf, k) = (instruction.code, instruction.jt, instruction.jf, instruction.k);
        writeln!(text, "code {code:x} {jt:x} {jf:x} {k:x}").unwrap();
    }
    let oracle = match oracle() {
        Ok(oracle) => oracle,
        Err(reason) => {
            crate::util::skipped(format_args!("{reason}"));
            return None;
        }
    };
    let mut process =
        Command::new(oracle).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the oracle starts");
    process.stdin.take().unwrap().write_all((text + &calls.join("\n") + "\n").as_bytes()).unwrap();
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

fn oracle() -> &'static Result<std::path::PathBuf, String> {
    static ORACLE: OnceLock<Result<std::path::PathBuf, String>> = OnceLock::new();
    ORACLE.get_or_init(|| {
        if cfg!(not(target_arch = "x86_64")) {
            return Err("the calls are those of x86_64".to_owned());
        }
        util::compile("kernel", [])
    })
}
