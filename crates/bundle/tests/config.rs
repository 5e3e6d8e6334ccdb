//! Checks the message for each refused configuration, and the container for accepted ones.

use husk_bundle::container::{
    Access, Capabilities, DeviceKind, NoNewPrivileges, Scheduler, Source, Terminal,
};
use husk_bundle::{Container, Warning, parse};
use husk_sys::mount::{AttributeChange, Extent, MountAttributes};
use serde_json::{Value, json};
use std::path::Path;

fn minimal() -> Value {
    json!({
        "ociVersion": "1.3.0",
        "root": { "path": "rootfs" },
        "process": { "user": { "uid": 0, "gid": 0 }, "args": ["sh"], "cwd": "/" }
    })
}

/// Returns the minimal configuration with `value` at `pointer`. The last part of the pointer may be new.
fn with(pointer: &str, value: Value) -> Value {
    let mut config = minimal();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let mut place = &mut config;
    for part in parent.split('/').skip(1) {
        place = place.as_object_mut().unwrap().entry(part).or_insert_with(|| json!({}));
    }
    place.as_object_mut().unwrap().insert(key.to_owned(), value);
    config
}

fn parsed(config: &Value) -> (Container, Vec<Warning>) {
    parse(config.to_string().as_bytes(), Path::new("/bundle")).unwrap()
}

fn refused(config: &Value) -> String {
    parse(config.to_string().as_bytes(), Path::new("/bundle")).unwrap_err().to_string()
}

#[test]
fn minimal_configuration_gets_all_defaults() {
    let (container, warnings) = parsed(&minimal());
    assert_eq!(warnings, []);
    assert_eq!(container.rootfs, Path::new("/bundle/rootfs"));
    assert_eq!(container.rootfs_access, Access::ReadWrite);
    let process = container.process.unwrap();
    assert_eq!(process.umask, 0o022);
    assert_eq!(process.terminal, Terminal::No);
    assert_eq!(process.no_new_privileges, NoNewPrivileges::Unset);
    assert_eq!(process.capabilities, Capabilities::default());
    assert_eq!(process.oom_score_adj, None);
}

#[test]
fn pids_limit_zero_means_unlimited_before_1_3() {
    for (version, limit) in [("1.3.0", 0), ("1.10.0", 0), ("1.9.0", 0), ("1.0.2-dev", -1), ("1.2.1", -1)] {
        let mut config = with("/linux/resources/pids/limit", json!(0));
        config["ociVersion"] = json!(version);
        assert_eq!(parsed(&config).0.resources.pids_limit, Some(limit), "{version}");
        config["linux"]["resources"]["pids"]["limit"] = json!(7);
        assert_eq!(parsed(&config).0.resources.pids_limit, Some(7), "{version}");
    }
}

#[test]
fn each_refusal_names_its_field() {
    let table = [
        (with("/root", json!({})), "root.path: is empty"),
        (with("/root/path", json!("")), "root.path: is empty"),
        (with("/process/args", json!([])), "process.args: is empty"),
        // setresuid(-1) changes nothing, so the program would stay root.
        (with("/process/user/uid", json!(u32::MAX)), "process.user.uid: 4294967295 is out of range"),
        (with("/process/user/gid", json!(u32::MAX)), "process.user.gid: 4294967295 is out of range"),
        (
            with("/process/user/additionalGids", json!([0, u32::MAX])),
            "process.user.additionalGids[1]: 4294967295 is out of range",
        ),
        (with("/process/args", json!(["a\0b"])), "process.args[0]: contains a NUL byte"),
        (with("/process/cwd", json!("here")), "process.cwd: \"here\" is not an absolute path"),
        (with("/process/env", json!(["A=1", "B"])), "process.env[1]: is not of the form NAME=VALUE"),
        (
            with("/process/user/uid", json!(-1)),
            "process.user.uid: must be a whole number from 0 to 4294967295, not -1",
        ),
        (
            with("/process/ioPriority", json!({ "class": "IOPRIO_CLASS_BE", "priority": 8 })),
            "process.ioPriority.priority: 8 is out of range",
        ),
        (
            with("/process/scheduler", json!({ "policy": "SCHED_OTHER", "flags": ["SCHED_FLAG_X"] })),
            "process.scheduler.flags[0]: \"SCHED_FLAG_X\" is unknown",
        ),
        (with("/mounts", json!([{ "destination": "/a" }])), "mounts[0].type: is missing"),
        (
            with("/mounts", json!([{ "destination": "/a", "options": ["bind"] }])),
            "mounts[0].source: is missing",
        ),
        (with("/mounts", json!([{ "destination": "", "type": "proc" }])), "mounts[0].destination: is empty"),
        (
            with("/mounts", json!([{ "destination": "/a", "type": "tmpfs", "options": ["idmap"] }])),
            "mounts[0]: id-mapped mounts are only supported for bind-mounts",
        ),
        (
            with("/linux/namespaces", json!([{ "type": "pid" }, { "type": "pid" }])),
            "linux.namespaces[1].type: \"pid\" occurs twice",
        ),
        (
            with("/linux/namespaces", json!([{ "type": "net", "path": "ns" }])),
            "linux.namespaces[0].type: \"net\" is unknown",
        ),
        (
            with("/linux/namespaces", json!([{ "type": "network", "path": "ns" }])),
            "linux.namespaces[0].path: \"ns\" is not an absolute path",
        ),
        (
            with("/linux/uidMappings", json!([{ "containerID": 0, "hostID": 1, "size": 0 }])),
            "linux.uidMappings[0].size: 0 is out of range",
        ),
        (
            with("/linux/gidMappings", json!([{ "containerID": 4_294_967_290_u32, "hostID": 1, "size": 9 }])),
            "linux.gidMappings[0].containerID: 4294967298 is out of range",
        ),
        (
            with(
                "/linux/uidMappings",
                json!([
                    { "containerID": 0, "hostID": 100, "size": 10 },
                    { "containerID": 10, "hostID": 200, "size": 5 },
                    { "containerID": 14, "hostID": 300, "size": 1 }
                ]),
            ),
            "linux.uidMappings[2].containerID: overlaps an earlier mapping",
        ),
        (
            with(
                "/linux/uidMappings",
                json!([
                    { "containerID": 0, "hostID": 100, "size": 10 },
                    { "containerID": 10, "hostID": 99, "size": 2 }
                ]),
            ),
            "linux.uidMappings[1].hostID: overlaps an earlier mapping",
        ),
        (
            with("/linux/timeOffsets", json!({ "monotonic": { "secs": 1, "nanosecs": 1_000_000_000 } })),
            "linux.timeOffsets: 1000000000 is out of range",
        ),
        (with("/linux/rootfsPropagation", json!("often")), "linux.rootfsPropagation: \"often\" is unknown"),
        (
            with("/linux/devices", json!([{ "path": "/dev/x", "type": "c", "major": -1, "minor": 0 }])),
            "linux.devices[0].major: -1 is out of range",
        ),
        (
            with("/linux/maskedPaths", json!(["proc"])),
            "linux.maskedPaths[0]: \"proc\" is not an absolute path",
        ),
        (
            with("/mounts", json!([{ "destination": "/x", "source": "/x", "options": ["bind", "size=1k"] }])),
            "mounts[0].options: bind mounts cannot have any filesystem-specific options applied",
        ),
        (
            with("/mounts", json!([{ "destination": "/x", "type": "proc", "options": ["tmpcopyup"] }])),
            "mounts[0].options: tmpcopyup is only valid for a tmpfs",
        ),
        (
            with("/hooks/poststop", json!([{ "path": "/bin/true", "timeout": 0 }])),
            "hooks.poststop[0].timeout: 0 is out of range",
        ),
        (
            with("/hooks/createRuntime", json!([{ "path": "true" }])),
            "hooks.createRuntime[0].path: \"true\" is not an absolute path",
        ),
    ];
    for (config, message) in table {
        let found = refused(&config);
        assert!(found.starts_with(message), "{found}\n{message}");
    }
}

#[test]
fn null_field_counts_as_absent() {
    let (container, _) = parsed(&with("/process/terminal", Value::Null));
    assert_eq!(container.process.unwrap().terminal, Terminal::No);
    assert_eq!(parsed(&with("/process/user/gid", Value::Null)).0.process.unwrap().gid, 0);
}

#[test]
fn unknown_capability_is_a_warning() {
    let sets = json!({ "bounding": ["CAP_CHOWN", "CAP_FUTURE"], "effective": ["CAP_SYS_ADMIN"] });
    let (container, warnings) = parsed(&with("/process/capabilities", sets));
    let capabilities = container.process.unwrap().capabilities;
    assert_eq!(capabilities.bounding, 1);
    assert_eq!(capabilities.effective, 1 << 21);
    assert_eq!(
        warnings[0].to_string(),
        "process.capabilities.bounding[1]: \"CAP_FUTURE\" is unknown and ignored"
    );
}

#[test]
fn scheduler_flags_use_the_specifications_names() {
    let scheduler = json!({
        "policy": "SCHED_DEADLINE", "runtime": 1, "deadline": 2, "period": 3,
        "flags": ["SCHED_FLAG_RESET_ON_FORK", "SCHED_FLAG_DL_OVERRUN"]
    });
    let wanted = Scheduler { policy: 6, flags: 5, nice: 0, priority: 0, runtime: 1, deadline: 2, period: 3 };
    assert_eq!(parsed(&with("/process/scheduler", scheduler)).0.process.unwrap().scheduler, Some(wanted));
}

#[test]
fn last_value_of_a_variable_keeps_the_first_position() {
    let env = json!(["A=1", "B=2", "A=3", "C=a=b"]);
    let env = parsed(&with("/process/env", env)).0.process.unwrap().env;
    assert_eq!(env, [c"A=3", c"B=2", c"C=a=b"].map(ToOwned::to_owned));
}

#[test]
fn cpu_list_is_expanded_and_an_empty_list_is_ignored() {
    let affinity = json!({ "initial": "0-2,7", "final": "" });
    let affinity = parsed(&with("/process/execCPUAffinity", affinity)).0.process.unwrap().exec_affinity;
    assert_eq!(affinity.initial, Some(vec![0, 1, 2, 7]));
    assert_eq!(affinity.finally, None);
}

#[test]
fn mount_options_decide_the_kind_of_mount() {
    let mounts = json!([
        { "destination": "/proc", "type": "proc", "source": "proc" },
        { "destination": "data", "type": "none", "source": "files", "options": ["rbind", "ro", "sync"] },
        { "destination": "/sys/fs/cgroup", "type": "cgroup", "options": ["nosuid"] }
    ]);
    let (container, warnings) = parsed(&with("/mounts", mounts));
    let [proc, data, cgroup] = &container.mounts[..] else { panic!("three mounts") };
    assert!(matches!(&proc.source, Source::New { fstype, copy_up: false, .. } if fstype == "proc"));
    assert_eq!(data.destination, Path::new("/data"));
    assert_eq!(data.source, Source::Bind { path: "/bundle/files".into(), extent: Extent::All });
    assert_eq!(data.attributes, AttributeChange::set(MountAttributes::RDONLY));
    assert_eq!(cgroup.source, Source::Cgroup { options: Vec::new() });
    let texts: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "mounts[1].destination: is relative and is resolved below the root",
            "mounts[1].options: \"sync\" has no effect on a bind mount and is ignored",
        ]
    );
}

#[test]
fn cgroup_v2_options_need_a_cgroup_namespace() {
    let with_kinds = |kinds: &[&str]| {
        let mount =
            json!({ "destination": "/sys/fs/cgroup", "type": "cgroup", "options": ["ro", "nsdelegate"] });
        let mut config = with("/mounts", json!([mount]));
        config["linux"]["namespaces"] = kinds.iter().map(|kind| json!({ "type": kind })).collect();
        let (container, warnings) = parsed(&config);
        let Source::Cgroup { options } = container.mounts[0].source.clone() else { panic!("cgroups") };
        (options, warnings.len())
    };
    assert_eq!(with_kinds(&["mount", "cgroup"]), (vec!["nsdelegate".to_owned()], 0));
    assert_eq!(with_kinds(&["mount"]), (Vec::new(), 1));
}

#[test]
fn sysfs_in_a_user_namespace_without_a_network_namespace_is_the_hosts() {
    let with_kinds = |kinds: &[&str]| {
        let mount = json!({ "destination": "/sys", "type": "sysfs", "options": ["nosuid"] });
        let mut config = with("/mounts", json!([mount]));
        config["linux"]["namespaces"] = kinds.iter().map(|kind| json!({ "type": kind })).collect();
        let (mut container, warnings) = parsed(&config);
        (container.mounts.remove(0), warnings)
    };
    let (mount, warnings) = with_kinds(&["mount", "user"]);
    assert_eq!(mount.source, Source::Bind { path: "/sys".into(), extent: Extent::All });
    assert_eq!(mount.recursive_attributes, AttributeChange::set(MountAttributes::RDONLY));
    assert!(warnings[0].to_string().starts_with("mounts[0]: is the host's /sys, read-only"), "{warnings:?}");
    for kinds in [&["mount"][..], &["mount", "user", "network"]] {
        let (mount, warnings) = with_kinds(kinds);
        assert!(matches!(mount.source, Source::New { .. }) && warnings.is_empty(), "{kinds:?}");
    }
}

#[test]
fn device_mode_keeps_only_permission_bits() {
    let device = json!([{ "path": "/dev/x", "type": "u", "major": 1, "minor": 3, "fileMode": 0o20_640 }]);
    let device = &parsed(&with("/linux/devices", device)).0.devices[0];
    assert_eq!((device.mode, device.kind), (0o640, DeviceKind::Character(1, 3)));
}

#[test]
fn sysctl_key_with_slashes_is_normalized() {
    let keys = json!({ "net/ipv4/conf/eth0.1/forwarding": "1", "kernel.shmmax": "2" });
    let sysctl = parsed(&with("/linux/sysctl", keys)).0.sysctl;
    assert_eq!(sysctl.keys().collect::<Vec<_>>(), ["kernel.shmmax", "net.ipv4.conf.eth0/1.forwarding"]);
}

#[test]
fn json_syntax_error_names_line_and_column() {
    let error = parse(b"{ \"root\": }", Path::new("/bundle")).unwrap_err().to_string();
    assert_eq!(error, "config.json: expected value at line 1 column 11");
}
