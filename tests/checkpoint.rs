//! Checkpoint and restore.
//!
//! On every machine, a stand-in (guest/criu.rs) records what husk tells CRIU. Real containers are saved and restored
//! only where CRIU works.

use crate::hostile::{Said, left};
use crate::util::{Bundle, Receiver, Runtime, Seen, ends, guest, is_husk, is_root, need};
use rustix::fs::{CWD, FileType, Mode, inotify, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, lchown};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

/// Whether CRIU can save and restore a process on this machine.
pub(crate) fn criu_works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    let attempt = || -> std::io::Result<bool> {
        let images = TempDir::new()?;
        let criu = |verb: &str| {
            let mut criu = Command::new("criu");
            criu.arg(verb).arg("--images-dir").arg(images.path()).arg("--shell-job");
            criu.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            criu
        };
        let null = Stdio::null;
        let mut process =
            Command::new(guest()).arg("hang").stdin(null()).stdout(null()).stderr(null()).spawn()?;
        let pid = process.id().to_string();
        // Not `?`: without CRIU, the process must be killed too.
        let is_saved = criu("dump").arg("--tree").arg(&pid).status().is_ok_and(|status| status.success());
        process.kill().and_then(|()| process.wait())?;
        if !is_saved || !criu("restore").arg("--restore-detached").status()?.success() {
            return Ok(false);
        }
        kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::KILL)?;
        Ok(true)
    };
    *WORKS.get_or_init(|| if is_root() { attempt().unwrap_or(false) } else { criu_knows_users() })
}

/// Whether CRIU is 3.18 or newer, which users need. It saves nothing without a user namespace to try it.
fn criu_knows_users() -> bool {
    let Ok(said) = Command::new("criu").arg("--version").output() else { return false };
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let version = said.lines().find_map(|line| line.strip_prefix("Version: ")).unwrap_or_default();
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(3), Some(18))
}

pub(crate) const NEEDS_CRIU: &str =
    "needs a CRIU that works with this kernel, and for users is 3.18 or newer";

/// A stand-in for CRIU, and the directory where it records the requests it receives.
pub(crate) struct StandIn(TempDir);

impl StandIn {
    pub(crate) fn new() -> Self {
        let directory = TempDir::new().unwrap();
        std::os::unix::fs::symlink(guest(), directory.path().join("criu")).unwrap();
        Self(directory)
    }

    pub(crate) fn says(self, what: &str, text: &str) -> Self {
        fs::write(self.0.path().join(what), text).unwrap();
        self
    }

    pub(crate) fn call(&self, runtime: &Runtime, verb: &str, arguments: &[&str]) -> Seen {
        let mut command = runtime.command(verb);
        command.args(arguments);
        Seen(self.found_by(&mut command).stdin(Stdio::null()).output().unwrap())
    }

    /// Lets a command find it in the place of CRIU.
    pub(crate) fn found_by<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("PATH", self.0.path()).env("STAND_IN", self.0.path())
    }

    /// Makes it hang in a restore or a dump, and returns a FIFO from which a byte can then be read.
    pub(crate) fn hangs(&self) -> PathBuf {
        let fifo = self.0.path().join("hangs");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        fifo
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.path().join(name)).unwrap_or_default()
    }

    /// Asserts that the stand-in recorded each of these fields on a line of its own.
    #[track_caller]
    fn was_told(&self, lines: &[&str]) {
        let told = self.read("told");
        for line in lines {
            assert!(told.contains(&format!("{line}\n")), "{line} is not in\n{told}");
        }
    }
}

/// Starts a container whose streams CRIU can save: none is a file that exists only on the host.
fn started(bundle: &Bundle) -> Runtime {
    let runtime = Runtime::under_test();
    let streams = [Stdio::null(), Stdio::null(), Stdio::null()];
    assert!(runtime.running_with(bundle, &["--detach"], streams).wait().unwrap().success());
    runtime
}

/// A path for images that does not exist yet, in a temporary directory.
pub(crate) struct Images {
    path: String,
    _directory: TempDir,
}

impl Images {
    pub(crate) fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let path = text(&directory.path().join("images")).to_owned();
        Self { path, _directory: directory }
    }

    fn path(&self) -> &Path {
        Path::new(&self.path)
    }

    pub(crate) fn text(&self) -> &str {
        &self.path
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn checkpoint_needs_a_running_container() {
    need!(is_root(), "needs root, because CRIU does");
    let runtime = Runtime::under_test();
    let images = Images::new();
    let save = |runtime: &Runtime| runtime.call("checkpoint", &["--image-path", images.text(), "c"]);
    save(&runtime).fails(1, "container does not exist");
    runtime.create(&Bundle::running("exit 0")).succeeds();
    save(&runtime).fails(1, "Container cannot be checkpointed in created state");
    let runtime = Runtime::under_test();
    runtime.run_with(&Bundle::running("exit 0"), &["--keep"]);
    save(&runtime).fails(1, "Container cannot be checkpointed in stopped state");
    assert!(!is_husk() || !images.path().exists(), "no image may be saved");
}

#[test]
fn contradicting_options_are_refused() {
    need!(is_root(), "needs root, because CRIU does");
    need!(is_husk(), "the message is husk's");
    let bundle = Bundle::running("wait");
    let runtime = Runtime::started(&bundle);
    let images = Images::new();
    let path = images.text();
    let refused = |more: &[&str], wanted: &str| {
        let arguments: Vec<_> = ["--image-path", path].iter().chain(more).chain(&["c"]).copied().collect();
        runtime.call("checkpoint", &arguments).fails(1, wanted);
    };
    refused(&["--empty-ns", "ipc"], "namespace \"ipc\" is not supported");
    refused(&["--page-server", "1234"], "Use --page-server ADDRESS:PORT to specify page server");
    refused(&["--page-server", "::1:1234"], "Use --page-server ADDRESS:PORT to specify page server");
    refused(&["--page-server", "a:b"], "Invalid port number");
    refused(&["--parent-path", "/absolute"], "--parent-path");
    refused(&["--parent-path", "../missing"], "invalid --parent-path");
    need!(is_husk(), "runc asks for CRIU's version first");
    refused(&["--manage-cgroups-mode", "none"], "invalid manage-cgroups-mode value");
    assert_eq!(runtime.status(), "running");
}

#[test]
fn container_keeps_running_if_criu_is_missing() {
    need!(is_root(), "needs root, because CRIU does");
    need!(is_husk(), "the message is husk's");
    let bundle = Bundle::running("wait");
    let runtime = Runtime::started(&bundle);
    let (nothing, images) = (TempDir::new().unwrap(), Images::new());
    let without = |runtime: &Runtime, verb: &str, arguments: &[&str]| {
        Seen(runtime.command(verb).args(arguments).env("PATH", nothing.path()).output().unwrap())
    };
    let saved = without(&runtime, "checkpoint", &["--image-path", images.text(), "c"]);
    saved.fails(1, "criu was not found: install CRIU 3.16 or newer");
    assert_eq!(runtime.status(), "running");
    let other = Runtime::under_test();
    let arguments = ["--image-path", images.text(), "--bundle", text(bundle.path()), "c"];
    without(&other, "restore", &arguments).fails(1, "criu was not found: install CRIU 3.16 or newer");
    let old = StandIn::new().says("version", "3.15");
    let saved = old.call(&runtime, "checkpoint", &["--image-path", images.text(), "c"]);
    saved.fails(1, "CRIU 3.15 is too old: 3.16 or newer is needed");
    old.call(&other, "restore", &arguments).fails(1, "CRIU 3.15 is too old");
    assert_eq!(runtime.status(), "running");
}

#[test]
fn restore_needs_images() {
    need!(is_root(), "needs root, because CRIU does");
    let (runtime, bundle, images) = (Runtime::under_test(), Bundle::running("wait"), Images::new());
    bundle.write();
    let arguments = ["--image-path", images.text(), "--bundle", text(bundle.path()), "c"];
    let refused = StandIn::new().call(&runtime, "restore", &arguments);
    assert_eq!(refused.0.status.code(), Some(1));
    need!(is_husk(), "runc makes an empty directory");
    refused.says(&format!("open {}: no such file", images.text()));
    assert!(!images.path().exists());
}

/// Adds bind mounts of a host directory (read-only, through a link, nested), sysfs and masked paths.
fn with_mounts(bundle: Bundle, host: &Path) -> Bundle {
    fs::create_dir(host.join("source")).unwrap();
    fs::write(host.join("source/file"), "of the host").unwrap();
    fs::create_dir_all(bundle.rootfs().join("real/place")).unwrap();
    std::os::unix::fs::symlink("/real/place", bundle.rootfs().join("link")).unwrap();
    let bind = |destination: &str, options: &[&str]| {
        let options: Vec<_> = ["bind"].iter().chain(options).collect();
        json!({ "destination": destination, "source": host.join("source"), "type": "bind", "options": options })
    };
    let mut bundle = bundle.mounting(bind("/there", &["ro"])).mounting(bind("/link", &[]));
    bundle.config["mounts"].as_array_mut().unwrap().push(json!({
        "destination": "/link/nested", "source": host.join("source"), "type": "bind", "options": ["bind"]
    }));
    let bundle = bundle.mounting(json!({ "destination": "/sys", "type": "sysfs", "source": "sysfs" }));
    bundle.with("/linux/maskedPaths", json!(["/proc/keys", "/proc/acpi", "/proc/missing"]))
}

#[test]
fn criu_is_given_what_is_not_in_the_images() {
    need!(is_root(), "needs root, because CRIU does");
    need!(is_husk(), "runc gives mounts other names");
    let (host, images) = (TempDir::new().unwrap(), Images::new());
    let bundle = with_mounts(Bundle::running("wait"), host.path());
    let runtime = Runtime::started(&bundle);
    let pid = fs::read_to_string(runtime.root().join("c/state.json")).unwrap();
    let pid = serde_json::from_str::<Value>(&pid).unwrap()["process"]["pid"].to_string();

    let criu = StandIn::new();
    let work = host.path().join("work");
    let options = ["--image-path", images.text(), "--work-path", text(&work), "--leave-running"];
    let more = ["--tcp-established", "--ext-unix-sk", "--shell-job", "--file-locks", "--auto-dedup"];
    let last = ["--tcp-skip-in-flight", "--link-remap", "--manage-cgroups-mode", "strict", "c"];
    criu.call(&runtime, "checkpoint", &[&options[..], &more, &last].concat()).succeeds();
    let pid = format!("2.2={pid}");
    criu.was_told(&["1=10", "1=1", &pid, "2.10=dump.log", "2.12=1", "2.34=5", "2.50=1", "2.38=1073741824"]);
    criu.was_told(&["2.3=1", "2.4=1", "2.5=1", "2.7=1", "2.8=1", "2.16=1", "2.18=1", "2.46=1"]);
    criu.was_told(&["2.51=/etc/criu/runc.conf"]);
    // 2.23.1 is the path of the mount, 2.23.2 the name under which CRIU saves it.
    criu.was_told(&["2.23.1=/there\n2.23.2=/there", "2.23.1=/real/place\n2.23.2=/link"]);
    criu.was_told(&["2.23.1=/real/place/nested\n2.23.2=/link/nested", "2.23.1=/proc/keys\n2.23.2=mask"]);
    let told = criu.read("told");
    assert!(!told.contains("/proc/acpi") && !told.contains("/proc/missing") && !told.contains("/dev/null"));
    assert_eq!(runtime.status(), "running");
    assert!(images.path().join("descriptors.json").is_file() && work.is_dir());

    let criu = StandIn::new();
    let parent = ["--parent-path", "../images", "--image-path", images.text(), "c"];
    criu.call(&runtime, "checkpoint", &[&["--pre-dump"][..], &parent].concat()).succeeds();
    criu.was_told(&["1=9", "5.1=1", "1=4", "2.14=../images", "2.15=1"]);
    assert!(!criu.read("told").contains("2.23."), "memory has no mounts");
    let criu = StandIn::new().says("lacks", "");
    let refused = criu.call(&runtime, "checkpoint", &[&["--pre-dump"][..], &parent].concat());
    refused.fails(1, "criu is missing features: [MemTrack]");

    let criu = StandIn::new();
    let server = ["--lazy-pages", "--page-server", "[::1]:4711", "--image-path", images.text(), "c"];
    criu.call(&runtime, "checkpoint", &server).succeeds();
    criu.was_told(&["5.2=1", "2.48=1", "2.11.1=::1\n2.11.2=4711"]);
    assert!(runtime.is_empty(), "the container is stopped unless --leave-running is given");
}

#[test]
fn timings_list_the_phases_of_husk_and_criu() {
    need!(is_root(), "needs root, because CRIU does");
    need!(is_husk(), "runc has no --timings");
    let bundle = Bundle::running("wait");
    let runtime = Runtime::started(&bundle);
    let (criu, images) = (StandIn::new(), Images::new());
    let shown = |seen: &Seen| String::from_utf8_lossy(&seen.0.stderr).into_owned();
    let lists = |shown: &str, phases: &[&str]| {
        let list = shown.split("\nthe longest:").next().unwrap();
        let places = phases.iter().map(|phase| list.find(&format!("  husk: {phase}\n")));
        assert!(places.clone().all(|place| place.is_some()) && places.is_sorted(), "{phases:?} in\n{shown}");
    };
    let saved = criu.call(&runtime, "checkpoint", &["--timings", "--image-path", images.text(), "c"]);
    saved.succeeds();
    let shown_once = shown(&saved);
    lists(&shown_once, &["read the record", "ask CRIU for its version", "start CRIU"]);
    lists(&shown_once, &["CRIU: stop the processes", "CRIU: look at the processes", "delete the container"]);
    assert!(shown_once.contains("from the start of husk to its end\n"), "{shown_once}");

    // The phases before a failure are shown too, and the error comes last.
    let arguments = ["--timings", "--image-path", images.text(), "--bundle", text(bundle.path()), "c"];
    let refused = criu.call(&runtime, "restore", &arguments);
    refused.fails(1, "criu failed: type RESTORE errno 17");
    let phases =
        ["check the images", "make the mount points", "start CRIU", "CRIU: mount, and make namespaces"];
    lists(&shown(&refused), &phases);
    assert!(shown(&refused).lines().last().unwrap().contains("criu failed"), "{}", shown(&refused));
}

#[test]
fn status_fd_reports_that_lazy_pages_are_ready() {
    need!(is_root(), "needs root, because CRIU does");
    need!(is_husk(), "the stand-in for CRIU only supports husk");
    let bundle = Bundle::running("wait");
    let runtime = Runtime::started(&bundle);
    let (criu, images) = (StandIn::new(), Images::new());
    let save = |fd: &str| {
        let script = format!("\"$@\" --status-fd {fd} 7>&1 8</dev/null >/dev/null");
        let mut command = runtime.command("checkpoint");
        command.args(["--lazy-pages", "--leave-running", "--image-path", images.text(), "c"]);
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &script, "sh"]).arg(command.get_program()).args(command.get_args());
        Seen(criu.found_by(&mut shell).output().unwrap())
    };
    assert_eq!(save("7").succeeds(), "\0");
    save("8").fails(1, "invalid --status-fd argument: 8: not writable");
    save("9").fails(1, "invalid --status-fd argument: 9: is not open");
}

#[test]
fn mount_that_criu_could_confuse_with_another_is_refused() {
    need!(is_root(), "needs root, because CRIU does");
    need!(is_husk(), "CVE-2026-119101");
    let host = TempDir::new().unwrap();
    let images = Images::new();
    fs::create_dir(images.path()).unwrap();
    for (destination, source) in [("/a]:/etc", "s"), ("/a]", "s"), ("/a\nb", "s"), ("/a", "s]:/etc")] {
        let source = host.path().join(source);
        fs::create_dir_all(&source).unwrap();
        let bundle = Bundle::running("wait").mounting(
            json!({ "destination": destination, "source": source, "type": "bind", "options": ["bind"] }),
        );
        let runtime = Runtime::started(&bundle);
        let criu = StandIn::new();
        let refused = criu.call(&runtime, "checkpoint", &["--image-path", images.text(), "c"]);
        refused.fails(1, "CRIU cannot handle");
        runtime.call("delete", &["--force", "c"]).succeeds();
        let arguments = ["--image-path", images.text(), "--bundle", text(bundle.path()), "c"];
        criu.call(&runtime, "restore", &arguments).fails(1, "CRIU cannot handle");
        assert!(runtime.is_empty());
        assert!(!criu.read("told").contains("2.23."), "{destination}");
    }
}

#[test]
fn failed_restore_leaves_nothing() {
    need!(is_root(), "needs root, because CRIU does");
    need!(is_husk(), "runc gives mounts other names");
    let (host, images) = (TempDir::new().unwrap(), Images::new());
    fs::create_dir(images.path()).unwrap();
    fs::write(images.path().join("descriptors.json"), "[\"pipe:[4711]\", \"/dev/null\", \"pipe:[x]\"]")
        .unwrap();
    let told = host.path().join("told");
    fs::write(&told, "").unwrap();
    fs::copy(guest(), host.path().join("hook")).unwrap();
    let hook = json!([{ "path": guest(), "args": ["guest", "hook", "prestart", told] }]);
    let bundle = with_mounts(Bundle::running("wait"), host.path())
        .with("/hooks", json!({}))
        .with("/hooks/prestart", hook)
        .with("/annotations", json!({}))
        .with("/annotations/org.criu.config", json!("/a/file"));
    bundle.write();
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
    let before = mounts();
    let (runtime, criu) = (Runtime::under_test(), StandIn::new());
    let arguments = [&["--image-path"][..], &[images.text(), "--bundle", text(bundle.path()), "c"]].concat();
    let labels = ["--lsm-profile", "apparmor:x", "--lsm-mount-context", "y", "-no-subreaper", "-no-pivot"];
    // An annotation cannot choose CRIU's configuration file: `--criu-config` has to name the same file.
    for options in [&[][..], &["--criu-config", "/b"]] {
        let refused = criu.call(&runtime, "restore", &[options, &arguments].concat());
        refused.fails(
            1,
            "annotations.org.criu.config: \"/a/file\" is not the file of the command line; pass --criu-config",
        );
        assert!(runtime.is_empty());
        assert!(!criu.read("told").contains("/a/file"), "{options:?}");
    }
    let labels = [&labels[..], &["--criu-config", "/a/file"]].concat();
    let refused = criu.call(&runtime, "restore", &[&labels[..], &arguments].concat());
    refused.fails(1, "criu failed: type RESTORE errno 17; Error (stand-in:1): no\\u{1b}[31m, thanks (see ");
    assert!(runtime.is_empty());
    assert_eq!(mounts(), before);

    criu.was_told(&[
        "1=2",
        "2.6=1",
        "2.26=1",
        "2.10=restore.log",
        "2.53=apparmor:x",
        "2.63=y",
        "2.51=/a/file",
    ]);
    let source = host.path().join("source");
    let is = |name: &str| format!("2.23.1={name}\n2.23.2={}", source.display());
    criu.was_told(&[&is("/there"), &is("/link"), &is("/link/nested"), "2.23.1=mask\n2.23.2=/dev/null"]);
    criu.was_told(&["2.27.1=pipe:[4711]\n2.27.2=0"]);
    assert!(!criu.read("told").contains("2.27.2=2"), "only pipes are replaced");
    assert!(criu.read("told").contains("2.25.2=/husk-test-"), "wrong cgroup root");
    let root =
        criu.read("told").lines().find_map(|line| line.strip_prefix("2.13=").map(str::to_owned)).unwrap();
    assert!(criu.read("mounts").contains(&format!(" {root} ")), "CRIU sees the root file system there");
    assert!(source.join("nested").is_dir(), "the mount point was not created");
    let heard: Value = serde_json::from_str(&fs::read_to_string(&told).unwrap()).unwrap();
    assert!(heard["told"].as_str().unwrap().contains("\"status\":\"creating\""), "{heard}");
}

#[test]
fn null_device_belongs_to_the_container() {
    need!(is_root(), "needs root for a device of its own");
    need!(is_husk(), "runc keeps the host's null device");
    let script = "\"$@\" </dev/null 2>/dev/null";
    let streams = |bundle: &Bundle| Runtime::under_test().through(script, "run", bundle, &[]);
    streams(&Bundle::running("streams")).prints("ours\nanother's\nours");
    let mut bundle = Bundle::running("streams");
    bundle.config["mounts"][1]["options"] = json!(["nosuid", "nodev", "mode=755"]);
    streams(&bundle).prints("another's\nanother's\nanother's");
}

pub(crate) fn pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    std::io::pipe().unwrap()
}

#[test]
fn container_continues_after_restore() {
    need!(criu_works(), NEEDS_CRIU);
    let (runtime, bundle, images) = (Runtime::under_test(), Bundle::running("echo"), Images::new());
    let (stdin, mut input) = pipe();
    let (output, stdout) = pipe();
    let streams = [stdin.into(), stdout.into(), Stdio::null()];
    assert!(runtime.running_with(&bundle, &["--detach"], streams).wait().unwrap().success());
    let mut lines = BufReader::new(output).lines();
    writeln!(input, "one").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "0 one");
    runtime.call("checkpoint", &["--image-path", images.text(), "c"]).succeeds();
    runtime.call("state", &["c"]).fails(1, "container does not exist");
    assert!(runtime.is_empty());

    // Restores twice from the same images, each time with new pipes.
    for word in ["two", "again"] {
        let (stdin, mut input) = pipe();
        let (output, stdout) = pipe();
        let mut command = runtime.command("restore");
        command.arg("--image-path").arg(images.path()).arg("--bundle").arg(bundle.path()).arg("c");
        let mut restored = command.stdin(stdin).stdout(stdout).stderr(Stdio::null()).spawn().unwrap();
        drop(command);
        writeln!(input, "{word}").unwrap();
        let line = BufReader::new(output).lines().next().unwrap().unwrap();
        assert_eq!(line, format!("1 {word}"));
        assert_eq!(runtime.status(), "running");
        drop(input);
        assert_eq!(restored.wait().unwrap().code(), Some(42));
        assert!(runtime.is_empty());
    }
}

// containerd gives its shim FIFOs, and a user may redirect the output to a file. Neither is among the container's mounts.
#[test]
fn streams_that_are_files_of_the_host_are_replaced() {
    need!(criu_works(), NEEDS_CRIU);
    need!(is_husk(), "runc refuses such a container");
    let (runtime, bundle, images) = (Runtime::under_test(), Bundle::running("echo"), Images::new());
    let host = TempDir::new().unwrap();
    let [fifo, log, other] = ["fifo", "log", "other"].map(|name| host.path().join(name));
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // Opened for both, so that neither end waits for the other.
    let open = || File::options().read(true).write(true).open(&fifo).unwrap();
    let mut input = open();
    let streams = [open().into(), File::create(&log).unwrap().into(), Stdio::null()];
    assert!(runtime.running_with(&bundle, &["--detach"], streams).wait().unwrap().success());
    writeln!(input, "one").unwrap();
    grows_to(&log, "0 one\n");
    runtime.call("checkpoint", &["--image-path", images.text(), "c"]).succeeds();

    let restore = |stdin: Stdio, stdout: Stdio| {
        let mut command = runtime.command("restore");
        command.arg("--image-path").arg(images.path()).arg("--bundle").arg(bundle.path()).arg("c");
        command.stdin(stdin).stdout(stdout).stderr(Stdio::null()).spawn().unwrap()
    };
    let (stdin, mut input) = pipe();
    let (output, stdout) = pipe();
    let mut restored = restore(stdin.into(), stdout.into());
    writeln!(input, "two").unwrap();
    assert_eq!(BufReader::new(output).lines().next().unwrap().unwrap(), "1 two");
    drop(input);
    assert_eq!(restored.wait().unwrap().code(), Some(42));

    // The new file keeps its own position.
    let mut file = File::create(&other).unwrap();
    writeln!(file, "earlier").unwrap();
    let mut input = open();
    let mut restored = restore(open().into(), file.into());
    writeln!(input, "three").unwrap();
    grows_to(&other, "earlier\n1 three\n");
    runtime.call("kill", &["c", "KILL"]).succeeds();
    restored.wait().unwrap();
    assert_eq!(fs::read_to_string(&log).unwrap(), "0 one\n");
}

/// Waits until a file has this content. Fails if it gets another one.
fn grows_to(path: &Path, content: &str) {
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&watch, path, inotify::WatchFlags::MODIFY).unwrap();
    loop {
        let read = fs::read_to_string(path).unwrap();
        if read == content {
            return;
        }
        assert!(content.starts_with(&read), "{read:?}");
        let mut buffer = [std::mem::MaybeUninit::uninit(); 512];
        inotify::Reader::new(&watch, &mut buffer).next().unwrap();
    }
}

#[test]
fn failure_of_criu_is_explained_and_the_container_goes_on() {
    need!(criu_works(), NEEDS_CRIU);
    need!(is_husk(), "other runtimes print CRIU's own errors");
    let (images, host) = (Images::new(), TempDir::new().unwrap());
    let (bundle, path) = (Bundle::running("wait"), host.path().join("log"));
    let script = format!("exec \"$@\" </dev/null >/dev/null 2>&1 3>{}", path.display());
    let runtime = Runtime::under_test();
    runtime.through(&script, "run", &bundle, &["--detach", "--preserve-fds", "1"]).succeeds();
    let failed = runtime.call("checkpoint", &["--image-path", images.text(), "c"]);
    failed.fails(1, &format!("descriptor 3 is {}, a file outside of the container", path.display()));
    assert_eq!(runtime.status(), "running");
}

#[test]
fn process_that_has_a_pid_of_the_container_is_named() {
    need!(criu_works() && is_root(), NEEDS_CRIU);
    need!(is_husk(), "other runtimes print CRIU's own errors");
    let (mut bundle, images) = (Bundle::running("wait"), Images::new());
    let namespaces = bundle.config["linux"]["namespaces"].as_array_mut().unwrap();
    namespaces.retain(|namespace| namespace["type"] != "pid");
    let runtime = started(&bundle);
    let state = runtime.call("state", &["c"]).succeeds();
    let pid = serde_json::from_str::<Value>(&state).unwrap()["pid"].to_string();
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    runtime.call("checkpoint", &["--leave-running", "--image-path", images.text(), "c"]).succeeds();
    let path = format!("{}-second", bundle.config["linux"]["cgroupsPath"].as_str().unwrap());
    bundle.config["linux"]["cgroupsPath"] = path.into();
    bundle.write();
    let options = ["--image-path", images.text(), "--bundle", text(bundle.path()), "--detach", "second"];
    runtime.call("restore", &options).fails(1, &format!("pid {pid} is taken by '{}'", name.trim_end()));
    runtime.call("state", &["second"]).fails(1, "container does not exist");
    assert_eq!(runtime.status(), "running");
}

#[test]
fn user_is_told_what_cannot_be_saved_before_anything_stops() {
    need!(!is_root(), "root can save these");
    let images = Images::new();
    let refused = |bundle: &Bundle, options: &[&str], why: &str| {
        let runtime = started(bundle);
        let arguments = [&["--image-path", images.text()], options, &["c"]].concat();
        runtime.call("checkpoint", &arguments).fails(1, why);
        assert_eq!(runtime.status(), "running");
    };
    let work = images.path().parent().unwrap().join("work");
    let bundle = Bundle::running("wait");
    refused(
        &bundle,
        &["--work-path", text(&work)],
        "without root, CRIU works in the directory of the images",
    );

    let mut bundle = Bundle::running("wait");
    let namespaces = bundle.config["linux"]["namespaces"].as_array_mut().unwrap();
    namespaces.retain(|namespace| namespace["type"] != "pid");
    let mounts = bundle.config["mounts"].as_array_mut().unwrap();
    mounts.retain(|mount| mount["type"] != "proc");
    refused(&bundle, &[], "a container needs a pid namespace of its own");

    // The kernel binds no part of such a tree in a user namespace.
    let mut bundle = Bundle::running("wait");
    let mount =
        json!({ "destination": "/host-sys", "source": "/sys", "type": "none", "options": ["rbind", "ro"] });
    bundle.config["mounts"].as_array_mut().unwrap().push(mount);
    refused(&bundle, &[], "CRIU cannot restore a bind mount that shows /host-sys/");
    assert!(!images.path().exists());
}

#[test]
fn mounts_of_the_host_are_unchanged_after_restore() {
    need!(criu_works(), NEEDS_CRIU);
    let (host, images) = (TempDir::new().unwrap(), Images::new());
    let bundle = with_mounts(Bundle::running("wait"), host.path());
    let runtime = started(&bundle);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    runtime.call("checkpoint", &["--image-path", images.text(), "c"]).succeeds();
    // `restore` makes this mount point again, as `create` does.
    fs::remove_dir(host.path().join("source/nested")).unwrap();
    let pid_file = host.path().join("pid");
    let options = ["--image-path", images.text(), "--bundle", text(bundle.path()), "--detach"];
    runtime.call("restore", &[&options[..], &["--pid-file", text(&pid_file), "c"]].concat()).succeeds();
    assert_eq!(runtime.status(), "running");
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), mounts);
    let exec = |words: &[&str]| runtime.call("exec", &[&["c", "/guest"], words].concat());
    for place in ["/there/file", "/real/place/file", "/link/nested/file"] {
        exec(&["cat", place]).prints("of the host");
    }
    assert_eq!(exec(&["write", "/there/new"]).0.status.code(), Some(1), "it is read-only");
    exec(&["write", "/link/new"]).succeeds();
    assert_eq!(fs::read_to_string(host.path().join("source/new")).unwrap(), "written");
    exec(&["cat", "/proc/keys"]).prints("");
    exec(&["null", "/dev/null"]).prints("0x103");
    for kind in ["pid", "time", "net", "cgroup"] {
        let link = |process: &str| exec(&["read-link", &format!("/proc/{process}/ns/{kind}")]).succeeds();
        assert_eq!(link("self"), link("1"), "{kind}");
    }
    // `IFF_UP` and `IFF_LOOPBACK`: the interface is up, as after `create`.
    exec(&["cat", "/sys/class/net/lo/flags"]).prints("0x9");
    let pid = fs::read_to_string(&pid_file).unwrap();
    let state: Value = serde_json::from_str(&runtime.call("state", &["c"]).succeeds()).unwrap();
    assert_eq!(state["pid"].to_string(), pid);
    // A restored container can be saved again.
    runtime.call("checkpoint", &["--image-path", images.text(), "c"]).succeeds();
    assert!(runtime.is_empty());
}

#[test]
fn checkpoint_runs_poststop_hooks_and_restore_runs_create_hooks() {
    need!(criu_works(), NEEDS_CRIU);
    let (host, images) = (TempDir::new().unwrap(), Images::new());
    let told = host.path().join("told");
    File::create(&told).unwrap();
    let hook = |name: &str| json!([{ "path": guest(), "args": ["guest", "hook", name, told] }]);
    let names = ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];
    let hooks: serde_json::Map<_, _> = names.iter().map(|name| ((*name).to_owned(), hook(name))).collect();
    let mut bundle = Bundle::running("wait");
    // Hooks that run in the container would not find the file.
    bundle.config["hooks"] = hooks.into_iter().filter(|(name, _)| !name.ends_with("Container")).collect();
    let runtime = started(&bundle);
    File::create(&told).unwrap();
    let heard = || {
        let lines = fs::read_to_string(&told).unwrap();
        let name =
            |line: &str| serde_json::from_str::<Value>(line).unwrap()["name"].as_str().unwrap().to_owned();
        lines.lines().map(name).collect::<Vec<_>>()
    };
    runtime.call("checkpoint", &["--image-path", images.text(), "--leave-running", "c"]).succeeds();
    assert_eq!(heard(), [""; 0]);
    assert_eq!(runtime.status(), "running");
    runtime.call("checkpoint", &["--image-path", images.text(), "c"]).succeeds();
    assert_eq!(heard(), ["poststop"]);
    let options = ["--image-path", images.text(), "--bundle", text(bundle.path()), "--detach", "c"];
    runtime.call("restore", &options).succeeds();
    assert_eq!(heard(), ["poststop", "prestart", "createRuntime"]);
}

#[test]
fn restored_terminal_is_sent_again() {
    need!(criu_works(), NEEDS_CRIU);
    let options = ["newinstance", "ptmxmode=0666", "mode=0620"];
    let devpts =
        json!({ "destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": options });
    let bundle = Bundle::running("echo").mounting(devpts).with("/process/terminal", json!(true));
    let (runtime, images, receiver) = (Runtime::under_test(), Images::new(), Receiver::new());
    runtime.run_detached(&bundle, &["--detach", "--console-socket", &receiver.path()]).succeeds();
    let says = |master: &mut BufReader<File>, wanted: &str| {
        let mut lines = master.lines().map(Result::unwrap);
        assert!(lines.any(|line| line.trim_end() == wanted), "{wanted}");
    };
    let mut master = BufReader::new(File::from(receiver.received().0));
    master.get_mut().write_all(b"one\n").unwrap();
    says(&mut master, "0 one");
    runtime.call("checkpoint", &["--image-path", images.text(), "c"]).succeeds();
    drop(master);
    let options = ["--image-path", images.text(), "--bundle", text(bundle.path()), "--detach"];
    let socket = receiver.path();
    let missing = runtime.call("restore", &[&options[..], &["c"]].concat());
    let name = if is_husk() { "husk" } else { "runc" };
    missing.fails(1, &format!("cannot allocate tty if {name} will detach without setting console socket"));
    runtime.call("restore", &[&options[..], &["--console-socket", &socket, "c"]].concat()).succeeds();
    let mut master = BufReader::new(File::from(receiver.received().0));
    master.get_mut().write_all(b"two\n").unwrap();
    says(&mut master, "1 two");
}

#[test]
fn paused_container_with_mapped_ids_can_be_checkpointed() {
    need!(criu_works() && is_root(), NEEDS_CRIU);
    let (mut bundle, images) = (Bundle::running("wait"), Images::new());
    let linux = bundle.config["linux"].as_object_mut().unwrap();
    linux["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user" }));
    for ids in ["uidMappings", "gidMappings"] {
        linux.insert(ids.to_owned(), json!([{ "containerID": 0, "hostID": 100_000, "size": 1000 }]));
    }
    // CRIU reads these directories as root of the container.
    fs::create_dir(images.path()).unwrap();
    for directory in [bundle.path(), images.path(), images.path().parent().unwrap()] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    }
    lchown(bundle.rootfs(), Some(100_000), Some(100_000)).unwrap();
    let runtime = started(&bundle);
    let save = ["--image-path", images.text(), "c"];
    let options = ["--image-path", images.text(), "--bundle", text(bundle.path()), "--detach", "c"];
    for _ in 0..2 {
        runtime.call("checkpoint", &save).succeeds();
        runtime.call("restore", &options).succeeds();
        runtime
            .call("exec", &["c", "/guest", "cat", "/proc/self/uid_map"])
            .prints("         0     100000       1000");
        runtime.call("exec", &["c", "/guest", "null", "/dev/null"]).prints("0x103");
        runtime.call("pause", &["c"]).succeeds();
    }
    runtime.call("checkpoint", &save).succeeds();
    runtime.call("restore", &options).succeeds();
    assert_eq!(runtime.status(), "running", "like runc, restore ignores the saved pause");
}

#[test]
fn idmapped_mount_cannot_be_checkpointed() {
    need!(is_root(), "needs root, because CRIU does");
    need!(is_husk(), "runc restores the ids of the host");
    let (host, images) = (TempDir::new().unwrap(), Images::new());
    let map = json!([{ "containerID": 0, "hostID": 100_000, "size": 1000 }]);
    let bundle = Bundle::running("wait").mounting(json!({
        "destination": "/there", "source": host.path(), "type": "bind", "options": ["bind"],
        "uidMappings": map, "gidMappings": map
    }));
    let runtime = Runtime::started(&bundle);
    let refused = StandIn::new().call(&runtime, "checkpoint", &["--image-path", images.text(), "c"]);
    refused.fails(1, "mounts[2] /there: an id-mapped mount cannot be checkpointed");
    assert_eq!(runtime.status(), "running");
}

#[test]
fn container_of_a_killed_restore_can_be_deleted() {
    need!(criu_works() && is_root(), NEEDS_CRIU);
    need!(is_husk(), "runc writes its record too late");
    let (mut bundle, images) = (Bundle::running("wait"), Images::new());
    let runtime = started(&bundle);
    runtime.call("checkpoint", &["--image-path", images.text(), "c"]).succeeds();
    bundle.config["hooks"] = json!({ "prestart": [{ "path": guest(), "args": ["guest", "kill-parent"] }] });
    bundle.write();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let options = ["--image-path", images.text(), "--bundle", text(bundle.path()), "--detach", "c"];
    assert_eq!(runtime.call("restore", &options).0.status.signal(), Some(9));
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), mounts);
    assert_eq!(runtime.status(), "creating");
    runtime.call("delete", &["--force", "c"]).succeeds();
    assert!(runtime.is_empty());
    let cgroup = bundle.config["linux"]["cgroupsPath"].as_str().unwrap();
    for directory in ["/sys/fs/cgroup", "/sys/fs/cgroup/freezer"] {
        assert!(!Path::new(&format!("{directory}{cgroup}")).exists());
    }
}

#[test]
fn invalid_images_leave_nothing() {
    need!(criu_works(), NEEDS_CRIU);
    let (runtime, bundle, images) = (Runtime::under_test(), Bundle::running("wait"), Images::new());
    bundle.write();
    fs::create_dir(images.path()).unwrap();
    let options = ["--image-path", images.text(), "--bundle", text(bundle.path()), "--detach", "c"];
    let refused = runtime.call("restore", &options);
    assert_eq!(refused.0.status.code(), Some(1));
    assert!(runtime.is_empty());
    need!(is_husk(), "the message is husk's");
    refused.says("criu failed: type RESTORE");
    refused.says("restore.log");
}

// Another user may have made the directory of images. A link there could make CRIU overwrite a file of the host, and a
// fifo could block it for ever.
#[test]
fn files_in_the_place_of_criu_output_are_removed() {
    let is_there = || Command::new("criu").arg("--version").output().is_ok();
    need!(is_root() && is_there(), "needs root, and CRIU");
    need!(is_husk(), "other runtimes let CRIU follow symlinks");
    let (runtime, bundle, images) = (Runtime::under_test(), Bundle::running("wait"), Images::new());
    bundle.write();
    fs::create_dir(images.path()).unwrap();
    let tripwire = images.path().with_file_name("tripwire");
    fs::write(&tripwire, "as it was").unwrap();
    let log = images.path().join("restore.log");
    let options = ["--image-path", images.text(), "--bundle", text(bundle.path()), "--detach", "c"];
    let makers: [&dyn Fn(); 3] = [
        &|| std::os::unix::fs::symlink(&tripwire, &log).unwrap(),
        &|| fs::hard_link(&tripwire, &log).unwrap(),
        &|| assert!(Command::new("mkfifo").arg(&log).status().unwrap().success()),
    ];
    for make in makers {
        make();
        runtime.call("restore", &options).fails(1, "criu failed: type RESTORE");
        assert!(fs::symlink_metadata(&log).unwrap().is_file());
        assert_eq!(fs::read_to_string(&tripwire).unwrap(), "as it was");
        assert!(runtime.is_empty());
        fs::remove_file(&log).unwrap();
    }
}

// CRIU opens the files it finds among its images, and blocks for ever on a fifo without a writer.
#[test]
fn images_other_than_files_are_refused_before_criu_opens_them() {
    need!(is_root(), "needs root, because CRIU does");
    need!(is_husk(), "the message is husk's");
    let (images, older) = (Images::new(), Images::new());
    for directory in [images.path(), older.path()] {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("inventory.img"), "").unwrap();
    }
    std::os::unix::fs::symlink(older.path(), images.path().join("parent")).unwrap();
    let bundle = Bundle::running("wait");
    bundle.write();
    let (runtime, criu) = (Runtime::under_test(), StandIn::new());
    let arguments = ["--image-path", images.text(), "--bundle", text(bundle.path()), "c"];
    criu.call(&runtime, "restore", &arguments).fails(1, "criu failed: type RESTORE errno 17");
    for place in [images.path().join("pages-1.img"), older.path().join("core-1.img")] {
        assert!(Command::new("mkfifo").arg(&place).status().unwrap().success());
        let name = place.file_name().unwrap().to_str().unwrap();
        let refused = criu.call(&runtime, "restore", &arguments);
        refused.fails(1, &format!("the image {name:?} is not a regular file"));
        assert!(runtime.is_empty());
        fs::remove_file(&place).unwrap();
    }
}

// An image can become a fifo after husk has checked it. The restore must not wait for it for ever.
#[test]
fn signal_or_delete_ends_a_restore_that_waits_for_criu() {
    need!(is_root(), "needs root, because CRIU does");
    need!(is_husk(), "the message is husk's");
    let images = Images::new();
    fs::create_dir(images.path()).unwrap();
    let bundle = Bundle::running("wait");
    bundle.write();
    for by_signal in [true, false] {
        let (runtime, criu) = (Runtime::under_test(), StandIn::new());
        let fifo = criu.hangs();
        let mut restore = runtime.command("restore");
        restore.args(["--image-path", images.text(), "--bundle", text(bundle.path()), "--detach", "c"]);
        let restore = Said::new(criu.found_by(&mut restore));
        let mut said = fs::File::open(&fifo).unwrap();
        said.read_exact(&mut [0]).unwrap();
        let pid = restore.process.id().cast_signed();
        if by_signal {
            kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
        } else {
            runtime.call("delete", &["--force", "c"]).succeeds();
        }
        assert!(ends(pid), "it hangs");
        let (status, words) = restore.ended();
        assert_eq!(status.code(), Some(1), "{words}");
        let wanted = if by_signal { "ended by signal 15" } else { "was deleted by another command" };
        assert!(words.contains(wanted), "{words}");
        assert_eq!(left(&runtime, &bundle), [""; 0]);
    }
}
