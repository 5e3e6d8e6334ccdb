//! Checks the attributes of a container's process, and what it inherits from its caller.

use crate::util::{Bundle, Runtime, guest, is_husk, is_root, need};
use husk_spawn::Command;
use serde_json::{Value, json};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Stdio;

fn inside(words: &str) -> Bundle {
    Bundle::running(words)
}

#[track_caller]
fn prints(bundle: Bundle, wanted: &str) {
    Runtime::under_test().run(&bundle).prints(wanted);
}

/// Returns a script that runs its command with two files as descriptors 3 and 4.
fn with_two_files(bundle: &Bundle, before: &str) -> String {
    let file = |name: &str| {
        let path = bundle.path().join(name);
        fs::write(&path, name).unwrap();
        path.display().to_string()
    };
    format!("{before} exec \"$@\" 3<'{}' 4<'{}'", file("three"), file("four"))
}

// Descriptors

#[test]
fn preserved_descriptors_keep_their_numbers() {
    let runtime = Runtime::under_test();
    let bundle = inside("cat /proc/self/fd/4");
    let script = with_two_files(&bundle, "");
    runtime.through(&script, "run", &bundle, &["--preserve-fds", "2"]).prints("four");
    // The last one is the listing itself.
    let bundle = inside("list /proc/self/fd");
    let script = with_two_files(&bundle, "");
    let seen = |count: &str| runtime.through(&script, "run", &bundle, &["--preserve-fds", count]);
    seen("2").prints("0\n1\n2\n3\n4\n5");
    seen("1").prints("0\n1\n2\n3\n4");
    seen("0").prints("0\n1\n2\n3");
}

#[test]
fn created_container_keeps_preserved_descriptors() {
    let runtime = Runtime::under_test();
    let bundle = inside("cat /proc/self/fd/4");
    let script = with_two_files(&bundle, "");
    let mut command = runtime.shell(&script, "create", &bundle, &["--preserve-fds", "2"]);
    let mut created = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    assert!(created.wait().unwrap().success());
    runtime.call("start", &["c"]).succeeds();
    let mut said = String::new();
    created.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "four");
}

#[test]
fn missing_preserved_descriptor_is_named() {
    need!(is_husk(), "runc passes one of its own descriptors instead of the missing one");
    let runtime = Runtime::under_test();
    let bundle = inside("exit 0");
    let script = with_two_files(&bundle, "");
    let seen = runtime.through(&script, "run", &bundle, &["--preserve-fds", "3"]);
    seen.fails(1, "--preserve-fds: descriptor 5 is not open");
    let seen = runtime.through(&script, "run", &bundle, &["--preserve-fds", "4000000000"]);
    seen.fails(1, "--preserve-fds: descriptor 5 is not open");
    assert!(runtime.is_empty());
}

#[test]
fn listening_sockets_are_passed_on() {
    let runtime = Runtime::under_test();
    let env = json!(["LISTEN_FDS=7", "LISTEN_PID=7", "A=1"]);
    let bundle = inside("env").with("/process/env", env.clone());
    let activated = with_two_files(&bundle, "export LISTEN_FDS=1 LISTEN_PID=$$;");
    runtime.through(&activated, "run", &bundle, &[]).prints("A=1\nLISTEN_FDS=1\nLISTEN_PID=1\nHOME=/");
    let bundle = inside("list /proc/self/fd");
    let seen = |options: &[&str]| runtime.through(&activated, "run", &bundle, options);
    seen(&[]).prints("0\n1\n2\n3\n4");
    seen(&["--preserve-fds", "1"]).prints("0\n1\n2\n3\n4\n5");
    need!(is_husk(), "runc passes one of its own descriptors instead of the missing one");
    seen(&["--preserve-fds", "2"]).fails(1, "--preserve-fds: descriptor 5 is not open");

    // They are meant for husk only if `LISTEN_PID` names it.
    let bundle = inside("env").with("/process/env", json!([]));
    let others = with_two_files(&bundle, "export LISTEN_FDS=1 LISTEN_PID=1;");
    runtime.through(&others, "run", &bundle, &[]).prints("HOME=/");
    let missing = "export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$@\" 3<&-";
    runtime.through(missing, "run", &bundle, &[]).fails(1, "LISTEN_FDS: descriptor 3 is not open");
}

// CVE-2024-21626, for a descriptor that the caller leaks.
#[test]
fn working_directory_cannot_be_a_descriptor_of_the_caller() {
    let runtime = Runtime::under_test();
    let bundle = inside("list /proc/self/fd");
    runtime.through("exec \"$@\" 3</ 9</", "run", &bundle, &[]).prints("0\n1\n2\n3");
    for number in [3, 9] {
        let bundle = inside("cwd").with("/process/cwd", json!(format!("/proc/self/fd/{number}")));
        let seen = runtime.through("exec \"$@\" 3</ 9</", "run", &bundle, &[]);
        assert!(!seen.0.status.success(), "the working directory is outside the container");
    }
}

// CVE-2024-21626, for a descriptor that the runtime leaks.
#[test]
fn working_directory_cannot_be_a_descriptor_of_the_runtime() {
    let running = Runtime::started(&inside("wait"));
    for number in 3..32 {
        let cwd = format!("/proc/self/fd/{number}");
        let seen = Runtime::under_test().run(&inside("cwd").with("/process/cwd", json!(cwd)));
        assert!(!seen.0.status.success(), "{cwd} of run");
        let seen = running.call("exec", &["--cwd", &cwd, "c", "/guest", "cwd"]);
        assert!(!seen.0.status.success(), "{cwd} of exec");
    }
}

#[test]
fn standard_streams_belong_to_the_user() {
    need!(is_root(), "needs root to become another user");
    let user = json!({ "uid": 1000, "gid": 1000 });
    let bundle = inside("write /proc/self/fd/1").with("/process/user", user.clone());
    prints(bundle, "written");
    let bundle = inside("owner /proc/self/fd/0").with("/process/user", user);
    let runtime = Runtime::under_test();
    need!(is_husk(), "runc gives the host's devices to the container's user");
    // A device of the host keeps its owner (CVE-2026-88265).
    runtime.through("exec \"$@\" </dev/null", "run", &bundle, &[]).prints("0");
    assert_eq!(fs::metadata("/dev/null").unwrap().uid(), 0);
    // runc changes the owner of all other devices. A node of our own keeps the test harmless.
    let node = bundle.path().join("node");
    let zero = rustix::fs::makedev(1, 5);
    let (kind, mode) = (rustix::fs::FileType::CharacterDevice, rustix::fs::Mode::from_raw_mode(0o600));
    need!(
        rustix::fs::mknodat(rustix::fs::CWD, &node, kind, mode, zero).is_ok(),
        "needs permission to create device nodes"
    );
    let script = format!("exec \"$@\" <'{}'", node.display());
    runtime.through(&script, "run", &bundle, &[]).prints("0");
}

// Signals, scheduling, umask

#[test]
fn signals_ignored_by_the_caller_are_reset() {
    need!(is_husk(), "Go ignores signals that it has no names for");
    let runtime = Runtime::under_test();
    let script = "trap '' HUP INT USR1; exec \"$@\"";
    // The guest itself ignores SIGPIPE, as every Rust program does.
    runtime.through(script, "run", &inside("status SigIgn"), &[]).prints("0000000000001000");
}

#[test]
fn umask_is_the_configured_one() {
    let runtime = Runtime::under_test();
    let umask = |bundle| runtime.through("umask 0; exec \"$@\"", "run", &bundle, &[]);
    umask(inside("status Umask")).prints("0022");
    let user = json!({ "uid": 0, "gid": 0, "umask": 0o27 });
    umask(inside("status Umask").with("/process/user", user)).prints("0027");
}

#[test]
fn affinity_of_the_caller_is_not_inherited() {
    need!(std::thread::available_parallelism().unwrap().get() > 1, "needs two processors");
    let words = ["status", "Cpus_allowed_list"];
    let allowed = |cpus: std::ops::Range<usize>| {
        let output = Command::new(guest()).args(words).affinity(cpus).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_ne!(allowed(0..1), allowed(0..1024));
    let runtime = Runtime::under_test();
    let bundle = inside("status Cpus_allowed_list");
    let shell = runtime.shell("exec \"$@\"", "run", &bundle, &[]);
    let mut pinned = Command::new(shell.get_program());
    let output = pinned.args(shell.get_args()).affinity(0..1).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), allowed(0..1024), "{stderr}");
}

#[test]
fn scheduler_field_of_another_policy_is_refused() {
    need!(is_husk(), "runc's messages name no field");
    let refused = |scheduler: Value, message: &str| {
        let bundle = inside("exit 0").with("/process/scheduler", scheduler);
        Runtime::under_test().run(&bundle).fails(1, message);
    };
    refused(json!({ "policy": "SCHED_OTHER", "nice": 20 }), "process.scheduler.nice: 20 is out of range");
    refused(
        json!({ "policy": "SCHED_BATCH", "priority": 1 }),
        "process.scheduler.priority: is only valid for SCHED_FIFO and SCHED_RR",
    );
    refused(
        json!({ "policy": "SCHED_FIFO", "priority": 1, "period": 9 }),
        "process.scheduler.period: is only valid for SCHED_DEADLINE",
    );
}

#[test]
fn scheduler_is_the_configured_one() {
    need!(is_root(), "needs root to raise priorities");
    let policy = |scheduler: Value| {
        let bundle = inside("cat /proc/self/sched").with("/process/scheduler", scheduler);
        let sched = Runtime::under_test().run(&bundle).succeeds();
        let line = sched.lines().find(|line| line.starts_with("policy")).unwrap().to_owned();
        line.rsplit(' ').next().unwrap().to_owned()
    };
    need!(Path::new("/proc/self/sched").exists(), "needs a kernel that shows how it schedules");
    // If the kernel divides realtime between cgroups, a new cgroup of version 1 has none.
    if !Path::new("/sys/fs/cgroup/cpu/cpu.rt_runtime_us").exists() {
        assert_eq!(policy(json!({ "policy": "SCHED_FIFO", "priority": 10 })), "1");
    }
    assert_eq!(policy(json!({ "policy": "SCHED_BATCH", "nice": 3 })), "3");
    let deadline = json!({
        "policy": "SCHED_DEADLINE", "runtime": 1_000_000, "deadline": 100_000_000, "period": 100_000_000,
        "flags": ["SCHED_FLAG_RESET_ON_FORK"]
    });
    assert_eq!(policy(deadline), "6");
}

#[test]
fn scheduler_refused_by_the_kernel_is_named_with_its_numbers() {
    need!(is_husk() && is_root(), "the message is husk's, and SCHED_DEADLINE needs privileges");
    // The scheduler's `runtime` exceeds its `deadline`.
    let deadline = json!({ "policy": "SCHED_DEADLINE", "runtime": 30_000_000, "deadline": 20_000_000 });
    let seen = Runtime::under_test().run(&inside("exit 0").with("/process/scheduler", deadline));
    seen.fails(1, "scheduler SCHED_DEADLINE runtime 30000000 deadline 20000000 period 0: invalid argument");
}

// Keys and labels

#[test]
fn program_has_its_own_session_keyring() {
    need!(Path::new("/proc/keys").exists(), "needs a kernel with keyrings");
    let runtime = Runtime::under_test();
    let bundle = inside("session-keyring");
    let own = runtime.run(&bundle).succeeds();
    let [kind, _, _, permissions, name] = own.trim_end().split(';').collect::<Vec<_>>()[..] else {
        panic!("{own}")
    };
    assert_eq!((kind, name), ("keyring", "_ses.c"));
    // With a user namespace others may search the keyring, without one its owner (keys/permission.c).
    let (owner, others) = (0x0008_0000, 0x8);
    let permissions = u32::from_str_radix(permissions, 16).unwrap();
    assert_ne!(permissions & if is_root() { owner } else { others }, 0, "{own}");
    let callers = runtime.run_with(&bundle, &["--no-new-keyring"]).succeeds();
    assert!(!callers.contains("_ses.c"), "{callers}");
}

#[test]
fn profile_or_label_without_kernel_support_is_refused() {
    need!(is_husk(), "runc leaves the check to the kernel");
    let runtime = Runtime::under_test();
    let has_apparmor = Path::new("/sys/module/apparmor/parameters/enabled").exists();
    let has_selinux = Path::new("/sys/fs/selinux/enforce").exists();
    need!(!has_apparmor && !has_selinux, "needs a kernel without AppArmor and SELinux");
    let bundle = inside("exit 0").with("/process/apparmorProfile", json!("unconfined"));
    runtime.run(&bundle).fails(1, "apparmor: config provided but apparmor not supported");
    let bundle = inside("exit 0").with("/process/selinuxLabel", json!("a:b:c:s0"));
    runtime
        .run(&bundle)
        .fails(1, "selinux label is specified in config, but selinux is disabled or not supported");
    // Go writes an empty string for an unset profile.
    prints(inside("exit 0").with("/process/apparmorProfile", json!("")), "");
}

// Personality and memory

#[test]
fn personality_is_the_configured_one() {
    let personality = |domain: &str| {
        inside("cat /proc/self/personality").with("/linux/personality", json!({ "domain": domain }))
    };
    prints(personality("LINUX32"), "00000008");
    prints(personality("LINUX"), "00000000");
    Runtime::under_test().run(&personality("LINUX64")).fails(1, "LINUX64");
    // husk sets the personality before it loads a filter that could forbid that.
    let forbidden = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{ "names": ["personality"], "action": "SCMP_ACT_ERRNO" }]
    });
    prints(personality("LINUX32").with("/linux/seccomp", forbidden), "00000008");
}

#[test]
fn memory_policy_is_the_configured_one() {
    need!(Path::new("/proc/self/numa_maps").exists(), "needs a kernel with NUMA");
    let policy = |policy: Value| inside("cat /proc/self/numa_maps").with("/linux/memoryPolicy", policy);
    let found = |asked: Value| {
        let maps = Runtime::under_test().run(&policy(asked)).succeeds();
        maps.lines().next().unwrap().split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(found(json!({ "mode": "MPOL_INTERLEAVE", "nodes": "0" })), "interleave:0");
    let flags = json!(["MPOL_F_STATIC_NODES"]);
    assert_eq!(found(json!({ "mode": "MPOL_BIND", "nodes": "0", "flags": flags })), "bind=static:0");
    assert_eq!(found(json!({ "mode": "MPOL_DEFAULT" })), "default");
    need!(is_husk(), "runc's messages name no field");
    let refused = |asked: Value, message: &str| Runtime::under_test().run(&policy(asked)).fails(1, message);
    refused(json!({ "mode": "INTERLEAVE", "nodes": "0" }), "linux.memoryPolicy.mode");
    refused(json!({ "nodes": "0" }), "linux.memoryPolicy");
    refused(
        json!({ "mode": "MPOL_BIND" }),
        "linux.memoryPolicy.nodes: memory policy mode requires at least one node",
    );
    refused(
        json!({ "mode": "MPOL_LOCAL", "nodes": "0-7" }),
        "linux.memoryPolicy.nodes: memory policy mode requires 0 nodes but got 8",
    );
    refused(json!({ "mode": "MPOL_BIND", "nodes": "0-9876543210" }), "linux.memoryPolicy.nodes");
    let bad = json!({ "mode": "MPOL_BIND", "nodes": "0", "flags": ["badflag"] });
    refused(bad, "linux.memoryPolicy.flags");
    // NUMA nodes that the machine does not have.
    refused(
        json!({ "mode": "MPOL_BIND", "nodes": "60000" }),
        "linux.memoryPolicy: memory-policy 0x2 nodes 60000: invalid argument",
    );
}

#[test]
fn intel_rdt_without_kernel_support_is_refused() {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    need!(!mounts.contains(" resctrl "), "needs a machine without resctrl");
    let runtime = Runtime::under_test();
    let bundle = inside("exit 0").with("/linux/intelRdt", json!({ "closID": "c" }));
    runtime.run(&bundle).fails(1, "intelRdt is specified in config, but Intel RDT is not enabled");
    let bundle = inside("exit 0").with("/linux/intelRdt", json!({ "closID": "../c" }));
    // runc checks the machine before the id.
    assert!(!runtime.run(&bundle).0.status.success());
    assert!(runtime.is_empty());
}

#[test]
fn groups_of_the_caller_are_kept_by_annotation() {
    need!(is_husk(), "the annotation is crun's");
    need!(is_root(), "needs root to set groups");
    let annotations = json!({ "run.oci.keep_original_groups": "1" });
    let bundle = inside("status Groups").with("/process/user/additionalGids", json!([7]));
    Runtime::under_test().run(&bundle).prints("7");
    let runtime = Runtime::under_test();
    let mut command = std::process::Command::new("setpriv");
    command
        .args(["--groups", "4242", "--"])
        .arg(env!("CARGO_BIN_EXE_husk"))
        .arg("--root")
        .arg(runtime.root());
    let bundle = bundle.with("/annotations", annotations);
    bundle.write();
    let output = command.args(["run", "--bundle"]).arg(bundle.path()).arg("with-groups").output().unwrap();
    crate::util::Seen(output).prints("4242");
}
