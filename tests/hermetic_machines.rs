//! `test` on machines where a sandbox cannot be made, or only in part. Namespaces imitate such machines here.

use crate::hermetic::{Project, has_sandboxes};
use crate::util::{Bundle, Runtime, Seen, is_root, need};
use husk_spawn::{IdMap, Namespaces};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::json;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Copies husk to a path that an ordinary user can reach, too.
fn husk(place: &Project) -> String {
    let copy = place.path("here/husk");
    // Copies with `cp`: a child of another test could inherit a descriptor that this process writes to, and keep it
    // open.
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_husk")).arg(&copy).status().unwrap().success());
    for name in ["", "here", "home"] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(place.path(name), mode).unwrap();
    }
    copy
}

/// Runs a script as root of a new user namespace, in new mount and pid namespaces.
fn as_root_of_a_container(place: &Project, script: &str) -> Seen {
    let mut command = Command::new("unshare");
    command.args(["-rmpf", "--mount-proc", "sh", "-c", script]).current_dir(place.path("here"));
    Seen(command.output().unwrap())
}

#[test]
fn callers_proc_is_used_if_parts_of_it_are_covered() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let husk = husk(&place);
    let cover = "mount --bind /dev/null /proc/uptime || exit 9";
    let seen = as_root_of_a_container(&place, &format!("{cover}; {husk} test -- sh -c 'echo $$'"));
    seen.prints("2");
    seen.says("husk: warning: the program sees the caller's /proc and its processes");
    let refused = as_root_of_a_container(&place, &format!("{cover}; {husk} test --strict -- true"));
    refused.fails(125, "refused because of --strict");
}

/// Applications mount file systems below /tmp, for example AppImages.
#[test]
fn overlay_of_a_directory_with_a_mount_below_is_refused_in_words() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    fs::create_dir(place.path("here/below")).unwrap();
    let (husk, here) = (husk(&place), place.path("here"));
    let mounted = "mount -t tmpfs none below || exit 9";
    let seen = as_root_of_a_container(&place, &format!("{mounted}; {husk} test --overlay . -- true"));
    seen.fails(125, &format!("overlay {here}: a file system is mounted below it; use --write, or --overlay"));
    as_root_of_a_container(&place, &format!("{mounted}; {husk} test --write . -- true")).prints("");
    let beside =
        format!("mkdir beside; {mounted}; {husk} test --overlay beside -- touch beside/made; ls beside");
    as_root_of_a_container(&place, &beside).prints("");
}

#[test]
fn callers_sys_is_used_if_parts_of_it_are_covered() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(Path::new("/sys/kernel/mm").is_dir(), "needs a sysfs");
    let place = Project::new();
    let husk = husk(&place);
    let cover = "mount -t tmpfs cover /sys/kernel || exit 9";
    let seen = as_root_of_a_container(&place, &format!("{cover}; {husk} test -- ls /sys/kernel"));
    seen.prints("");
    seen.says("husk: warning: the program sees the caller's /sys and the names of its network devices");
    let refused = as_root_of_a_container(&place, &format!("{cover}; {husk} test --strict -- true"));
    refused.fails(125, "refused because of --strict");
    // With the host's network there is nothing to replace.
    let hosts = as_root_of_a_container(&place, &format!("{cover}; {husk} test --strict --net host -- true"));
    hosts.prints("");
    assert!(hosts.0.stderr.is_empty());
}

#[test]
fn root_needs_no_user_namespace() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let husk = husk(&place);
    let none = "echo 0 > /proc/sys/user/max_user_namespaces || exit 9";
    let script = "grep CapEff /proc/self/status; true 2> /dev/null > file || echo read-only";
    let seen = as_root_of_a_container(&place, &format!("{none}; {husk} test -- sh -c '{script}'"));
    seen.prints("CapEff:\t0000000000000000\nread-only");
    seen.says("the sandbox has no user namespace");
    let refused = as_root_of_a_container(&place, &format!("{none}; {husk} test --strict -- true"));
    refused.fails(125, "refused because of --strict");
}

/// Runs a script as root of a new user namespace, which maps an ordinary user as well.
fn with_two_users(place: &Project, script: &str) -> Seen {
    let map = |id| IdMap { inside: id, outside: id, count: 1 };
    let mut command = husk_spawn::Command::new("sh");
    command.args(["-c", script]).current_dir(place.path("here")).new_namespaces(Namespaces::USER);
    let output = command.uid_map(&[map(0), map(1000)]).gid_map(&[map(0), map(1000)]).output().unwrap();
    Seen(std::process::Output { status: output.status, stdout: output.stdout, stderr: output.stderr })
}

#[test]
fn error_names_the_switch_that_forbids_user_namespaces() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(is_root(), "needs root");
    let place = Project::new();
    let husk = husk(&place);
    let user = "setpriv --reuid 1000 --regid 1000 --clear-groups";
    let script = format!("echo 0 > /proc/sys/user/max_user_namespaces; exec {user} {husk} test -- true");
    let seen = with_two_users(&place, &script);
    seen.fails(
        125,
        "user namespaces are disabled; enable them as root: sysctl user.max_user_namespaces=15000",
    );
    seen.says("husk: clone with new");
}

#[test]
fn error_names_the_limit_on_network_namespaces() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(is_root(), "needs root");
    let place = Project::new();
    let husk = husk(&place);
    let user = "setpriv --reuid 1000 --regid 1000 --clear-groups";
    let script = format!(
        "echo 0 > /proc/sys/user/max_net_namespaces; {user} {husk} test --net host -- true || exit 1; \
         exec {user} {husk} test -- true"
    );
    let seen = with_two_users(&place, &script);
    seen.fails(125, "the limit on network namespaces is reached; raise it as root");
    seen.says("husk: join new net: no space left on device");
}

#[test]
fn ordinary_user_gets_the_same_sandbox() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(is_root(), "needs root");
    let place = Project::new();
    let husk = husk(&place);
    let home = place.path("home");
    let as_user = |script: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups", &husk, "test"]);
        command.args(["--write", ".", "--pids", "50", "--", "sh", "-c", script]);
        Seen(command.current_dir(place.path("here")).env("HOME", &home).output().unwrap())
    };
    let script = "id -u; true 2> /dev/null > /etc/husk-was-here || echo read-only; echo mine > mine; ls -A ~; ls /proc/1/root/ 2>/dev/null; true";
    as_user(script).prints("1000\nread-only");
    let mine = fs::metadata(Path::new(&place.path("here/mine"))).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&mine), 1000);
    as_user("b() { b | b & b; }; b").fails(2, "Cannot fork");
}

/// Each test's sandbox is set up while others run.
#[test]
fn tests_of_an_ordinary_user_run_concurrently() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(is_root(), "needs root");
    let place = Project::new();
    let husk = husk(&place);
    // Each of the two tests waits for the other to begin.
    fs::create_dir(place.path("here/deps")).unwrap();
    let binary = place.path("here/deps/lab-0123456789abcdef");
    let script = "#!/bin/sh
        case \"$*\" in *--list*--ignored*) ;; *--list*) echo 'one: test'; echo 'two: test' ;;
            one*) echo 1 > there; read x < back ;; two*) read x < there; echo 2 > back ;; esac";
    fs::write(&binary, script).unwrap();
    fs::set_permissions(&binary, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut fifos = Command::new("mkfifo");
    fifos.args(["-m", "666", "there", "back"]).current_dir(place.path("here"));
    assert!(fifos.status().unwrap().success());
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups", &husk, "test", "--write", "."]);
    command.args(["--timeout", "60s", "--runner", "--", &binary, "--test-threads=2"]);
    let seen =
        Seen(command.current_dir(place.path("here")).env("HOME", place.path("home")).output().unwrap());
    assert!(seen.succeeds().contains("2 passed"));
}

/// Returns a container whose program is husk, which runs the guest in a sandbox.
fn with_sandbox(options: &[&str], words: &[&str]) -> Bundle {
    let bundle = Bundle::running("");
    let copied =
        Command::new("cp").arg(env!("CARGO_BIN_EXE_husk")).arg(bundle.rootfs().join("husk")).status();
    assert!(copied.unwrap().success());
    for name in ["tmp", "run", "var"] {
        fs::create_dir(bundle.rootfs().join(name)).unwrap();
    }
    let args = [&["/husk", "test"], options, &["--", "/guest"], words].concat();
    let devices = ["null", "zero", "full", "random", "urandom", "tty"].map(|name| {
        let path = format!("/dev/{name}");
        json!({ "destination": path, "type": "bind", "source": path, "options": ["bind"] })
    });
    let bundle = bundle.with("/process/args", json!(args));
    // Engines give CAP_SETFCAP to root. Without it, root cannot be root of a user namespace of its own.
    let sets = ["bounding", "permitted", "effective"].map(|set| (set.to_owned(), json!(["CAP_SETFCAP"])));
    let bundle = bundle.with("/process/capabilities", serde_json::Map::from_iter(sets).into());
    devices.into_iter().fold(bundle, Bundle::mounting)
}

#[test]
fn sandbox_works_in_a_container() {
    need!(has_sandboxes(), "needs user namespaces");
    let runtime = Runtime::under_test();
    runtime.run(&with_sandbox(&["--strict"], &["write", "/tmp/file"])).prints("");
    runtime.run(&with_sandbox(&["--strict"], &["write", "/file"])).fails(1, "Read-only file system");
    runtime.run(&with_sandbox(&["--strict"], &["status", "CapEff"])).prints("0000000000000000");
    runtime.run(&with_sandbox(&[], &["exit", "7"])).fails(7, "");
    let without = with_sandbox(&[], &["exit", "7"]).with("/process/capabilities", json!({}));
    runtime.run(&without).fails(125, "root needs CAP_SETFCAP for this");
    // Engines mask such paths.
    let masked = |bundle: Bundle| bundle.with("/linux/maskedPaths", json!(["/proc/uptime", "/proc/keys"]));
    let seen = runtime.run(&masked(with_sandbox(&[], &["exit", "7"])));
    seen.fails(7, "husk: warning: the program sees the caller's /proc and its processes");
    runtime
        .run(&masked(with_sandbox(&["--strict"], &["exit", "7"])))
        .fails(125, "refused because of --strict");
}

#[test]
fn program_cannot_mount_where_the_kernel_lacks_landlock() {
    need!(has_sandboxes() && is_root(), "needs root");
    const USER: u32 = 1000;
    let runtime = Runtime::under_test();
    // The kernel's answer without Landlock.
    let calls = json!([{ "names": ["landlock_create_ruleset"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38 }]);
    let seccomp = json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": calls });
    // The sandboxed program makes a sandbox of its own.
    let run = |options: &[&str]| {
        let bundle = with_sandbox(&[options, &["--", "/husk", "test"]].concat(), &["exit", "7"]);
        let bundle = bundle.with("/linux/seccomp", seccomp.clone()).with("/process/capabilities", json!({}));
        runtime.run(&bundle.with("/process/user", json!({ "uid": USER, "gid": USER })))
    };
    run(&["--nested"]).fails(7, "");
    run(&[]).fails(125, "mount");
}

/// RLIMIT_NPROC does not limit root's processes. Without a cgroup, the limit is the sandbox's pid_max.
#[test]
fn processes_of_root_are_limited_without_a_cgroup() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(is_root(), "needs root");
    need!(has_pid_max(), "needs a pid_max for each pid namespace (Linux 6.14)");
    let place = Project::new();
    place.sh(&["--strict"], "cat /proc/sys/kernel/pid_max").prints("4396");
    place.sh(&[], "echo 9 > /proc/sys/kernel/pid_max").fails(2, "Read-only file system");
    // The kernel reserves 300 pids (kernel/pid.c, `RESERVED_PIDS`), which pid_max includes. The first processes may use
    // them, so up to 320 fit.
    let forks =
        "my $n = 0; while ($n < 1000) { my $pid = fork; defined $pid or last; $pid or sleep; $n++ } print $n";
    let mut command = Command::new("unshare");
    let husk = env!("CARGO_BIN_EXE_husk");
    let script =
        format!("umount -l /sys/fs/cgroup || exit 9; exec {husk} test --pids 20 -- perl -e '{forks}'");
    command.args(["-m", "sh", "-c", &script]).current_dir(place.path("here"));
    let seen = Seen(command.env("HOME", place.path("home")).output().unwrap());
    let count: u32 = seen.succeeds().parse().unwrap();
    assert!((20..=320).contains(&count), "{count}");
}

fn has_pid_max() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(14))
}

/// Returns the cgroups that a process has made for its sandboxes.
fn cgroups_of(pid: u32) -> Vec<PathBuf> {
    fn look(directory: &Path, part: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().unwrap();
            if !entry.file_type().unwrap().is_dir() {
                continue;
            }
            if name.starts_with("husk-hermetic-") && name.contains(part) {
                found.push(entry.path());
            }
            look(&entry.path(), part, found);
        }
    }
    let mut found = Vec::new();
    look(Path::new("/sys/fs/cgroup"), &format!("-{pid}-"), &mut found);
    found
}

/// Starts a sandbox with a cgroup. Its program is running and waits for input.
fn waiting_in_a_cgroup(place: &Project) -> Child {
    let mut command = place.command(&["--memory", "64m"], &["sh", "-c", "echo begun; read x"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "begun\n");
    child
}

#[test]
fn cgroups_of_a_killed_run_are_removed_by_the_next() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(is_root(), "needs root");
    let place = Project::new();
    let (mut killed, mut living) = (waiting_in_a_cgroup(&place), waiting_in_a_cgroup(&place));
    let (left, kept) = (cgroups_of(killed.id()), cgroups_of(living.id()));
    need!(!left.is_empty(), "needs writable cgroups");
    let procs = left.iter().flat_map(|cgroup| fs::read_to_string(cgroup.join("cgroup.procs")));
    let pids: Vec<i32> =
        procs.flat_map(|text| text.lines().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()).collect();
    let open = |pid: i32| pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
    let programs: Vec<_> = pids.into_iter().map(open).collect();
    killed.kill().unwrap();
    killed.wait().unwrap();
    let most = Timespec { tv_sec: 30, tv_nsec: 0 };
    for program in &programs {
        assert_eq!(
            poll(&mut [PollFd::new(program, PollFlags::IN)], Some(&most)).unwrap(),
            1,
            "the process still runs"
        );
    }
    let are_there = |cgroups: &[PathBuf]| cgroups.iter().all(|cgroup| cgroup.is_dir());
    assert!(!programs.is_empty() && are_there(&left), "{left:?}");
    place.test(&["--memory", "64m"], &["true"]).succeeds();
    let stay: Vec<_> = left.iter().filter(|cgroup| cgroup.exists()).collect();
    assert!(stay.is_empty(), "{stay:?}");
    assert!(!kept.is_empty() && are_there(&kept), "{kept:?}");
    drop(living.stdin.take());
    assert!(!living.wait().unwrap().success());
    assert!(!kept.iter().any(|cgroup| cgroup.exists()), "{kept:?}");
}
