//! Checks at which steps of a plan the AppArmor profile or SELinux label is set.

use bumpalo::Bump;
use husk_bundle::Container;
use husk_plan::{
    AppArmor, CgroupEntry, CgroupMount, Host, Invocation, JoinTarget, Keyring, Plan, Selinux, create, exec,
};
use husk_script::sys::Fd;
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::signal::SignalSet;
use husk_seccomp::{Abi, Machine};
use std::path::{Path, PathBuf};

fn host() -> Host {
    Host {
        euid: 0,
        egid: 0,
        is_first_user_namespace: true,
        may_set_groups: true,
        namespaces: Vec::new(),
        joined_ids: None,
        procfs_takes_pidns: true,
        revealing: Vec::new(),
        cgroup: CgroupMount::V2,
        cgroup2: None,
        entry: CgroupEntry::Born,
        ignored: SignalSet::EMPTY,
        null_streams: Vec::new(),
        nodes: Vec::new(),
        apparmor: AppArmor::Off,
        selinux: Selinux::Off,
        resctrl: None,
        machine: Machine::new(Abi::X86_64),
        home: PathBuf::from("/"),
    }
}

/// Returns the steps of the plan of a container whose process has `field`, without number and origin.
fn listing(field: &str, host: &Host, invocation: &Invocation<'_>) -> Result<Vec<String>, String> {
    let memory = Bump::new();
    create(&container(field), host, invocation, &memory).map(lines).map_err(|error| error.to_string())
}

fn lines(plan: Plan<'_>) -> Vec<String> {
    let text = plan.to_string();
    text.lines().map(|line| line.split_whitespace().skip(2).collect::<Vec<_>>().join(" ")).collect()
}

fn container(field: &str) -> Container {
    let config = format!(
        r#"{{
            "ociVersion": "1.3.0",
            "root": {{ "path": "rootfs" }},
            "process": {{ "user": {{ "uid": 0, "gid": 0 }}, "args": ["/a"], "cwd": "/", {field} }},
            "linux": {{ "namespaces": [{{ "type": "mount" }}] }}
        }}"#
    );
    husk_bundle::parse(config.as_bytes(), Path::new("/bundle")).unwrap().0
}

/// Asserts that these lines appear among the others in this order.
#[track_caller]
fn in_order(lines: &[String], wanted: &[&str]) {
    let mut rest = lines.iter();
    for wanted in wanted {
        assert!(rest.any(|line| line == wanted), "no {wanted:?} in\n{}", lines.join("\n"));
    }
}

#[test]
fn apparmor_profile_is_written_through_the_callers_procfs_after_pivot_root() {
    let field = r#""apparmorProfile": "a profile""#;
    let apart = Host { apparmor: AppArmor::Apart, ..host() };
    let lines = listing(field, &apart, &Invocation::default()).unwrap();
    in_order(
        &lines,
        &[
            "r0 = open /proc",
            "r1 = open in proc thread-self/attr/apparmor/exec",
            "close r0",
            "pivot-root . .",
            "write r1 \"exec a profile\"",
            "close r1",
            "bounding 0x0",
        ],
    );
    let alone = Host { apparmor: AppArmor::Alone, ..host() };
    in_order(
        &listing(field, &alone, &Invocation::default()).unwrap(),
        &["r1 = open in proc thread-self/attr/exec", "write r1 \"exec a profile\""],
    );
    let refused = listing(field, &host(), &Invocation::default()).unwrap_err();
    assert_eq!(refused, "process.apparmorProfile: apparmor: config provided but apparmor not supported");
}

#[test]
fn attribute_file_is_opened_by_the_process_that_writes_it() {
    let host = Host { apparmor: AppArmor::Apart, ..host() };
    // In another process, because a process that shares its memory cannot join a time namespace.
    let namespaces = Namespaces::PID | Namespaces::TIME;
    let target = JoinTarget { init: Fd::new(7).unwrap(), namespaces };
    let memory = Bump::new();
    let container = container(r#""apparmorProfile": "a""#);
    let lines = lines(exec(&container, target, &host, &Invocation::default(), &memory).unwrap());
    let opened = "r1 = open in proc thread-self/attr/apparmor/exec";
    in_order(&lines, &["clone-parent", opened, "join pid,time 7", "write r1 \"exec a\"", "clone-parent"]);
}

#[test]
fn selinux_label_applies_to_the_keyring() {
    let field = r#""selinuxLabel": "u:r:t:s0""#;
    let on = Host { selinux: Selinux::On, ..host() };
    let keyring = [
        "r0 = open /proc",
        "r1 = open in proc thread-self/attr/keycreate",
        "write r1 \"u:r:t:s0\"",
        "session-keyring _ses.ID",
        "write r1 \"\"",
        "close r1",
    ];
    let program = ["r1 = open in proc thread-self/attr/exec", "pivot-root . .", "write r1 \"u:r:t:s0\""];
    let lines = listing(field, &on, &Invocation::default()).unwrap();
    in_order(&lines, &[&keyring[..], &program[..]].concat());
    let callers = Invocation { keyring: Keyring::Callers, ..Invocation::default() };
    let lines = listing(field, &on, &callers).unwrap();
    in_order(&lines, &program);
    assert!(!lines.iter().any(|line| line.contains("key")), "{lines:?}");
    let memory = Bump::new();
    let target = JoinTarget { init: Fd::new(7).unwrap(), namespaces: Namespaces::PID };
    let joining = self::lines(exec(&container(field), target, &on, &Invocation::default(), &memory).unwrap());
    let keyring = ["r0 = open /proc", "r1 = open in proc thread-self/attr/exec"];
    let then =
        ["r2 = open in proc thread-self/attr/keycreate", "close r2", "close r0", "write r1 \"u:r:t:s0\""];
    in_order(&joining, &[&keyring[..], &then[..]].concat());
    let refused = listing(field, &host(), &Invocation::default()).unwrap_err();
    assert!(refused.contains("selinux is disabled or not supported"), "{refused}");
}
