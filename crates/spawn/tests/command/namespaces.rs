//! New and joined namespaces, and their id maps.

use super::{failure, printed};
use crate::support::{Observed, needs_namespaces, needs_root, observe, own_root, skip};
use husk_spawn::{Command, IdMap, IdMaps, Namespaces, Request, Step};
use rustix::process::{getegid, geteuid};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd as _};

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn own_ids_are_mapped_by_the_child() {
    needs_namespaces!();
    let observed = observe(own_root);
    assert_eq!(words(&observed.file("uid_map")), format!("0 {} 1", geteuid().as_raw()));
    assert_eq!(words(&observed.file("gid_map")), format!("0 {} 1", getegid().as_raw()));
    assert_eq!(observed.file("setgroups"), "deny\n");
}

#[test]
fn other_ids_are_mapped_by_the_parent() {
    needs_root!();
    let maps = |outside| {
        [IdMap { inside: 0, outside, count: 1 }, IdMap { inside: 1, outside: outside + 100, count: 50 }]
    };
    let observed = observe(|command| {
        command
            .new_namespaces(Namespaces::USER)
            .uid_map(&maps(1000))
            .gid_map(&maps(2000))
            .uid(0)
            .gid(0)
            .groups(&[1])
    });
    assert_eq!(words(&observed.file("uid_map")), "0 1000 1 1 1100 50");
    assert_eq!(words(&observed.file("gid_map")), "0 2000 1 1 2100 50");
    assert_eq!(observed.status("Uid"), "1000 1000 1000 1000");
    assert_eq!(observed.status("Groups"), "2100");
    assert_eq!(observed.file("setgroups"), "allow\n");
}

#[test]
fn failure_to_write_an_id_map_is_the_parents_error() {
    needs_namespaces!();
    let overlapping = IdMap { inside: 0, outside: 0, count: 2 };
    let mut command = Command::new("true");
    command.new_namespaces(Namespaces::USER).uid_map(&[overlapping, overlapping]);
    let error = command.spawn().unwrap_err();
    assert!(error.act().ends_with("/uid_map"), "{error}");

    // A child with a list of its own has not closed its copy of the parent's end of the channel.
    let mut command = Command::of_steps(|writer| {
        writer.push(Step::Request { what: Request::IdMaps });
        Ok(())
    });
    command.new_namespaces(Namespaces::USER).uid_map(&[overlapping, overlapping]);
    let error = command.spawn().unwrap_err();
    assert!(error.act().ends_with("/uid_map"), "{error}");
}

#[test]
fn hostname_is_set() {
    needs_namespaces!();
    let mut command = Command::new("cat");
    own_root(&mut command).new_namespaces(Namespaces::UTS).hostname("other").arg("/proc/sys/kernel/hostname");
    assert_eq!(printed(&command), "other\n");
}

fn namespace(of: &Observed, kind: &str) -> File {
    File::open(format!("/proc/{}/ns/{kind}", of.child.id())).unwrap()
}

#[test]
fn namespaces_are_joined_by_file() {
    needs_namespaces!();
    let other = observe(|command| own_root(command).new_namespaces(Namespaces::NET | Namespaces::UTS));
    // The user namespace is joined first, because it grants the right to join the other.
    let joined = observe(|command| {
        let (net, user) = (namespace(&other, "net"), namespace(&other, "user"));
        command.join(net, Namespaces::NET).join(user, Namespaces::USER)
    });
    for (kind, same) in [("net", true), ("user", true), ("uts", false)] {
        let link = format!("ns/{kind}");
        assert_eq!(joined.link(&link) == other.link(&link), same, "{kind}");
    }
}

#[test]
fn namespaces_are_joined_by_process() {
    needs_root!();
    let kinds = Namespaces::PID | Namespaces::UTS | Namespaces::NET;
    let other = observe(|command| command.new_namespaces(kinds));

    let pidfd = other.child.as_fd().try_clone_to_owned().unwrap();
    let joined = observe(|command| command.join(pidfd, kinds));
    for kind in ["pid", "uts", "net"] {
        let link = format!("ns/{kind}");
        assert_eq!(joined.link(&link), other.link(&link), "{kind}");
    }
    // `other` is the first process there, so this is the second.
    assert_eq!(joined.status("NSpid"), format!("{} 2", joined.child.id()));
    assert_eq!(
        observe(|command| command).status("NSpid").split(' ').count(),
        1,
        "the child is in no new pid namespace"
    );

    // It sees its own pid in that namespace.
    let pidfd = other.child.as_fd().try_clone_to_owned().unwrap();
    let mut shell = Command::new("sh");
    assert_eq!(printed(shell.args(["-c", "echo $$"]).join(pidfd, kinds)), "3\n");
}

#[test]
fn failed_join_names_the_kind_and_the_descriptor() {
    for (kind, name) in [(Namespaces::PID, "pid"), (Namespaces::NET, "net")] {
        let file = File::open("/dev/null").unwrap();
        let number = file.as_raw_fd();
        let mut command = Command::new("true");
        command.join(file, kind);
        assert_eq!(failure(&command), format!("join {name} {number}: Invalid argument (os error 22)"));
    }
}

#[test]
fn helpers_map_the_caller() {
    needs_namespaces!();
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let observed = observe(|command| command.id_maps(&IdMaps::caller_as_root()));
    assert_eq!(words(&observed.file("uid_map")), format!("0 {uid} 1"));
    assert_eq!(words(&observed.file("gid_map")), format!("0 {gid} 1"));
    let observed = observe(|command| command.id_maps(&IdMaps::caller_as_itself()));
    assert_eq!(words(&observed.file("uid_map")), format!("{uid} {uid} 1"));
    assert_eq!(words(&observed.file("gid_map")), format!("{gid} {gid} 1"));
}

#[test]
fn subordinate_ids_follow_the_caller() {
    needs_namespaces!();
    let maps = match IdMaps::caller_as_root_with_subordinates() {
        Ok(maps) => maps,
        Err(error) => {
            assert!(error.act().starts_with("/etc/sub"), "{error}");
            skip!("{error}");
        }
    };
    assert_eq!(maps.uids[0], IdMap::one(0, geteuid().as_raw()));
    assert_eq!((maps.uids[1].inside, maps.gids[1].inside), (1, 1));
    let observed = observe(|command| command.id_maps(&maps).groups(&[1]));
    let mapped = words(&observed.file("uid_map"));
    let wanted = maps.uids.iter().map(|map| format!("{} {} {}", map.inside, map.outside, map.count));
    assert_eq!(mapped, wanted.collect::<Vec<_>>().join(" "));
    assert_eq!(observed.status("Groups"), maps.gids[1].outside.to_string());
}
