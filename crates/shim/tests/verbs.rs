//! Drives a container through the processes of verbs, as the daemon does. The tests need root.

use husk_spawn::{Command, Stdio};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A state directory, and a bundle whose root file system is a tmpfs with the host's programs.
struct Host {
    directory: TempDir,
}

impl Host {
    fn new(args: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let host = Self { directory };
        fs::create_dir(host.bundle()).unwrap();
        let programs = ["/bin", "/usr", "/lib", "/lib64"].into_iter().filter(|path| Path::new(path).exists());
        let bind =
            |path| json!({ "destination": path, "source": path, "type": "bind", "options": ["rbind", "ro"] });
        let config = json!({
            "ociVersion": "1.0.2",
            "root": { "path": "rootfs" },
            "process": { "cwd": "/", "args": args, "user": { "uid": 0, "gid": 0 }, "env": ["PATH=/usr/bin:/bin"] },
            "mounts": programs.map(bind).collect::<Vec<_>>(),
            "linux": { "namespaces": [{ "type": "pid" }, { "type": "mount" }] },
        });
        fs::write(host.bundle().join("config.json"), config.to_string()).unwrap();
        host
    }

    fn bundle(&self) -> PathBuf {
        self.directory.path().join("bundle")
    }

    fn rootfs(&self) -> PathBuf {
        self.bundle().join("rootfs")
    }

    /// The directory's name, which no other container has.
    fn id(&self) -> String {
        let name = self.directory.path().file_name().unwrap().to_str().unwrap();
        format!("verbs-{}", name.trim_start_matches('.'))
    }

    fn create(&self) -> Value {
        json!({ "Create": {
            "id": self.id(),
            "bundle": self.bundle(),
            "rootfs": [{ "type": "tmpfs", "source": "tmpfs", "target": "", "options": ["nosuid", "size=1m"] }],
            "console_socket": null,
            "no_pivot_root": false,
            "no_new_keyring": false,
        } })
    }

    fn delete(&self, force: bool) -> Value {
        json!({ "Delete": { "id": self.id(), "force": force, "rootfs": self.rootfs() } })
    }

    /// Performs a verb. Returns its result and its standard output.
    fn perform(&self, verb: Value) -> (Value, String) {
        let request =
            json!({ "root": self.directory.path().join("state"), "systemd_cgroup": false, "verb": verb });
        let memory = File::from(memfd_create("verb", MemfdFlags::CLOEXEC).unwrap());
        memory.write_all_at(request.to_string().as_bytes(), 0).unwrap();
        let output = self.directory.path().join("output");
        let mut command = Command::new(env!("CARGO_BIN_EXE_containerd-shim-husk-v1"));
        command.arg("verb").stdin(Stdio::null()).stdout(File::create(&output).unwrap()).current_dir("/");
        let ended = command.fd(3, memory.try_clone().unwrap()).status().unwrap();
        assert!(ended.success(), "{ended}");
        let mut bytes = vec![0; usize::try_from(memory.metadata().unwrap().len()).unwrap()];
        memory.read_exact_at(&mut bytes, 0).unwrap();
        let outcome: Value = serde_json::from_slice(&bytes).unwrap();
        (outcome["result"].clone(), fs::read_to_string(output).unwrap())
    }

    /// Performs a verb that must succeed, and returns the pid of its process.
    fn pid(&self, verb: Value) -> Pid {
        let (result, _) = self.perform(verb);
        let pid = result["Ok"].as_i64().unwrap_or_else(|| panic!("{result}"));
        Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
    }

    fn succeed(&self, verb: Value) {
        assert_eq!(self.perform(verb).0, json!({ "Ok": null }));
    }

    fn fail(&self, verb: Value) -> (String, String) {
        let (result, _) = self.perform(verb);
        let text = |name: &str| result["Err"][name].as_str().unwrap_or_else(|| panic!("{result}")).to_owned();
        (text("code"), text("message"))
    }

    fn is_mounted(&self) -> bool {
        let rootfs = self.rootfs();
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap();
        mountinfo.lines().any(|line| line.split(' ').nth(4).map(Path::new) == Some(&*rootfs))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.perform(self.delete(true));
    }
}

fn wait_for_end(process: Pid) {
    if let Ok(process) = pidfd_open(process, PidfdFlags::empty()) {
        let mut events = [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut events, None)).unwrap();
    }
}

#[test]
fn container_lives_from_create_to_delete() {
    if !geteuid().is_root() {
        return;
    }
    let host = Host::new(&["sleep", "1000"]);
    let id = host.id();
    let process = host.pid(host.create());
    assert!(host.is_mounted());
    assert_eq!(host.fail(host.create()).0, "AlreadyExists");
    // The second `create` has unmounted only its own root file system.
    assert!(host.is_mounted());
    host.succeed(json!({ "Start": { "id": id } }));
    let again = host.fail(json!({ "Start": { "id": id } }));
    let message = "OCI runtime start failed: cannot start an already running container";
    assert_eq!(again, ("FailedPrecondition".to_owned(), message.to_owned()));

    let words = json!({ "cwd": "/", "args": ["echo", "words"], "user": { "uid": 0, "gid": 0 }, "env": ["PATH=/bin"] });
    let exec = json!({ "Exec": { "id": id, "process": words.to_string(), "console_socket": null } });
    let (result, _) = host.perform(exec);
    let executed = Pid::from_raw(i32::try_from(result["Ok"].as_i64().unwrap()).unwrap()).unwrap();
    assert_ne!(executed, process);
    wait_for_end(executed);
    assert_eq!(fs::read_to_string(host.directory.path().join("output")).unwrap(), "words\n");

    host.succeed(json!({ "Pause": { "id": id } }));
    host.succeed(json!({ "Resume": { "id": id } }));
    host.succeed(json!({ "Update": { "id": id, "resources": "{}" } }));
    let (code, message) = host.fail(host.delete(false));
    assert_eq!(code, "FailedPrecondition");
    assert!(message.starts_with("failed to delete task: cannot delete container "), "{message}");
    assert!(host.is_mounted());
    host.succeed(host.delete(true));
    assert!(!host.is_mounted());
    // A container that is missing was deleted earlier.
    host.succeed(host.delete(false));
    assert_eq!(host.fail(json!({ "Start": { "id": id } })).0, "NotFound");
}

#[test]
fn failed_create_leaves_no_mount() {
    if !geteuid().is_root() {
        return;
    }
    let host = Host::new(&["/not/there"]);
    let (code, message) = host.fail(host.create());
    assert_eq!(code, "Unknown");
    assert!(message.starts_with("OCI runtime create failed: process.args[0]: exec: "), "{message}");
    assert!(!host.is_mounted());
}
