//! `test`: what a program sees of the machine in `/sys`, `/proc` and `/etc`.

use crate::hermetic::{Project, has_sandboxes};
use crate::util::{Seen, need};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns what a shell script of this machine prints outside of a sandbox.
fn outside(script: &str) -> String {
    let output = Command::new("sh").args(["-c", script]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[test]
fn sys_shows_only_the_network_of_the_sandbox() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(Path::new("/sys/class/net").is_dir(), "needs a sysfs");
    let place = Project::new();
    // Some kernels give every network namespace tunnel devices, which are also in /proc/net/dev.
    let script = "ls /sys/class/net; tail -n +3 /proc/net/dev | sed 's/ *\\([^:]*\\):.*/\\1/' | sort";
    let names = |seen: &str| seen.lines().map(str::to_owned).collect::<Vec<_>>();
    let output = place.sh(&[], script).0;
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen = names(&String::from_utf8(output.stdout).unwrap());
    let (sys, proc) = seen.split_at(seen.len() / 2);
    assert_eq!(sys, proc);
    assert!(sys.contains(&"lo".to_owned()), "{sys:?}");
    for device in names(&outside("ls -d /sys/class/net/*/device 2> /dev/null | cut -d / -f 5")) {
        assert!(!sys.contains(&device), "{device}");
    }
    place.sh(&["--net", "none"], "ls /sys/class/net | grep -x lo").prints("lo");
    // Root of the machine could otherwise change settings there.
    place.sh(&[], "echo 1 2> /dev/null > /sys/kernel/mm/ksm/run || echo read-only").prints("read-only");
    // The rest is as outside.
    place.sh(&[], "ls /sys/class/mem").prints(&outside("ls /sys/class/mem"));
}

#[test]
fn sys_is_the_callers_with_the_hosts_network_or_on_request() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(Path::new("/sys/class/net").is_dir(), "needs a sysfs");
    let place = Project::new();
    let devices = outside("ls /sys/class/net");
    place.sh(&["--net", "host"], "ls /sys/class/net").prints(&devices);
    place.sh(&["--read", "/sys"], "ls /sys/class/net").prints(&devices);
    place.sh(&["--hide", "/sys/kernel"], "ls /sys/class/net; ls /sys/kernel").prints(&devices);
    let mut there = place.command(&[], &["ls"]);
    Seen(there.current_dir("/sys/class/net").output().unwrap()).prints(&devices);
}

#[test]
fn file_systems_of_the_host_in_sys_are_hidden() {
    need!(has_sandboxes(), "needs user namespaces");
    let mounted = outside("cut -d ' ' -f 5 /proc/self/mountinfo | grep '^/sys/' | grep -v ^/sys/fs/cgroup/");
    need!(!mounted.is_empty(), "needs a file system below /sys");
    let place = Project::new();
    for path in mounted.lines() {
        place.test(&[], &["ls", "-A", path]).prints("");
    }
}

#[test]
fn keys_of_the_user_are_hidden() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(Path::new("/proc/keys").exists(), "needs keyrings");
    Project::new().test(&[], &["cat", "/proc/keys"]).prints("");
}

#[test]
fn program_cannot_create_network_devices() {
    need!(has_sandboxes(), "needs user namespaces");
    Project::new().sh(&["--net", "host"], "test -e /dev/net || echo none").prints("none");
}

#[test]
fn uptime_in_proc_follows_the_option() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(Path::new("/proc/self/ns/time").exists(), "needs time namespaces");
    let seen = Project::new().sh(&["--uptime", "50d"], "cut -d . -f 1 /proc/uptime").0;
    let seconds: u64 = String::from_utf8(seen.stdout).unwrap().trim().parse().unwrap();
    assert_eq!(seconds / 3600, 50 * 24);
}

/// Files that identify the machine. They stay as they are, because programs expect them, and can be hidden.
#[test]
fn files_that_identify_the_machine_are_shown_unless_hidden() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    for path in ["/proc/sys/kernel/random/boot_id", "/etc/machine-id"] {
        let Ok(text) = fs::read_to_string(path) else { continue };
        place.test(&[], &["cat", path]).prints(text.trim_end());
        place.test(&["--hide", path], &["cat", path]).prints("");
    }
}

/// The kernel does not adapt these files to limits.
#[test]
fn processors_and_memory_are_those_of_the_machine() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let script = "nproc; grep MemTotal /proc/meminfo; ls -d /sys/devices/system/cpu/cpu[0-9]*";
    place.sh(&["--cpu", "60", "--memory", "512m"], script).prints(&outside(script));
    // The caller's affinity applies to the program too.
    let mut bound = place.command(&[], &["nproc"]);
    let husk = bound.get_program().to_owned();
    let arguments: Vec<_> = bound.get_args().map(ToOwned::to_owned).collect();
    bound = Command::new("taskset");
    bound.args(["-c", "0"]).arg(husk).args(arguments).current_dir(place.path("here"));
    Seen(bound.env("HOME", place.path("home")).output().unwrap()).prints("1");
}
