//! A bundle that uses every kind of resource that could be left behind.

use crate::Outcome;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// A bundle in its own directory.
pub(crate) struct Bundle(PathBuf);

impl Bundle {
    /// Creates a bundle that runs the guest with these words.
    pub(crate) fn new(directory: &Path, guest: &Path, words: &[&str]) -> Outcome<Self> {
        fs::create_dir_all(directory.join("rootfs"))?;
        fs::copy(guest, directory.join("rootfs/guest"))?;
        fs::write(directory.join("config.json"), config(guest, words).to_string())?;
        Ok(Self(directory.to_owned()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

/// Returns whether the controllers are available, which version 2 may lack.
fn can_limit() -> bool {
    match fs::read_to_string("/sys/fs/cgroup/cgroup.controllers") {
        Ok(controllers) => controllers.contains("memory") && controllers.contains("pids"),
        Err(_) => true,
    }
}

fn config(guest: &Path, words: &[&str]) -> Value {
    let args: Vec<_> = ["/guest"].iter().chain(words).collect();
    let namespaces = ["pid", "ipc", "uts", "mount", "network", "cgroup"].map(|kind| json!({ "type": kind }));
    let mount = |kind: &str, at: &str| json!({ "destination": at, "type": kind, "source": kind });
    let hook = json!([{ "path": guest, "args": ["guest", "exit", "0"] }]);
    let limits = json!({ "pids": { "limit": 100 }, "memory": { "limit": 268_435_456 } });
    let mut resources = if can_limit() { limits } else { json!({}) };
    resources["devices"] = json!([
        { "allow": false, "access": "rwm" },
        { "allow": true, "type": "c", "major": 1, "minor": 3, "access": "rwm" }
    ]);
    json!({
        "ociVersion": "1.2.0",
        "root": { "path": "rootfs", "readonly": true },
        "process": { "user": { "uid": 0, "gid": 0 }, "args": args, "cwd": "/", "noNewPrivileges": true },
        "hostname": "soak",
        "hooks": { "createRuntime": hook, "poststop": hook },
        "mounts": [
            mount("proc", "/proc"),
            mount("tmpfs", "/dev"),
            mount("devpts", "/dev/pts"),
            mount("mqueue", "/dev/mqueue"),
            mount("cgroup", "/sys/fs/cgroup"),
            { "destination": "/bound", "type": "bind", "source": guest, "options": ["bind", "ro"] }
        ],
        "linux": {
            "namespaces": namespaces,
            "maskedPaths": ["/proc/keys", "/proc/acpi"],
            "readonlyPaths": ["/proc/sys"],
            "resources": resources,
            "seccomp": {
                "defaultAction": "SCMP_ACT_ALLOW",
                "syscalls": [{ "names": ["swapon"], "action": "SCMP_ACT_ERRNO" }]
            }
        }
    })
}
