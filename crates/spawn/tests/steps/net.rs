//! Steps that create a network namespace in a second thread.

use super::list;
use crate::support::{needs_namespaces, own_root};
use husk_script::sys::process::Capabilities;
use husk_spawn::{Command, Namespaces, Stdio, Step};
use std::fs;
use std::io::Read as _;

#[test]
pub(super) fn new_net() {
    needs_namespaces!();
    let net = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    for loopback in [false, true] {
        let mut command = Command::new("sh");
        own_root(&mut command).new_namespaces(Namespaces::PID).args(["-c", "echo $$; read line"]);
        let steps =
            [Step::NewNet { loopback }, Step::Setsid, Step::JoinNewNet, Step::VforkAndReap { space: None }];
        command.final_steps(list(steps)).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop().spawn().unwrap();
        let mut number = [0; 2];
        child.stdout.as_mut().unwrap().read_exact(&mut number).unwrap();
        assert_eq!(&number, b"2\n", "the thread takes no number from the program");
        let first = child.id().to_string();
        let program = fs::read_to_string(format!("/proc/{first}/task/{first}/children")).unwrap();
        assert_eq!(net(&first), net(program.trim()));
        assert_ne!(net(&first), net("self"));
        let routes = fs::read_to_string(format!("/proc/{first}/net/fib_trie")).unwrap();
        assert_eq!(routes.contains("127.0.0.1"), loopback);
        child.stdin = None;
        assert_eq!(child.wait().unwrap().code(), Some(1), "`read` sees the end of its input");
    }
}

#[test]
fn failures_beside_new_net() {
    needs_namespaces!();
    let failure = |steps: Vec<Step<'static>>| {
        let mut command = Command::new("true");
        own_root(&mut command).new_namespaces(Namespaces::PID).final_steps(move |writer| {
            steps.iter().for_each(|step| writer.push(*step));
            Ok(())
        });
        command.status().unwrap_err().to_string()
    };
    const BEGIN: Step<'_> = Step::NewNet { loopback: false };
    const fn only(effective: u64) -> Step<'static> {
        Step::Capset { capabilities: Capabilities { effective, permitted: effective, inheritable: 0 } }
    }
    const CHECKPOINT_RESTORE: u64 = 1 << 40;
    let missing = failure(vec![Step::JoinNewNet]);
    assert_eq!(missing, "join new net: Bad file descriptor (os error 9)");
    let unnumbered = failure(vec![only(0), BEGIN, Step::JoinNewNet]);
    assert_eq!(unnumbered, "begin new net: Operation not permitted (os error 1)");
    let refused = failure(vec![only(CHECKPOINT_RESTORE), BEGIN, Step::JoinNewNet]);
    assert_eq!(refused, "join new net: Operation not permitted (os error 1)");
    // The memory is in use until the thread has ended, although the process has failed before.
    for _ in 0..20 {
        let failed = failure(vec![BEGIN, Step::Chdir { path: c"/no/such" }]);
        assert_eq!(failed, "cwd /no/such: No such file or directory (os error 2)");
    }
}
