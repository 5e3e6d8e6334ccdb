//! `test` with the files of an image or a bundle.

use crate::hermetic::{Project, has_sandboxes};
use crate::util::{Bundle, Seen, need};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

fn test(place: &Project, arguments: &[&str]) -> Seen {
    let mut command = Command::new(env!("CARGO_BIN_EXE_husk"));
    command.arg("test").args(arguments).current_dir(place.path("here")).stdin(Stdio::null());
    command.env_clear().envs([
        ("PATH", "/nowhere"),
        ("TERM", "dumb"),
        ("USER", "me"),
        ("CARGO_PKG_NAME", "p"),
    ]);
    Seen(command.env("HOME", place.path("home")).output().unwrap())
}

/// Runs the guest in the bundle's root file system.
fn in_rootfs(bundle: &Bundle, options: &[&str], words: &[&str]) -> Seen {
    let rootfs = bundle.rootfs();
    let rootfs = ["--rootfs", rootfs.to_str().unwrap()];
    test(&Project::new(), &[&rootfs, options, &["--", "/guest"], words].concat())
}

fn run(bundle: &Bundle, options: &[&str]) -> Seen {
    bundle.write();
    test(&Project::new(), &[&["--bundle", bundle.path().to_str().unwrap()], options].concat())
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn only_the_image_is_visible() {
    need!(has_sandboxes(), "needs user namespaces");
    let bundle = Bundle::running("");
    // Missing directories exist in the sandbox but are not left in the image.
    in_rootfs(&bundle, &[], &["list", "/"]).prints("dev\nguest\nproc\ntmp");
    assert_eq!(names(&bundle.rootfs()), ["guest"]);
    for name in ["dev", "proc", "tmp", "run", "var", "sub"] {
        fs::create_dir(bundle.rootfs().join(name)).unwrap();
    }
    in_rootfs(&bundle, &[], &["list", "/"]).prints("dev\nguest\nproc\nrun\nsub\ntmp\nvar");
    in_rootfs(&bundle, &[], &["list", "/dev"])
        .prints("fd\nfull\nmqueue\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\nzero");
    in_rootfs(&bundle, &[], &["write", "/sub/file"]).fails(1, "Read-only file system");
    in_rootfs(&bundle, &[], &["write", "/tmp/file"]).succeeds();
    in_rootfs(&bundle, &[], &["cwd"]).prints("/");
    in_rootfs(&bundle, &[], &["list", "/proc/1/root"]).fails(1, "Permission denied");
    let user = rustix::process::geteuid().as_raw();
    in_rootfs(&bundle, &["--env", "USER"], &["env"]).prints(&format!(
        "HOME=/tmp/home\nLANG=C.UTF-8\nPATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n\
         SHELL=/bin/sh\nTERM=dumb\nTZ=UTC\nUSER=me\nXDG_RUNTIME_DIR=/run/user/{user}"
    ));
    in_rootfs(&bundle, &[], &["mount", "/"]).succeeds();
    test(&Project::new(), &["--rootfs", "/no/such", "--", "x"]).fails(125, "open /no/such: no such file");
    let mut none = vec!["--rootfs", bundle.rootfs().to_str().unwrap().to_owned().leak()];
    none.extend(["--", "/bin/none"]);
    test(&Project::new(), &none).fails(127, "husk: /bin/none: no such file or directory");
}

#[test]
fn paths_refer_to_the_image() {
    need!(has_sandboxes(), "needs user namespaces");
    let bundle = Bundle::running("");
    let sub = bundle.rootfs().join("sub");
    fs::create_dir(&sub).unwrap();
    in_rootfs(&bundle, &["--write", "/sub"], &["write", "/sub/file"]).succeeds();
    assert_eq!(fs::read_to_string(sub.join("file")).unwrap(), "written");
    in_rootfs(&bundle, &["--overlay", "sub"], &["write", "/sub/other"]).succeeds();
    assert_eq!(names(&sub), ["file"]);
    in_rootfs(&bundle, &["--hide", "/sub"], &["list", "/sub"]).prints("");
    in_rootfs(&bundle, &["--overlay", "/"], &["write", "/new"]).succeeds();
    assert_eq!(names(&bundle.rootfs()), ["guest", "sub"]);
    in_rootfs(&bundle, &["--write", "/"], &["write", "/new"]).succeeds();
    assert_eq!(fs::read_to_string(bundle.rootfs().join("new")).unwrap(), "written");
    in_rootfs(&bundle, &["--write", "/etc"], &[]).fails(125, "husk: find /etc: no such file or directory");
    let report = sub.join("lines").to_str().unwrap().to_owned();
    in_rootfs(&bundle, &["--json", &report], &["list", "/"]).fails(125, "where a test could change it");
    fs::remove_dir_all(&sub).unwrap();
    let outside = Project::new();
    let report = outside.path("lines");
    in_rootfs(&bundle, &["--write", "/", "--json", &report], &["list", "/"]).succeeds();
    assert!(fs::read_to_string(report).unwrap().contains("passed"));
}

#[test]
fn symlinks_of_an_image_stay_in_the_image() {
    need!(has_sandboxes(), "needs user namespaces");
    let bundle = Bundle::running("");
    let outside = Project::new();
    for (name, target) in [("absolute", outside.path("here")), ("above", "../../../../../../tmp".to_owned())]
    {
        symlink(&target, bundle.rootfs().join(name)).unwrap();
        in_rootfs(&bundle, &["--write", &format!("/{name}")], &["list", "/"]).fails(125, "no such file");
    }
    fs::create_dir(bundle.rootfs().join("real")).unwrap();
    symlink("/real", bundle.rootfs().join("link")).unwrap();
    in_rootfs(&bundle, &["--write", "/link"], &["write", "/link/file"]).succeeds();
    assert_eq!(names(&bundle.rootfs().join("real")), ["file"]);
    // husk would make its own directories in the target of this link.
    symlink("/real", bundle.rootfs().join("dev")).unwrap();
    in_rootfs(&bundle, &[], &["list", "/"]).fails(125, "rootfs: has no directory at /dev");
}

#[test]
fn bundle_defines_the_process() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let bind = |name: &str, options: &[&str]| {
        json!({ "destination": format!("/bound/{name}"), "type": "bind", "source": place.path("here"),
                "options": options })
    };
    let bundle = Bundle::running("env")
        .with("/process/env", json!(["A=1", "TZ=Asia/Tokyo"]))
        .with("/process/cwd", json!("/made"))
        .with("/process/user", json!({ "uid": 7, "gid": 8, "umask": 63 }))
        .with("/linux/uidMappings", Value::Null)
        .with("/linux/gidMappings", Value::Null)
        .with("/process/rlimits", json!([{ "type": "RLIMIT_NOFILE", "soft": 20, "hard": 30 }]))
        .with("/process/capabilities", json!({ "bounding": ["CAP_KILL"], "effective": ["CAP_KILL"] }))
        .with("/linux/maskedPaths", json!(["/proc/uptime", "/no/such"]))
        .with("/linux/readonlyPaths", json!(["/proc/sys"]))
        .mounting(bind("ro", &["bind", "ro"]))
        .mounting(bind("rw", &["rbind", "rw", "noexec"]))
        .mounting(json!({ "destination": "/tmpfs", "type": "tmpfs", "options": ["size=4k", "mode=700"] }))
        .mounting(json!({ "destination": "/dev/mqueue", "type": "mqueue", "options": ["nosuid"] }))
        .mounting(json!({ "destination": "/sys/fs/cgroup", "type": "cgroup", "options": ["ro"] }));
    let seen = run(&bundle, &[]);
    let variables = seen.succeeds();
    for line in ["A=1", "TZ=Asia/Tokyo", "HOME=/tmp/home"] {
        assert!(variables.lines().any(|variable| variable == line), "{variables}");
    }
    seen.says("husk: warning: process.capabilities: are ignored: a sandbox has no privileges");
    seen.says("husk: warning: mounts[6]: is ignored: a sandbox shows no cgroups");
    let guest = |words: &[&str]| run(&bundle, &[&["--", "/guest"], words].concat());
    guest(&["cwd"]).prints("/made");
    guest(&["status", "Uid"]).prints("7\t7\t7\t7");
    guest(&["status", "Gid"]).prints("8\t8\t8\t8");
    guest(&["status", "Umask"]).prints("0077");
    guest(&["status", "CapEff"]).prints("0000000000000000");
    guest(&["cat", "/proc/sys/kernel/hostname"]).prints("guest");
    let limits = guest(&["cat", "/proc/self/limits"]).succeeds();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(files.split_whitespace().nth(3), Some("20"), "{files}");
    guest(&["list", "/bound/ro"]).prints("file");
    guest(&["write", "/bound/ro/file"]).fails(1, "Read-only file system");
    guest(&["write", "/bound/rw/written"]).succeeds();
    assert_eq!(fs::read_to_string(place.path("here/written")).unwrap(), "written");
    assert!(guest(&["mount", "/bound/rw"]).succeeds().contains("noexec"));
    assert!(guest(&["mount", "/tmpfs"]).succeeds().contains("size=4k"));
    guest(&["cat", "/proc/uptime"]).prints("");
    // The root is writable, and unchanged afterwards.
    guest(&["write", "/made/file"]).succeeds();
    assert_eq!(names(&bundle.rootfs()), ["guest"]);
    let read_only = bundle.with("/root/readonly", json!(true));
    run(&read_only, &["--", "/guest", "write", "/file"]).fails(1, "Read-only file system");
}

#[test]
fn seccomp_filter_and_time_offsets_of_a_bundle_apply() {
    need!(has_sandboxes(), "needs user namespaces");
    let rule = json!({ "names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 77 });
    let bundle = Bundle::running("mkdir /tmp/own")
        .with("/linux/seccomp", json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule] }))
        .with("/linux/timeOffsets", json!({ "boottime": { "secs": 5_000_000 } }));
    run(&bundle, &[]).fails(1, "os error 77");
    let up = run(&bundle, &["--", "/guest", "cat", "/proc/uptime"]).succeeds();
    assert!(up.split('.').next().unwrap().parse::<u64>().unwrap() >= 5_000_000, "{up}");
}

#[test]
fn unsupported_field_is_refused_by_name() {
    need!(has_sandboxes(), "needs user namespaces");
    let hook = json!([{ "path": "/bin/true" }]);
    for (pointer, value, field) in [
        ("/hooks", json!({ "poststop": hook }), "hooks.poststop"),
        ("/process/oomScoreAdj", json!(5), "process.oomScoreAdj"),
        ("/process/apparmorProfile", json!("p"), "process.apparmorProfile"),
        (
            "/process/user",
            json!({ "uid": 0, "gid": 0, "additionalGids": [5] }),
            "process.user.additionalGids",
        ),
        ("/linux/sysctl", json!({ "net.ipv4.ip_forward": "1" }), "linux.sysctl"),
        (
            "/linux/devices",
            json!([{ "path": "/dev/x", "type": "c", "major": 1, "minor": 3 }]),
            "linux.devices",
        ),
        ("/linux/resources", json!({ "cpu": { "shares": 5 } }), "linux.resources.cpu"),
        ("/linux/rootfsPropagation", json!("shared"), "linux.rootfsPropagation"),
        (
            "/linux/namespaces",
            json!([{ "type": "network", "path": "/proc/1/ns/net" }]),
            "linux.namespaces[0].path",
        ),
        ("/mounts", json!([{ "destination": "/x", "type": "ext4", "source": "/dev/x" }]), "mounts[0].type"),
        (
            "/mounts",
            json!([{ "destination": "/x", "type": "bind", "source": "/", "options": ["rshared"] }]),
            "mounts[0].options",
        ),
    ] {
        run(&Bundle::running("").with(pointer, value), &[])
            .fails(125, &format!("husk: {field}: a sandbox does not support this"));
    }
    let map = json!([{ "containerID": 0, "hostID": 100_000, "size": 65536 }]);
    let bundle = Bundle::running("").with("/linux/uidMappings", map.clone()).with("/linux/gidMappings", map);
    let bundle = bundle.with("/linux/namespaces", json!([{ "type": "user" }]));
    run(&bundle, &[]).fails(125, "linux.uidMappings: may only map the caller's id");
    // A test binary is a program of the host and needs the host's libraries.
    for option in ["--rootfs", "--bundle"] {
        test(&Project::new(), &[option, "/", "--runner", "--", "/guest"]).fails(125, "cannot be used with");
    }
}

#[test]
fn limits_of_a_bundle_apply() {
    need!(has_sandboxes(), "needs user namespaces");
    let bundle =
        Bundle::running("eat").with("/linux/resources", json!({ "memory": { "limit": 33_554_432 } }));
    let seen = run(&bundle, &[]);
    assert!(!seen.0.status.success());
    // The command line overrides the bundle.
    run(&bundle, &["--memory", "1g", "--", "/guest", "exit", "3"]).fails(3, "");
}

/// The caller need not have write permission for the image.
#[test]
fn image_may_be_read_only() {
    need!(has_sandboxes(), "needs user namespaces");
    let bundle = Bundle::running("");
    fs::set_permissions(bundle.rootfs(), fs::Permissions::from_mode(0o555)).unwrap();
    in_rootfs(&bundle, &[], &["list", "/"]).prints("dev\nguest\nproc\ntmp");
    fs::set_permissions(bundle.rootfs(), fs::Permissions::from_mode(0o755)).unwrap();
}
