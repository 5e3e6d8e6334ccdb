//! Checks that the host's devices keep their owner and permissions, whatever privileges a container's program has.
//! Every test works on copies of the devices, in a mount namespace where the copies are `/dev`.

use crate::hermetic::has_sandboxes;
use crate::util::{Bundle, Runtime, Seen, guest, is_husk, is_root, need};
use serde_json::json;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The owner and permissions of the copied null and zero devices, unless a program has changed them.
const UNCHANGED: &str = "0:0 666\n0:0 666";

/// Runs a command with the null device as standard input, then prints the owner and permissions of the copies.
const ON_COPIES: &str = r#"
    mount -t tmpfs tmpfs "$1"
    (
        cd "$1"
        for node in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 "${node%:*}" c 1 "${node#*:}"; done
        mknod -m 666 tty c 5 0
        mkdir pts
        mount --bind /dev/pts pts
        ln -s pts/ptmx ptmx
        mount --rbind . /dev
    )
    shift
    "$@" </dev/null
    stat -c '%u:%g %a' /dev/null /dev/zero"#;

fn on_copies(command: &Command) -> Seen {
    let place = TempDir::new().unwrap();
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "--propagation", "private", "sh", "-ec", ON_COPIES, "sh"]).arg(place.path());
    shell.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    if let Some(directory) = command.get_current_dir() {
        shell.current_dir(directory);
    }
    Seen(shell.output().expect("unshare"))
}

/// A bundle whose program may change the owner and permissions of every file.
fn privileged(words: &str) -> Bundle {
    let all = json!(["CAP_CHOWN", "CAP_FOWNER"]);
    let sets = json!({ "bounding": all, "effective": all, "permitted": all });
    Bundle::running(words).with("/process/capabilities", sets)
}

/// Like `privileged`, in a user namespace that maps each id to the same id of the host.
fn identity_mapped(words: &str) -> Bundle {
    let mut bundle = privileged(words);
    let map = json!([{ "containerID": 0, "hostID": 0, "size": 65_536 }]);
    bundle.config["linux"]["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user" }));
    bundle.with("/linux/uidMappings", map.clone()).with("/linux/gidMappings", map)
}

fn without_dev(bundle: Bundle) -> Bundle {
    let mounts = json!([{ "destination": "/proc", "type": "proc", "source": "proc" }]);
    bundle.with("/mounts", mounts)
}

fn run(bundle: &Bundle, options: &[&str]) -> Seen {
    bundle.write();
    let runtime = Runtime::under_test();
    let mut command = runtime.command("run");
    on_copies(command.arg("--bundle").arg(bundle.path()).args(options).arg("c"))
}

#[track_caller]
fn refuses(bundle: &Bundle, options: &[&str]) {
    run(bundle, options).prints(&format!("refused\n{UNCHANGED}"));
}

#[test]
fn masked_files_do_not_expose_the_hosts_null_device() {
    need!(is_root(), "needs root to change owners");
    let bundle = privileged("seize /file").with("/linux/maskedPaths", json!(["/file"]));
    std::fs::write(bundle.rootfs().join("file"), "").unwrap();
    for options in [&[][..], &["--no-pivot"]] {
        refuses(&bundle, options);
    }
}

#[test]
fn masked_files_read_as_empty_and_can_be_written_to() {
    for words in ["cat /file", "write /file"] {
        let bundle = Bundle::running(words).with("/linux/maskedPaths", json!(["/file"]));
        std::fs::write(bundle.rootfs().join("file"), "secret").unwrap();
        Runtime::under_test().run(&bundle).prints("");
    }
}

#[test]
fn devices_of_a_user_namespace_do_not_change_the_hosts() {
    need!(is_root() && is_husk(), "runc binds the host's devices writable, and needs root to change owners");
    refuses(&identity_mapped("seize /dev/null"), &[]);
    refuses(&identity_mapped("seize /dev/zero"), &["--no-pivot"]);
    refuses(&identity_mapped("seize /proc/self/fd/0"), &[]);
}

#[test]
fn standard_streams_do_not_expose_the_hosts_null_device() {
    need!(is_root() && is_husk(), "runc passes pipes in the foreground; needs root to change owners");
    refuses(&without_dev(privileged("seize /proc/self/fd/0")), &[]);
    for options in [&[][..], &["--no-pivot"]] {
        // The container may change a null device of its own.
        run(&privileged("seize /proc/self/fd/0"), options).prints(&format!("seized\n{UNCHANGED}"));
        for bundle in
            [privileged("seize /no"), without_dev(privileged("seize /no")), identity_mapped("seize /no")]
        {
            let user = json!({ "uid": 1000, "gid": 1000 });
            refuses(&bundle.with("/process/user", user), options);
        }
    }
}

#[test]
fn exec_does_not_expose_the_hosts_null_device() {
    need!(is_root() && is_husk(), "runc passes pipes in the foreground; needs root to change owners");
    for bundle in [privileged("wait"), without_dev(privileged("wait")), identity_mapped("wait")] {
        let runtime = Runtime::started(&bundle);
        let exec = |options: &[&str], path: &str| {
            let mut command = runtime.command("exec");
            command.args(options).args(["c", "/guest", "seize", path]);
            on_copies(&command).prints(&format!("refused\n{UNCHANGED}"));
        };
        exec(&[], "/proc/self/fd/0");
        exec(&["--user", "1000"], "/proc/self/fd/0");
    }
}

#[test]
fn sandboxes_of_root_do_not_change_the_hosts_devices() {
    need!(is_root() && has_sandboxes(), "needs root, and user namespaces");
    let guest = guest();
    for path in ["/dev/null", "/dev/zero", "/proc/self/fd/0"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_husk"));
        command.arg("test").arg("--read").arg(guest.parent().unwrap_or(Path::new("/")));
        command.arg("--").arg(&guest).args(["seize", path]);
        on_copies(&command).prints(&format!("refused\n{UNCHANGED}"));
    }
}
