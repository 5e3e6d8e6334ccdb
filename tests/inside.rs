//! Checks what a program finds in its container.

use crate::util::{Bundle, Runtime, is_husk, is_root, need};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};

fn inside(words: &str) -> Bundle {
    Bundle::running(words)
}

#[track_caller]
fn prints(bundle: Bundle, wanted: &str) {
    Runtime::under_test().run(&bundle).prints(wanted);
}

#[test]
fn container_has_its_own_hostname_pids_and_root() {
    prints(inside("cat /proc/sys/kernel/hostname"), "guest");
    prints(inside("read-link /proc/self"), "1");
    prints(inside("list /"), "dev\nguest\nproc");
    Runtime::under_test().run(&inside("list /sys")).fails(1, "No such file or directory");
}

#[test]
fn environment_is_the_configured_one_and_a_home() {
    let bundle = inside("env").with("/process/env", json!(["A=1", "PATH=/bin"]));
    let passwd = bundle.rootfs().join("etc");
    fs::create_dir(&passwd).unwrap();
    fs::write(passwd.join("passwd"), "root:x:0:0::/home/of/root:/bin/sh\n").unwrap();
    prints(bundle, "A=1\nPATH=/bin\nHOME=/home/of/root");
}

#[test]
fn missing_working_directory_is_created() {
    prints(inside("cwd").with("/process/cwd", json!("/a/b")), "/a/b");
}

#[test]
fn capabilities_are_the_configured_ones() {
    let sets = json!({ "bounding": ["CAP_CHOWN"], "permitted": ["CAP_CHOWN"], "effective": ["CAP_CHOWN"] });
    let bundle = |line| inside(&format!("status {line}")).with("/process/capabilities", sets.clone());
    prints(bundle("CapBnd"), "0000000000000001");
    prints(bundle("CapPrm"), "0000000000000001");
    prints(bundle("CapInh"), "0000000000000000");
    need!(is_husk(), "runc gives all by default and crun none, so nothing was requested");
    prints(inside("status CapBnd"), "0000000000000000");
}

#[test]
fn user_and_groups_are_the_configured_ones() {
    need!(is_root(), "needs root to become another user");
    let user = json!({ "uid": 1000, "gid": 1001, "additionalGids": [7, 8] });
    let bundle = |line| inside(&format!("status {line}")).with("/process/user", user.clone());
    prints(bundle("Uid"), "1000\t1000\t1000\t1000");
    prints(bundle("Gid"), "1001\t1001\t1001\t1001");
    prints(bundle("Groups"), "7 8");
}

#[test]
fn program_has_no_descriptor_of_the_runtime() {
    // Listing the directory itself opens the fourth.
    prints(inside("list /proc/self/fd"), "0\n1\n2\n3");
}

#[test]
fn no_signal_is_blocked_and_no_new_privs_is_set() {
    prints(inside("status SigBlk"), "0000000000000000");
    prints(inside("status NoNewPrivs"), "1");
}

#[test]
fn masked_paths_are_empty() {
    let mask = json!(["/proc/driver", "/proc/fs", "/proc/version", "/proc/not/there"]);
    let masked = |words| inside(words).with("/linux/maskedPaths", mask.clone());
    prints(masked("list /proc/fs"), "");
    prints(masked("list /proc/driver"), "");
    prints(masked("cat /proc/version"), "");
    prints(masked("null /proc/version"), "0x103");
}

#[test]
fn readonly_paths_cannot_be_written() {
    let bundle = inside("write /proc/sys/kernel/hostname").with("/linux/readonlyPaths", json!(["/proc/sys"]));
    Runtime::under_test().run(&bundle).fails(1, "Read-only file system");
    let bundle = inside("write /file").with("/root/readonly", json!(true));
    Runtime::under_test().run(&bundle).fails(1, "Read-only file system");
}

#[test]
fn volume_has_its_mount_options() {
    let volume = tempfile::tempdir().unwrap();
    fs::write(volume.path().join("file"), "of the host").unwrap();
    let mount = |options: &[&str]| json!({ "destination": "/data", "type": "bind", "source": volume.path(), "options": options });
    prints(inside("cat /data/file").mounting(mount(&["bind"])), "of the host");
    let bundle = inside("write /data/file").mounting(mount(&["rbind", "ro"]));
    Runtime::under_test().run(&bundle).fails(1, "Read-only file system");
    let file = json!({ "destination": "/a/file", "type": "bind", "source": volume.path().join("file"), "options": ["bind"] });
    prints(inside("cat /a/file").mounting(file), "of the host");
}

#[test]
fn symlink_of_the_image_stays_in_the_image() {
    let host = tempfile::tempdir().unwrap();
    let mount = json!({ "destination": "/data/made", "type": "tmpfs", "source": "tmpfs" });
    let bundle = inside("mount /data/made").mounting(mount);
    // An image may contain such a link so that the runtime creates directories on the host.
    symlink(host.path(), bundle.rootfs().join("data")).unwrap();
    Runtime::under_test().run(&bundle);
    assert_eq!(fs::read_dir(host.path()).unwrap().count(), 0, "something was created on the host");
}

#[test]
fn symlink_at_dev_creates_nothing_on_the_host() {
    need!(is_root(), "needs root to create device nodes");
    let host = tempfile::tempdir().unwrap();
    let bundle = inside("exit 0").with("/mounts", json!([]));
    symlink(host.path(), bundle.rootfs().join("dev")).unwrap();
    Runtime::under_test().run(&bundle);
    assert_eq!(fs::read_dir(host.path()).unwrap().count(), 0, "something was created on the host");
}

#[test]
fn devices_have_their_numbers_and_permissions() {
    need!(is_root(), "needs root to create device nodes");
    let device =
        json!([{ "path": "/dev/sub/mine", "type": "c", "major": 1, "minor": 5, "fileMode": 416, "uid": 3 }]);
    let bundle = inside("null /dev/sub/mine").with("/linux/devices", device).with("/mounts", json!([]));
    let node = bundle.rootfs().join("dev/sub/mine");
    Runtime::under_test().run(&bundle).prints("0x105");
    let metadata = fs::metadata(node).unwrap();
    assert_eq!((metadata.mode() & 0o7777, metadata.uid()), (0o640, 3));
}

#[test]
fn seccomp_profile_is_applied() {
    let profile = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{ "names": ["getcwd"], "action": "SCMP_ACT_ERRNO", "errnoRet": 7 }]
    });
    let filtered = |words| inside(words).with("/linux/seccomp", profile.clone());
    prints(filtered("status Seccomp"), "2");
    Runtime::under_test().run(&filtered("cwd")).fails(1, "os error 7");
}

#[test]
fn rlimits_are_set() {
    let limits = json!([{ "type": "RLIMIT_NOFILE", "soft": 20, "hard": 30 }]);
    let seen = Runtime::under_test().run(&inside("cat /proc/self/limits").with("/process/rlimits", limits));
    let limits = seen.succeeds();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(line.split_whitespace().collect::<Vec<_>>()[3..5], ["20", "30"]);
}

#[test]
fn oom_score_adj_is_set_with_and_without_procfs() {
    // Without its own procfs, the container could only mean the host's.
    prints(inside("cat /proc/self/oom_score_adj").with("/process/oomScoreAdj", json!(500)), "500");
    prints(
        inside("list /").with("/process/oomScoreAdj", json!(500)).with("/mounts", json!([])),
        "dev\nguest",
    );
}

#[test]
fn empty_home_is_replaced() {
    prints(inside("env").with("/process/env", json!(["HOME=", "A=1"])), "A=1\nHOME=/");
}
