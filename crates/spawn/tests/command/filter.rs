//! Seccomp filters of the program.

use super::failure;
use crate::support::observe;
use husk_spawn::Command;
use husk_spawn::sys::process::SockFilter;

const EXECVE: u32 = if cfg!(target_arch = "x86_64") { 59 } else { 221 };
const ALLOW: u32 = 0x7fff_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;

/// Returns a filter that answers `execve` with `action` and allows all other calls.
fn on_exec(action: u32) -> [SockFilter; 4] {
    [
        SockFilter { code: 0x20, jt: 0, jf: 0, k: 0 },
        SockFilter { code: 0x15, jt: 0, jf: 1, k: EXECVE },
        SockFilter { code: 0x06, jt: 0, jf: 0, k: action },
        SockFilter { code: 0x06, jt: 0, jf: 0, k: ALLOW },
    ]
}

#[test]
fn filter_is_installed_with_no_new_privs() {
    let observed =
        observe(|command| command.seccomp_filter(0, &on_exec(ALLOW)).seccomp_filter(0, &on_exec(ALLOW)));
    assert_eq!((observed.status("Seccomp"), observed.status("NoNewPrivs")), ("2".into(), "1".into()));
    assert_eq!(observed.status("Seccomp_filters"), "2");
}

#[test]
fn filter_that_refuses_exec_is_an_error() {
    let command = |action| {
        let mut command = Command::new("/bin/true");
        command.seccomp_filter(0, &on_exec(action));
        command
    };
    let refused = command(ERRNO | 1);
    assert_eq!(failure(&refused), "exec /bin/true: Operation not permitted (os error 1)");
    let killed = command(KILL_PROCESS);
    let error = "exec /bin/true: killed by signal 31 before exec";
    assert_eq!(failure(&killed), error);
    assert_eq!(killed.output().unwrap_err().to_string(), error);
    assert_eq!(killed.spawn_and_exec().unwrap_err().to_string(), error);
}

#[test]
fn filter_that_the_kernel_refuses_is_an_error() {
    let error = failure(Command::new("true").seccomp_filter(0, &[]));
    assert!(error.contains("Invalid argument"), "{error}");
}

#[cfg(feature = "seccomp")]
mod profiles {
    use super::failure;
    use husk_spawn::Command;
    use husk_spawn::seccomp::{Action, Argument, Comparison, Condition, Profile, Rule};

    fn profile(names: &[&str], action: Action) -> Profile {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let rules = vec![Rule { names, action, conditions: vec![] }];
        Profile { default_action: Action::Allow, rules, ..Profile::default() }
    }

    #[test]
    fn profile_decides_about_calls_of_the_program() {
        let mut command = Command::new("mkdir");
        command.arg("/proc/new").env("LC_ALL", "C");
        command.seccomp(&profile(&["mkdir", "mkdirat"], Action::Errno(28)));
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("No space left on device"), "{said}");
    }

    #[test]
    fn profile_may_allow_only_what_the_program_needs() {
        let mut allowed = profile(&["execve", "exit_group", "write", "read"], Action::Allow);
        allowed.default_action = Action::KillProcess;
        let dir = crate::support::Dir::new();
        let mut command = Command::new(dir.program("holds", crate::support::program::holds(7)));
        let output = command.seccomp(&allowed).output().unwrap();
        assert_eq!(output.status.code(), Some(7), "neither the child nor the program needs more");
    }

    #[test]
    fn profile_without_a_filter_is_an_error_of_the_start() {
        let mut contradicts = profile(&["read"], Action::Errno(1));
        let value =
            |value| Condition { argument: Argument::new(0).unwrap(), comparison: Comparison::Equal(value) };
        contradicts.rules[0].conditions = vec![value(1)];
        let again = Rule { action: Action::Errno(2), ..contradicts.rules[0].clone() };
        contradicts.rules.push(again);
        let why = |profile: &Profile| failure(Command::new("true").seccomp(profile).seccomp_filter(0, &[]));
        assert_eq!(
            why(&profile(&["read", "raed"], Action::Log)),
            "seccomp rule 0, \"raed\": is not a system call of any architecture"
        );
        let native = if cfg!(target_arch = "x86_64") { "x86_64" } else { "aarch64" };
        assert_eq!(
            why(&contradicts),
            format!(
                "seccomp rule 1, read on {native}: an earlier rule has another action under these conditions"
            )
        );
        let needs = "seccomp: Action::Notify needs a supervisor: use Step::SeccompListener";
        assert_eq!(why(&profile(&["mount"], Action::Notify)), needs);
        assert_eq!(why(&Profile { default_action: Action::Notify, ..Profile::default() }), needs);
    }
}
