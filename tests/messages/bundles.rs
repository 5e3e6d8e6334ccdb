//! Messages about bundles: their files and fields, and what this machine cannot do for them.

use super::List;
use crate::util::{Bundle, program};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

const RUN: [&str; 4] = ["run", "--bundle", "{bundle}", "c"];

const CREATE: [&str; 4] = ["create", "--bundle", "{bundle}", "c"];

/// Runs a verb on a bundle with another value in one field, which is the description.
fn add_with(list: &mut List, words: &[&str], bundle: &mut Bundle, pointer: &str, value: Value) {
    let field = pointer.trim_start_matches('/').replace('/', ".");
    let description = format!("{field} = {value}");
    let before = bundle.config.clone();
    set(&mut bundle.config, pointer, value);
    list.write(bundle);
    bundle.config = before;
    let command = list.command(words);
    list.run(&description, command, words.first() == Some(&"validate"));
}

/// Sets a field, and makes the objects around it if they do not exist. `null` removes it.
fn set(config: &mut Value, pointer: &str, value: Value) {
    let mut parts: Vec<_> = pointer.split('/').skip(1).collect();
    let last = parts.pop().unwrap();
    let parent = parts.iter().fold(config, |parent, part| match part.parse::<usize>() {
        Ok(index) => &mut parent[index],
        Err(_) => &mut parent[*part],
    });
    match (last.parse::<usize>(), value) {
        (Ok(index), value) if parent.is_array() => match index < parent.as_array().unwrap().len() {
            true => parent[index] = value,
            false => parent.as_array_mut().unwrap().push(value),
        },
        (_, Value::Null) => drop(parent.as_object_mut().unwrap().remove(last)),
        (_, value) => parent[last] = value,
    }
}

/// A config.json that cannot be read.
pub(super) fn files(list: &mut List) {
    let bundle = Bundle::running("exit 0");
    list.name(bundle.path(), "{bundle}");
    let config = bundle.path().join("config.json");
    list.add(&["run", "--bundle", "/no/such", "c"]);
    list.explain("no config.json");
    list.add(&RUN);
    list.add(&["run", "--bundle", "{bundle}", "--config", "other.json", "c"]);
    list.add(&["plan", "{bundle}"]);
    list.explain("config.json is a directory");
    fs::create_dir(&config).unwrap();
    list.add(&RUN);
    fs::remove_dir(&config).unwrap();
    list.explain("config.json is a symlink to itself");
    symlink(&config, &config).unwrap();
    list.add(&RUN);
    fs::remove_file(&config).unwrap();
    list.explain("config.json has 1 GiB");
    fs::File::create(&config).unwrap().set_len(1 << 30).unwrap();
    list.add(&RUN);
    for text in ["", "{", "[]", "null", "{ \"root\": { \"path\": 1 } }", "{ \"a\": \"\\u0000\" }"] {
        list.explain(&format!("config.json is {text:?}"));
        fs::write(&config, text).unwrap();
        list.add(&RUN);
    }
}

/// Fields with values that no machine can carry out.
pub(super) fn fields(list: &mut List) {
    let bundle = &mut Bundle::running("exit 0");
    let id = |inside: u32, size: u32| json!({ "containerID": inside, "hostID": 0, "size": size });
    let tmpfs = |key: &str, value: Value| {
        let mut mount = json!({ "destination": "/a", "type": "tmpfs" });
        mount[key] = value;
        mount
    };
    let bind = |options: Value| json!({ "destination": "/a", "source": "/etc", "options": options });
    let hook = |hook: Value| json!([hook]);
    let device = |value: Value| json!([value]);
    for (pointer, value) in [
        ("/root", Value::Null),
        ("/root/path", Value::Null),
        ("/root/path", json!("")),
        ("/process", Value::Null),
        ("/process/args", Value::Null),
        ("/process/args", json!([])),
        ("/process/args", json!([1])),
        ("/process/args", json!(["a\0"])),
        ("/process/cwd", Value::Null),
        ("/process/cwd", json!("here")),
        ("/process/env", json!(["A"])),
        ("/process/env", json!("A=1")),
        ("/process/user/uid", json!(-1)),
        ("/process/user/uid", json!(4_294_967_295_u32)),
        ("/process/user/umask", json!("022")),
        ("/process/rlimits", json!([{ "type": "RLIMIT_NONSENSE", "soft": 1, "hard": 1 }])),
        (
            "/process/rlimits",
            json!([{ "type": "RLIMIT_CORE", "soft": 1, "hard": 1 }, { "type": "RLIMIT_CORE", "soft": 1, "hard": 1 }]),
        ),
        ("/process/rlimits", json!([{ "type": "RLIMIT_CORE", "soft": 2, "hard": 1 }])),
        ("/process/oomScoreAdj", json!(5000)),
        ("/process/scheduler", json!({ "policy": "SCHED_NONSENSE" })),
        ("/process/scheduler", json!({ "policy": "SCHED_OTHER", "priority": 1 })),
        ("/process/scheduler", json!({ "policy": "SCHED_OTHER", "nice": 50 })),
        ("/process/scheduler", json!({ "policy": "SCHED_FIFO", "priority": 1, "runtime": 1 })),
        ("/process/ioPriority", json!({ "class": "IOPRIO_CLASS_NONSENSE", "priority": 1 })),
        ("/process/ioPriority", json!({ "class": "IOPRIO_CLASS_RT", "priority": 9 })),
        ("/process/execCPUAffinity", json!({ "initial": "a" })),
        ("/process/terminal", json!("yes")),
        ("/mounts/2", json!({ "type": "tmpfs" })),
        ("/mounts/2", json!({ "destination": "a", "type": 1 })),
        ("/mounts/2", json!({ "destination": "/a" })),
        ("/mounts/2", tmpfs("options", json!("ro"))),
        ("/mounts/2", tmpfs("options", json!([1]))),
        ("/mounts/2", tmpfs("options", json!(["idmap"]))),
        ("/mounts/2", tmpfs("uidMappings", json!([id(0, 1)]))),
        ("/mounts/2", bind(json!(["bind", "size=1"]))),
        ("/mounts/2", bind(json!(["bind", "tmpcopyup"]))),
        ("/mounts/2", json!({ "destination": "/a", "options": ["bind"] })),
        (
            "/mounts/2",
            json!({ "destination": "/a", "source": "/etc", "options": ["bind"], "uidMappings": [id(0, 1)] }),
        ),
        ("/hooks", json!({ "createRuntime": hook(json!({})) })),
        ("/hooks", json!({ "createRuntime": hook(json!({ "path": "hook" })) })),
        ("/hooks", json!({ "createRuntime": hook(json!({ "path": "/hook", "timeout": 0 })) })),
        ("/hooks", json!({ "createRuntime": hook(json!({ "path": "/hook", "timeout": "1s" })) })),
        ("/hooks", json!({ "createRuntime": hook(json!({ "path": "/hook", "env": ["A"] })) })),
        ("/annotations", json!({ "a": 1 })),
        ("/linux/namespaces", json!([{ "type": "pod" }])),
        ("/linux/namespaces", json!([{ "type": "pid" }, { "type": "pid" }])),
        ("/linux/namespaces", json!([{ "type": "pid", "path": "proc/1/ns/pid" }])),
        ("/linux/uidMappings", json!([id(0, 0)])),
        ("/linux/uidMappings", json!([id(u32::MAX, 2)])),
        ("/linux/uidMappings", json!([id(0, 2), id(1, 2)])),
        ("/linux/timeOffsets", json!({ "realtime": { "secs": 1 } })),
        ("/linux/timeOffsets", json!({ "boottime": { "secs": 1, "nanosecs": 1_000_000_000 } })),
        ("/linux/devices", device(json!({ "path": "/dev/a", "type": "a", "major": 1, "minor": 1 }))),
        ("/linux/devices", device(json!({ "path": "/dev/a", "type": "x", "major": 1, "minor": 1 }))),
        ("/linux/devices", device(json!({ "path": "/dev/a", "type": "c", "major": -1, "minor": 1 }))),
        ("/linux/devices", device(json!({ "path": "dev/a", "type": "c", "major": 1, "minor": 1 }))),
        ("/linux/netDevices", json!({ "a/b": {} })),
        ("/linux/netDevices", json!({ "eth0": { "name": "a-name-that-is-too-long" } })),
        ("/linux/maskedPaths", json!(["proc"])),
        ("/linux/rootfsPropagation", json!("sideways")),
        ("/linux/sysctl", json!({ "net.ipv4.ip_forward": 1 })),
        ("/linux/personality", json!({ "domain": "BSD" })),
        ("/linux/memoryPolicy", json!({ "mode": "MPOL_NONSENSE" })),
        ("/linux/memoryPolicy", json!({ "mode": "MPOL_BIND", "nodes": "a" })),
        ("/linux/memoryPolicy", json!({ "mode": "MPOL_BIND" })),
        ("/linux/memoryPolicy", json!({ "mode": "MPOL_DEFAULT", "nodes": "0" })),
        ("/linux/memoryPolicy", json!({ "mode": "MPOL_BIND", "nodes": "0", "flags": ["MPOL_F_NONSENSE"] })),
        ("/linux/intelRdt", json!({ "closID": "a/b" })),
        ("/linux/cgroupsPath", json!(1)),
        ("/linux/resources", json!({ "memory": { "limit": "1g" } })),
        ("/linux/resources", json!({ "pids": { "limit": "all" } })),
        ("/linux/resources", json!({ "hugepageLimits": [{ "pageSize": "2MB" }] })),
        ("/linux/resources", json!({ "devices": [{ "allow": true, "type": "x" }] })),
        ("/linux/resources", json!({ "devices": [{ "allow": true, "access": "x" }] })),
        ("/linux/resources", json!({ "devices": [{ "allow": true, "access": "" }] })),
        ("/linux/resources", json!({ "devices": [{ "allow": true, "major": -5 }] })),
        ("/linux/seccomp", json!({})),
        ("/linux/seccomp", json!({ "defaultAction": "SCMP_ACT_NONSENSE" })),
        ("/linux/seccomp", json!({ "defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_VAX"] })),
        ("/linux/seccomp", json!({ "defaultAction": "SCMP_ACT_ALLOW", "flags": ["NONSENSE"] })),
        ("/linux/seccomp", json!({ "defaultAction": "SCMP_ACT_ALLOW", "listenerMetadata": "a" })),
        ("/linux/seccomp", json!({ "defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "agent" })),
        (
            "/linux/seccomp",
            json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{ "names": ["read"], "action": "SCMP_ACT_ERRNO",
                "args": [{ "index": 7, "value": 0, "op": "SCMP_CMP_EQ" }] }] }),
        ),
        (
            "/linux/seccomp",
            json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{ "names": ["read"], "action": "SCMP_ACT_ERRNO",
                "args": [{ "index": 0, "value": 0, "op": "SCMP_CMP_NONSENSE" }] }] }),
        ),
        ("/linux/seccomp", json!({ "defaultAction": "SCMP_ACT_NOTIFY" })),
    ] {
        add_with(list, &RUN, bundle, pointer, value);
    }
}

/// Fields that are not carried out as written.
pub(super) fn warnings(list: &mut List) {
    let bundle = &mut Bundle::running("exit 0");
    let mount = |options: Value| json!({ "destination": "/a", "source": "/etc", "options": options });
    for (pointer, value) in [
        ("/hostnam", json!("a")),
        ("/linux/maskedpaths", json!([])),
        ("/process/capabilities", json!({ "bounding": ["CAP_NONSENSE"] })),
        ("/mounts/2", mount(json!(["bind", "sync"]))),
        ("/linux/resources", json!({ "memory": { "kernel": 1 } })),
    ] {
        add_with(list, &["validate", "{bundle}"], bundle, pointer, value);
    }
    let calls = json!([{ "names": ["no_such_call"], "action": "SCMP_ACT_ERRNO" }]);
    let profile = json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": calls });
    add_with(list, &["plan", "--seccomp", "{bundle}"], bundle, "/linux/seccomp", profile);
}

/// The output of `validate`.
pub(super) fn validate(list: &mut List) {
    let mut bundle = Bundle::running("exit 0");
    list.write(&bundle);
    list.add_printed(&["validate", "/no/such"]);
    list.add_printed(&["validate", "{bundle}"]);
    for (pointer, value) in [
        ("/root/path", json!("missing")),
        ("/mounts/2", json!({ "destination": "/a", "type": "bind", "source": "/no/such" })),
    ] {
        set(&mut bundle.config, pointer, value);
    }
    list.write(&bundle);
    list.explain("a bundle whose root file system and bind source do not exist");
    list.add_printed(&["validate", "{bundle}"]);
    let mut bundle = Bundle::running("exit 0");
    for (pointer, value) in [
        ("/root", json!({})),
        ("/process/args", json!([])),
        ("/process/cwd", json!("./here")),
        ("/process/env", json!(["A", "B\0=1"])),
        ("/process/user/uid", json!(4_294_967_295_u32)),
        ("/mounts/2", json!({ "destination": "/a" })),
        ("/mounts/3", json!({ "type": "tmpfs" })),
        ("/mounts/4", json!({ "destination": "/a", "type": "tmpfs", "options": [1] })),
        ("/linux/namespaces", json!([{ "type": "pid" }, { "type": "pid" }, {}])),
        ("/hostnam", json!("a")),
    ] {
        set(&mut bundle.config, pointer, value);
    }
    list.write(&bundle);
    list.explain("a bundle with many errors");
    list.add_printed(&["validate", "{bundle}"]);
    let bundle = Bundle::running("exit 0");
    fs::write(bundle.path().join("config.json"), "{ \"hooks\": ").unwrap();
    list.name(bundle.path(), "{bundle}");
    list.explain("a config.json that ends early");
    list.add_printed(&["validate", "{bundle}"]);
}

/// Settings that are valid, but not on this machine or not for this caller.
pub(super) fn refused(list: &mut List) {
    let bundle = &mut Bundle::running("exit 0");
    let without = |kind: &str| {
        let kinds = ["pid", "ipc", "uts", "mount", "network"];
        kinds
            .into_iter()
            .filter(|other| *other != kind)
            .map(|kind| json!({ "type": kind }))
            .collect::<Value>()
    };
    let with = |path: &str| json!([{ "type": "mount" }, { "type": "network", "path": path }]);
    let notifying = json!([{ "names": ["mkdir"], "action": "SCMP_ACT_NOTIFY" }]);
    for (pointer, value) in [
        ("/linux/namespaces", without("uts")),
        ("/linux/namespaces", without("mount")),
        ("/linux/namespaces", with("/no/such")),
        ("/linux/namespaces", with("/etc/passwd")),
        ("/linux/namespaces", with("/proc/self/ns/uts")),
        ("/linux/uidMappings", json!([{ "containerID": 0, "hostID": 0, "size": 1 }])),
        ("/linux/netDevices", json!({ "husk-no-such": {} })),
        ("/linux/timeOffsets", json!({ "boottime": { "secs": 1 } })),
        ("/linux/sysctl", json!({ "kernel.hostname": "a" })),
        ("/linux/sysctl", json!({ "kernel.panic": "1" })),
        ("/linux/cgroupsPath", json!("/")),
        ("/linux/seccomp", json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": notifying })),
        ("/process/terminal", json!(true)),
        ("/process/args", json!([""])),
        ("/mounts/2", json!({ "destination": "/", "type": "tmpfs" })),
        ("/mounts/0", json!({ "destination": "/proc", "type": "tmpfs" })),
    ] {
        add_with(list, &RUN, bundle, pointer, value);
    }
    list.explain("create, which does not stay at the terminal");
    add_with(list, &CREATE, bundle, "/process/terminal", json!(true));
    list.write(bundle);
    list.add(&["run", "--bundle", "{bundle}", "--console-socket", "/no/such", "c"]);
    list.add(&["run", "--bundle", "{bundle}", "--pid-file", "/no/such/pid", "c"]);
    list.add(&["run", "--bundle", "{bundle}", "--pidfd-socket", "/no/such", "c"]);
    list.add(&["run", "--bundle", "{bundle}", "--preserve-fds", "100", "c"]);
    list.add(&["run", "--bundle", "{bundle}", "--timings=/no/such/file", "c"]);
    list.add(&["plan", "--seccomp", "{bundle}"]);
}

/// Steps that the kernel refuses.
pub(super) fn steps(list: &mut List) {
    let bundle = &mut Bundle::running("exit 0");
    let mount = |kind: &str, source: &str, options: Value| json!({ "destination": "/a", "type": kind, "source": source, "options": options });
    for (pointer, value) in [
        ("/root/path", json!("missing")),
        ("/root/path", json!("config.json")),
        ("/process/args", json!(["no-such"])),
        ("/process/args", json!(["/no/such"])),
        ("/process/args", json!(["/proc"])),
        ("/process/cwd", json!("/guest")),
        ("/mounts/2", mount("nothing", "none", json!([]))),
        ("/mounts/2", mount("tmpfs", "tmpfs", json!(["size=nonsense"]))),
        ("/mounts/2", mount("tmpfs", "tmpfs", json!(["nonsense"]))),
        ("/mounts/2", mount("bind", "/no/such", json!(["bind"]))),
        ("/mounts/2", json!({ "destination": "/guest", "source": "/etc", "options": ["bind"] })),
        ("/linux/sysctl", json!({ "net.no.such": "1" })),
        ("/process/rlimits", json!([{ "type": "RLIMIT_NOFILE", "soft": 2, "hard": 1 }])),
        ("/process/oomScoreAdj", json!(5000)),
    ] {
        add_with(list, &RUN, bundle, pointer, value);
    }
    let file = bundle.rootfs().join("file");
    for (mode, text, what) in [
        (0o644, "", "not executable"),
        (0o755, "text", "not a program"),
        (0o755, "#!/no/interpreter\n", "a script without its interpreter"),
    ] {
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        list.explain(&format!("/file is {what}"));
        add_with(list, &RUN, bundle, "/process/args", json!(["/file"]));
    }
}

/// Hooks that fail.
pub(super) fn hooks(list: &mut List) {
    let bundle = &mut Bundle::running("exit 0");
    let script = |script: &str| json!([{ "path": "/bin/sh", "args": ["sh", "-c", script] }]);
    for kind in ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"] {
        let (path, args) = if kind == "startContainer" {
            ("/guest", ["guest", "exit", "3"])
        } else {
            ("/bin/sh", ["sh", "-c", "exit 3"])
        };
        let hook = json!({ kind: [{ "path": path, "args": args }] });
        add_with(list, &RUN, bundle, "/hooks", hook);
    }
    let husk = program();
    list.name(Path::new(&husk), "{husk}");
    let delete =
        format!("{} --root {} delete --force c; kill -STOP $$", husk.display(), list.root().display());
    for hook in [
        json!([{ "path": "/no/such" }]),
        json!([{ "path": "/etc/passwd" }]),
        script("echo said; echo more >&2; exit 3"),
        script("kill -KILL $$"),
        json!([{ "path": "/bin/sh", "args": ["sh", "-c", "kill -STOP $$"], "timeout": 1 }]),
        script("kill -TERM $PPID; kill -STOP $$"),
        script(&delete),
    ] {
        add_with(list, &CREATE, bundle, "/hooks", json!({ "createRuntime": hook }));
    }
}
