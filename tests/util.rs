//! Builds bundles, runs a runtime on them, and checks the results.
//!
//! `RUNTIME_UNDER_TEST=/path/to/runc` runs the same tests on another runtime; each difference is a finding.

use rustix::io::IoSliceMut;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Ends the test as skipped if a requirement is missing.
macro_rules! need {
    ($there:expr, $what:expr) => {
        if !$there {
            return crate::util::skip(module_path!(), $what);
        }
    };
}
pub(crate) use need;

/// Time limits of tests that build programs, start many containers or wait for other programs.
const LONG: husk_deadline::Long = &[
    ("checkpoint::", Duration::from_secs(300)),
    ("hermetic_cargo::", Duration::from_secs(600)),
    ("hostile::", Duration::from_secs(600)),
    ("soak::", Duration::from_secs(600)),
    ("ptrace_attacks::", Duration::from_secs(600)),
    ("systemd::", Duration::from_secs(300)),
];

/// Ends the calling test if it does not end by itself, and reports where it hangs.
pub(crate) fn watch() {
    husk_deadline::watch(LONG);
}

/// Reports a skipped test, bypassing the capture of output, so that it can be counted.
pub(crate) fn skip(test: &str, reason: &str) {
    writeln!(std::io::stderr(), "skipped: {test}: {reason}").expect("standard error");
}

/// Returns whether the kernel has at least this version.
pub(crate) fn is_linux(major: u32, minor: u32) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the last component of a path, without leading dots.
fn name(path: &Path) -> String {
    path.file_name().expect("a name").to_string_lossy().trim_start_matches('.').to_owned()
}

/// A bundle in its own directory, whose root file system holds only the guest.
pub(crate) struct Bundle {
    directory: TempDir,
    pub(crate) config: Value,
}

impl Bundle {
    /// Returns a bundle that runs the guest with these words.
    pub(crate) fn running(words: &str) -> Self {
        watch();
        let directory = TempDir::new().expect("a temporary directory");
        let rootfs = directory.path().join("rootfs");
        fs::create_dir(&rootfs).expect("a root file system");
        // Another process copies the guest. If this process wrote the file, a child of another test could inherit the
        // descriptor, and exec of the guest would fail with ETXTBSY.
        let copied = Command::new("cp").arg(guest()).arg(rootfs.join("guest")).status();
        assert!(copied.expect("cp").success(), "the guest is not built; run `cargo build --examples`");
        let args: Vec<_> = std::iter::once("/guest").chain(words.split_whitespace()).collect();
        let mut namespaces = vec!["pid", "ipc", "uts", "mount", "network"];
        let mut linux = json!({});
        if !is_root() {
            namespaces.push("user");
            let map = |id: u32| json!([{ "containerID": 0, "hostID": id, "size": 1 }]);
            linux["uidMappings"] = map(rustix::process::geteuid().as_raw());
            linux["gidMappings"] = map(rustix::process::getegid().as_raw());
        }
        if is_root() {
            // All containers have the same id, and the tests run in parallel.
            linux["cgroupsPath"] = format!("/husk-test-{}", name(directory.path())).into();
        }
        linux["namespaces"] = namespaces.into_iter().map(|kind| json!({ "type": kind })).collect();
        let config = json!({
            "ociVersion": "1.3.0",
            "root": { "path": "rootfs" },
            "process": { "user": { "uid": 0, "gid": 0 }, "args": args, "cwd": "/", "noNewPrivileges": true },
            "hostname": "guest",
            "mounts": [
                { "destination": "/proc", "type": "proc", "source": "proc" },
                { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"] }
            ],
            "linux": linux
        });
        Self { directory, config }
    }

    /// Returns the bundle with `value` at `pointer`, whose parents must exist.
    pub(crate) fn with(mut self, pointer: &str, value: Value) -> Self {
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        let parent = self.config.pointer_mut(parent).expect("the parent");
        parent.as_object_mut().expect("an object").insert(key.to_owned(), value);
        self
    }

    /// Returns the bundle with one more mount.
    pub(crate) fn mounting(mut self, mount: Value) -> Self {
        self.config["mounts"].as_array_mut().expect("mounts").push(mount);
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn rootfs(&self) -> PathBuf {
        self.path().join("rootfs")
    }

    pub(crate) fn write(&self) {
        fs::write(self.path().join("config.json"), self.config.to_string()).expect("config.json");
    }
}

/// A runtime with its own directory for containers.
pub(crate) struct Runtime {
    root: TempDir,
    program: OsString,
    /// Global options, before each verb.
    pub(crate) globals: &'static [&'static str],
}

impl Runtime {
    pub(crate) fn under_test() -> Self {
        Self::of(program())
    }

    /// Returns a runtime that is the program at this path.
    pub(crate) fn of(program: impl Into<OsString>) -> Self {
        watch();
        Self { root: TempDir::new().expect("a temporary directory"), program: program.into(), globals: &[] }
    }

    /// Returns a command for a verb, to which arguments can be added.
    pub(crate) fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--root").arg(self.root.path()).args(self.globals).arg(verb);
        command
    }

    /// Runs the container `c` until it ends.
    pub(crate) fn run(&self, bundle: &Bundle) -> Seen {
        bundle.write();
        let mut command = self.command("run");
        command.arg("--bundle").arg(bundle.path()).arg("c");
        // The input has ended, but husk runs a container with a terminal only if input could come.
        Seen(command.stdin(Stdio::piped()).output().expect("the runtime"))
    }

    /// Like `run`, with more options.
    pub(crate) fn run_with(&self, bundle: &Bundle, options: &[&str]) -> Seen {
        self.through("\"$@\"", "run", bundle, options)
    }

    /// Runs a verb in a shell, whose script has the whole command as its arguments.
    pub(crate) fn through(&self, script: &str, verb: &str, bundle: &Bundle, options: &[&str]) -> Seen {
        let mut command = self.shell(script, verb, bundle, options);
        Seen(command.stdin(Stdio::piped()).output().expect("a shell"))
    }

    /// Returns the command of that shell.
    pub(crate) fn shell(&self, script: &str, verb: &str, bundle: &Bundle, options: &[&str]) -> Command {
        bundle.write();
        let mut command = self.command(verb);
        command.arg("--bundle").arg(bundle.path()).args(options).arg("c");
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).arg(command.get_program()).args(command.get_args());
        shell
    }

    /// Creates the container `c`.
    pub(crate) fn create(&self, bundle: &Bundle) -> Seen {
        self.create_with(bundle, &[])
    }

    /// Like `create`, with more options.
    pub(crate) fn create_with(&self, bundle: &Bundle, options: &[&str]) -> Seen {
        bundle.write();
        let mut command = self.command("create");
        command.arg("--bundle").arg(bundle.path()).args(options).arg("c");
        self.detached(command)
    }

    /// Returns a runtime in which the container `c` runs.
    pub(crate) fn started(bundle: &Bundle) -> Self {
        let runtime = Self::under_test();
        runtime.create(bundle).succeeds();
        runtime.call("start", &["c"]).succeeds();
        runtime
    }

    /// Calls a verb with arguments.
    pub(crate) fn call(&self, verb: &str, arguments: &[&str]) -> Seen {
        let mut command = self.command(verb);
        command.args(arguments);
        self.detached(command)
    }

    /// Calls the program with just these words. The directory for containers is the default below `XDG_RUNTIME_DIR`.
    pub(crate) fn typed(&self, words: &[&str]) -> Seen {
        let mut command = Command::new(&self.program);
        command.args(words).env("XDG_RUNTIME_DIR", self.root.path());
        self.detached(command)
    }

    /// Returns the status of the container `c`.
    pub(crate) fn status(&self) -> String {
        let state: Value = serde_json::from_str(&self.call("state", &["c"]).succeeds()).expect("a state");
        state["status"].as_str().expect("a status").to_owned()
    }

    /// Returns the directory for containers.
    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    /// Returns whether the directory for containers is empty.
    pub(crate) fn is_empty(&self) -> bool {
        fs::read_dir(self.root.path()).expect("the root").next().is_none()
    }

    /// Starts a container in the foreground.
    pub(crate) fn running(&self, bundle: &Bundle) -> Child {
        bundle.write();
        let mut command = self.command("run");
        command.arg("--bundle").arg(bundle.path()).arg("c");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the runtime")
    }

    /// Starts a verb that runs in parallel with the test.
    pub(crate) fn spawn(&self, verb: &str, arguments: &[&str], stdout: Stdio) -> Child {
        let mut command = self.command(verb);
        command.args(arguments).stdin(Stdio::null()).stdout(stdout).spawn().expect("the runtime")
    }

    /// Like `running`, with more options and streams that the caller chooses.
    pub(crate) fn running_with(&self, bundle: &Bundle, options: &[&str], streams: [Stdio; 3]) -> Child {
        bundle.write();
        let mut command = self.command("run");
        let [stdin, stdout, stderr] = streams;
        command.arg("--bundle").arg(bundle.path()).args(options).arg("c");
        command.stdin(stdin).stdout(stdout).stderr(stderr).spawn().expect("the runtime")
    }

    /// Runs a container that continues after the runtime has ended.
    pub(crate) fn run_detached(&self, bundle: &Bundle, options: &[&str]) -> Seen {
        bundle.write();
        let mut command = self.command("run");
        command.arg("--bundle").arg(bundle.path()).args(options).arg("c");
        self.detached(command)
    }

    /// Runs a command with its output in files: a container may keep its streams for longer than the runtime lives.
    pub(crate) fn detached(&self, mut command: Command) -> Seen {
        let (mut out, mut err) =
            (tempfile::tempfile().expect("a file"), tempfile::tempfile().expect("a file"));
        command
            .stdin(Stdio::piped())
            .stdout(out.try_clone().expect("a file"))
            .stderr(err.try_clone().expect("a file"));
        let status = command.status().expect("the runtime");
        let read = |file: &mut fs::File| {
            use std::io::{Read as _, Seek as _};
            let mut bytes = Vec::new();
            file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("the written data");
            bytes
        };
        Seen(Output { status, stdout: read(&mut out), stderr: read(&mut err) })
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.call("delete", &["--force", "c"]);
    }
}

/// The output and status of a runtime.
pub(crate) struct Seen(pub(crate) Output);

impl Seen {
    /// Asserts success and returns what was printed.
    #[track_caller]
    pub(crate) fn succeeds(&self) -> String {
        let stderr = String::from_utf8_lossy(&self.0.stderr);
        assert!(self.0.status.success(), "{}\n{stderr}", self.0.status);
        String::from_utf8(self.0.stdout.clone()).expect("text")
    }

    /// Asserts success and exactly this output.
    #[track_caller]
    pub(crate) fn prints(&self, wanted: &str) {
        let found = self.succeeds();
        assert_eq!(found.trim_end(), wanted.trim_end());
    }

    /// Asserts that standard error contains this text.
    #[track_caller]
    pub(crate) fn says(&self, wanted: &str) {
        let stderr = String::from_utf8_lossy(&self.0.stderr);
        assert!(stderr.contains(wanted), "{stderr}\n{wanted}");
    }

    /// Asserts that standard output contains this text.
    #[track_caller]
    pub(crate) fn shows(&self, wanted: &str) {
        let out = String::from_utf8_lossy(&self.0.stdout);
        assert!(out.contains(wanted), "{out}\n{}\n{wanted}", String::from_utf8_lossy(&self.0.stderr));
    }

    /// Asserts this exit code, and that standard error contains this text.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, wanted: &str) {
        let stderr = String::from_utf8_lossy(&self.0.stderr);
        assert_eq!(self.0.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(wanted), "{stderr}\n{wanted}");
    }
}

/// Waits until a process has ended.
pub(crate) fn until_gone(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    let Ok(process) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else { return };
    husk_sys::process::poll_end(husk_sys::Fd::of(&process), None).expect("a poll");
}

/// Returns whether a process ends within 30 seconds, which a killed process always does.
pub(crate) fn ends(pid: i32) -> bool {
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    let Ok(process) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else {
        return true;
    };
    husk_sys::process::poll_end(husk_sys::Fd::of(&process), Some(30)).expect("a poll")
}

/// Returns the runtime under test.
pub(crate) fn program() -> OsString {
    watch();
    std::env::var_os("RUNTIME_UNDER_TEST").unwrap_or_else(|| env!("CARGO_BIN_EXE_husk").into())
}

/// Returns whether the runtime under test is husk. The messages of other runtimes are not checked.
pub(crate) fn is_husk() -> bool {
    std::env::var_os("RUNTIME_UNDER_TEST").is_none()
}

/// Returns the guest, which is built as an example beside the tests.
pub(crate) fn guest() -> PathBuf {
    watch();
    Path::new(env!("CARGO_BIN_EXE_husk")).with_file_name("examples").join("guest")
}

/// A listener at a socket that receives a descriptor, as engines do.
pub(crate) struct Receiver {
    directory: TempDir,
    listener: UnixListener,
}

impl Receiver {
    pub(crate) fn new() -> Self {
        watch();
        let directory = TempDir::new().expect("a temporary directory");
        let listener = UnixListener::bind(directory.path().join("socket")).expect("a socket");
        Self { directory, listener }
    }

    pub(crate) fn path(&self) -> String {
        self.directory.path().join("socket").to_str().expect("text").to_owned()
    }

    /// Accepts a connection. Returns the descriptor that was sent, and the text with it.
    pub(crate) fn received(&self) -> (OwnedFd, String) {
        let (connection, _) = self.listener.accept().expect("a sender");
        received(&connection)
    }
}

/// Returns the descriptor that arrives over a connection, and the text with it.
pub(crate) fn received(connection: &UnixStream) -> (OwnedFd, String) {
    let mut text = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut came = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut text)];
    let message = recvmsg(connection, &mut parts, &mut came, RecvFlags::CMSG_CLOEXEC).expect("a message");
    let fd = came.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let text = String::from_utf8(text[..message.bytes].to_vec()).expect("text");
    (fd.expect("a descriptor"), text)
}
