//! Plays containerd: prepares bundles, executes `start` and `delete`, and removes everything at the end of a test.

use crate::client::{Client, Streams, named, process};
use crate::events::Events;
use crate::wire::options::{BootstrapParams, BootstrapResult, Extension, Options};
use crate::wire::task::{CreateRequest, DeleteResponse};
use crate::wire::{Any, Mount};
use husk_spawn::sys::mount::MountPropagationFlags;
use husk_spawn::sys::namespace::Namespaces;
use husk_spawn::{Command, Step};
use prost::Message as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use rustix::io::{Errno, read, retry_on_intr};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io::{Seek as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Longer than any step of these tests takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

const LONG: husk_deadline::Long = &[];

/// The namespace of all containers.
pub(crate) const NAMESPACE: &str = "tests";

/// Skips the test if the machine lacks something.
macro_rules! need {
    ($there:expr, $what:expr) => {
        if !$there {
            return crate::engine::skip($what);
        }
    };
}
pub(crate) use need;

/// Returns the PATH of shims. The tester's own comes first, since CRIU may be there.
fn path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/usr/bin:/sbin:/bin");
    path
}

/// Reports a skipped test, bypassing the capture of output, so that it can be counted.
pub(crate) fn skip(reason: &str) {
    let test = std::thread::current();
    let name = test.name().unwrap_or("a test");
    writeln!(std::io::stderr(), "skipped: {name}: {reason}").expect("standard error");
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether the machine has a cgroup controller, in either version.
pub(crate) fn has_controller(name: &str) -> bool {
    let root = Path::new("/sys/fs/cgroup");
    let listed = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    root.join(name).is_dir() || listed.split_whitespace().any(|listed| listed == name)
}

/// Whether containers can be paused.
pub(crate) fn has_freezer() -> bool {
    is_version_2() || has_controller("freezer")
}

/// Whether the machine has cgroups of version 2 only.
pub(crate) fn is_version_2() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// How containerd and the shim talk when the shim is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// containerd 1.6: options, and an address.
    Address,
    /// containerd 1.7 to 2.2: options, and JSON.
    Json,
    /// containerd 2.3: parameters that name the directory of sockets, and a protocol buffer.
    Parameters,
}

/// containerd, and everything that a test makes.
pub(crate) struct Engine {
    pub(crate) events: Events,
    /// The shims that were started.
    shims: RefCell<Vec<OwnedFd>>,
    bundles: RefCell<Vec<String>>,
    format: Format,
    directory: TempDir,
    /// The program that it starts.
    pub(crate) shim: PathBuf,
}

impl Engine {
    pub(crate) fn new() -> Self {
        Self::speaking(Format::Parameters)
    }

    /// Returns containerd of the version that speaks this format. An old version chooses no directory for sockets, so
    /// its shims get a mount namespace with another directory at `/run`.
    pub(crate) fn speaking(format: Format) -> Self {
        husk_deadline::watch(LONG);
        let directory = tempfile::Builder::new().prefix("shim").tempdir().expect("a temporary directory");
        fs::create_dir(directory.path().join("run")).expect("a directory");
        let events = Events::new(&directory.path().join("ttrpc"));
        let shim = PathBuf::from(env!("CARGO_BIN_EXE_containerd-shim-husk-v1"));
        Self { events, shims: RefCell::default(), bundles: RefCell::default(), format, directory, shim }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("text").to_owned()
    }

    /// Returns a bundle whose program runs these words. Its cgroup has a name that no other test uses.
    pub(crate) fn bundle(&self, id: &str, words: &str) -> Bundle {
        let path = self.path(id);
        let rootfs = path.join("rootfs");
        fs::create_dir_all(&rootfs).expect("a bundle");
        install(&rootfs);
        make_fifo(&path.join("log"));
        let unique = self.directory.path().file_name().expect("a name").to_string_lossy().into_owned();
        let cgroup = format!("husk-test-{unique}-{id}");
        let namespaces = ["pid", "ipc", "uts", "mount", "network"].map(|kind| json!({ "type": kind }));
        let config = json!({
            "ociVersion": "1.2.0",
            "root": { "path": "rootfs" },
            "process": process(words),
            "hostname": "inside",
            "annotations": {},
            "mounts": [
                { "destination": "/proc", "type": "proc", "source": "proc" },
                { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"] },
                { "destination": "/dev/pts", "type": "devpts", "source": "devpts",
                  "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"] }
            ],
            "linux": { "namespaces": namespaces, "cgroupsPath": format!("/{cgroup}") }
        });
        self.bundles.borrow_mut().push(id.to_owned());
        let options = Options { root: self.text("state"), ..Options::default() };
        let bundle = Bundle { id: id.to_owned(), path, cgroup, options, config, rootfs: Vec::new() };
        bundle.write();
        bundle
    }

    /// Starts a container's shim and connects to it.
    pub(crate) fn start(&self, bundle: &Bundle) -> Client {
        let mut client = Client::connect(&self.start_shim(bundle));
        let pid = client.shim_pid();
        self.shims.borrow_mut().push(pidfd(pid));
        client
    }

    /// Returns the input of `start`.
    pub(crate) fn input(&self, bundle: &Bundle) -> Vec<u8> {
        let options = Any::new(Options::TYPE, &bundle.options);
        match self.format {
            Format::Address | Format::Json => options.encode_to_vec(),
            Format::Parameters => BootstrapParams {
                instance_id: bundle.id.clone(),
                namespace: NAMESPACE.to_owned(),
                containerd_ttrpc_address: self.text("ttrpc"),
                containerd_grpc_address: self.text("grpc"),
                extensions: vec![Extension { value: Some(options) }],
                socket_dir: self.text("s"),
            }
            .encode_to_vec(),
        }
    }

    /// Executes `start` in the bundle. Returns the path of the socket, as this process sees it.
    pub(crate) fn start_shim(&self, bundle: &Bundle) -> PathBuf {
        let output = self.execute(bundle, "start", &self.input(bundle));
        let address = match self.format {
            Format::Address => String::from_utf8(output).expect("an address"),
            Format::Json => {
                let result: Value = serde_json::from_slice(&output).expect("JSON");
                assert_eq!((&result["version"], &result["protocol"]), (&json!(2), &json!("ttrpc")));
                result["address"].as_str().expect("an address").to_owned()
            }
            Format::Parameters => {
                let result = BootstrapResult::decode(&*output).expect("a result");
                assert_eq!((result.version, &*result.protocol), (3, "ttrpc"));
                result.address
            }
        };
        // containerd 1.6 reads the address there after it was restarted.
        assert_eq!(fs::read_to_string(bundle.path.join("address")).expect("the kept address"), address);
        self.outside(address.strip_prefix("unix://").expect("an address of a Unix socket"))
    }

    /// Returns the path by which this process reaches a socket.
    fn outside(&self, path: &str) -> PathBuf {
        match path.strip_prefix("/run/") {
            Some(rest) if self.format != Format::Parameters => self.path("run").join(rest),
            _ => PathBuf::from(path),
        }
    }

    /// Executes `delete`, as containerd does when it has lost the shim.
    pub(crate) fn delete(&self, bundle: &Bundle) -> DeleteResponse {
        DeleteResponse::decode(&*self.execute(bundle, "delete", &[])).expect("an answer")
    }

    /// Executes the shim in a bundle with the flags, environment and input that containerd gives. Returns its output.
    fn execute(&self, bundle: &Bundle, action: &str, input: &[u8]) -> Vec<u8> {
        let output = self.command(&bundle.id, action, input).output().expect("the shim");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{action}: {}: {error}", output.status);
        assert_eq!(error, "", "{action}");
        output.stdout
    }

    pub(crate) fn command(&self, id: &str, action: &str, input: &[u8]) -> Command {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(input).and_then(|()| file.rewind()).expect("a file");
        let mut command = Command::new(&self.shim);
        command
            .args(["-namespace", NAMESPACE, "-address", &self.text("grpc")])
            .args(["-publish-binary", "/usr/bin/containerd", "-id", id])
            .current_dir(self.path(id))
            .env_clear()
            .env("PATH", path())
            .env("GOMAXPROCS", "2")
            .env("TTRPC_ADDRESS", self.text("ttrpc"))
            .stdin(file)
            .stdout(husk_spawn::Stdio::piped())
            .stderr(husk_spawn::Stdio::piped());
        if self.format != Format::Address {
            command.env("MAX_SHIM_VERSION", if self.format == Format::Json { "2" } else { "3" });
        }
        if action == "delete" {
            command.args(["-bundle", &self.text(id)]);
        }
        command.arg(action);
        if self.format != Format::Parameters {
            command.new_namespaces(Namespaces::MOUNT);
            command.step(Step::MountChange {
                target: c"/",
                flags: MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
            });
            let run = CString::new(self.path("run").as_os_str().as_bytes()).expect("a path");
            command.step(Step::MountBind { source: Box::leak(run.into_boxed_c_str()), target: c"/run" });
        }
        command
    }

    /// Creates a FIFO. Returns its path.
    pub(crate) fn fifo(&self, name: &str) -> String {
        make_fifo(&self.path(name));
        self.text(name)
    }

    /// Creates a FIFO and opens it for reading, as a client does before `Create`.
    pub(crate) fn output(&self, name: &str) -> (String, Output) {
        let path = self.fifo(name);
        let output = Output::open(&path);
        (path, output)
    }

    /// Kills the shim, and waits until it has ended.
    pub(crate) fn kill_shims(&self) {
        for shim in self.shims.borrow_mut().drain(..) {
            // Tolerated: most tests end it themselves.
            let _ended = pidfd_send_signal(&shim, Signal::KILL).is_err();
            until_ended(&shim);
        }
    }

    /// Waits until the shims have ended by themselves.
    pub(crate) fn until_shims_ended(&self) {
        for shim in self.shims.borrow_mut().drain(..) {
            until_ended(&shim);
        }
    }

    /// Whether the state directory names no container.
    pub(crate) fn has_no_container(&self) -> bool {
        let root = self.path("state").join(NAMESPACE);
        fs::read_dir(root).map_or(true, |mut containers| containers.next().is_none())
    }

    /// Returns how many sockets there are.
    pub(crate) fn sockets(&self) -> usize {
        let directory = match self.format {
            Format::Parameters => self.path("s"),
            _ => self.path("run/containerd/s"),
        };
        fs::read_dir(directory).map_or(0, Iterator::count)
    }
}

impl Drop for Engine {
    /// Removes what a failed test has left.
    fn drop(&mut self) {
        self.kill_shims();
        for id in self.bundles.take() {
            // Tolerated: this is not what is tested.
            let _failed = self.command(&id, "delete", &[]).output().is_err();
        }
    }
}

/// A bundle and what containerd adds to it.
pub(crate) struct Bundle {
    pub(crate) id: String,
    pub(crate) path: PathBuf,
    cgroup: String,
    pub(crate) options: Options,
    pub(crate) config: Value,
    pub(crate) rootfs: Vec<Mount>,
}

impl Bundle {
    /// Returns the bundle with `value` at `pointer`, whose parents must exist.
    pub(crate) fn with(mut self, pointer: &str, value: Value) -> Self {
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        let parent = self.config.pointer_mut(parent).expect("the parent");
        parent.as_object_mut().expect("an object").insert(key.to_owned(), value);
        self.write();
        self
    }

    fn write(&self) {
        fs::write(self.path.join("config.json"), self.config.to_string()).expect("a bundle");
    }

    pub(crate) fn request(&self, streams: Streams) -> CreateRequest {
        CreateRequest {
            id: self.id.clone(),
            bundle: self.path.to_str().expect("text").to_owned(),
            rootfs: self.rootfs.clone(),
            terminal: streams.terminal,
            stdin: streams.stdin,
            stdout: streams.stdout,
            stderr: streams.stderr,
            options: Some(Any::new(Options::TYPE, &self.options)),
            ..CreateRequest::default()
        }
    }

    /// Returns the container's directories in all cgroup hierarchies.
    pub(crate) fn cgroups(&self) -> Vec<PathBuf> {
        let root = Path::new("/sys/fs/cgroup");
        let hierarchies = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
        let directories = hierarchies.chain([root.to_owned()]).map(|directory| directory.join(&self.cgroup));
        directories.filter(|directory| directory.is_dir()).collect()
    }

    /// Returns the mount points in the bundle, as this process sees them.
    pub(crate) fn mount_points(&self) -> Vec<String> {
        let table = fs::read_to_string("/proc/self/mountinfo").expect("the table of mounts");
        let points = table.lines().filter_map(|line| line.split(' ').nth(4).map(str::to_owned));
        points.filter(|point| Path::new(point).starts_with(&self.path)).collect()
    }
}

/// Copies the program of the tests. Another process copies it: if this one wrote the file, a child of another test could
/// inherit the descriptor, and its exec would fail with ETXTBSY.
pub(crate) fn install(directory: &Path) {
    let copied = std::process::Command::new("cp").arg(program()).arg(directory.join("inside")).status();
    assert!(copied.expect("cp").success(), "the program is not built; run `cargo build --examples`");
}

/// Returns the program of the tests.
pub(crate) fn program() -> PathBuf {
    let shim = Path::new(env!("CARGO_BIN_EXE_containerd-shim-husk-v1"));
    shim.with_file_name("examples").join("inside")
}

fn make_fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
}

/// Opens a FIFO for writing. It must have a reader.
pub(crate) fn input(path: &str) -> File {
    let fd = open(path, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
    let fd = fd.expect("a FIFO with a reader");
    rustix::fs::fcntl_setfl(&fd, OFlags::empty()).expect("a FIFO");
    File::from(fd)
}

/// The client's end of a FIFO to which a container writes.
pub(crate) struct Output {
    fifo: OwnedFd,
    /// Bytes that were read and not asked for yet.
    rest: Vec<u8>,
}

impl Output {
    pub(crate) fn open(path: &str) -> Self {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Self { fifo: open(path, flags, Mode::empty()).expect("a FIFO"), rest: Vec::new() }
    }

    /// Reads more. Returns false at the end, when no process can write any more.
    fn more(&mut self) -> bool {
        let mut room = [0; 1 << 16];
        loop {
            until_ready(&self.fifo);
            match read(&self.fifo, &mut room) {
                Ok(count) => {
                    self.rest.extend_from_slice(&room[..count]);
                    return count > 0;
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => panic!("read a FIFO: {errno}"),
            }
        }
    }

    /// Reads to the end. There must be a writer already.
    pub(crate) fn until_end(&mut self) -> String {
        while self.more() {}
        String::from_utf8(std::mem::take(&mut self.rest)).expect("text")
    }

    /// Reads one line.
    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return String::from_utf8(line).expect("text").trim_end().to_owned();
            }
            assert!(self.more(), "the output ends");
        }
    }
}

/// Waits until a descriptor can be read, or its other side is closed.
pub(crate) fn until_ready(fd: &impl AsFd) {
    let limit = Timespec::try_from(PATIENCE).expect("a limit");
    let ready = retry_on_intr(|| poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&limit))).expect("a poll");
    assert!(ready > 0, "nothing happens");
}

/// Returns a pidfd of a process.
pub(crate) fn pidfd(pid: u32) -> OwnedFd {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a pid");
    pidfd_open(pid, PidfdFlags::empty()).expect("a process")
}

/// Waits until a process has ended.
pub(crate) fn until_ended(pidfd: &OwnedFd) {
    until_ready(pidfd);
}

/// Runs a whole container whose program ends by itself. Returns its status.
#[track_caller]
pub(crate) fn whole_life(client: &mut Client, bundle: &Bundle, streams: Streams) -> u32 {
    client.create(bundle, streams);
    let waiting = client.begin("Wait", &named(&bundle.id, ""));
    client.start(&bundle.id, "");
    let status = client.answer::<crate::wire::task::WaitResponse>(waiting).expect("an end").exit_status;
    assert_eq!(client.delete(&bundle.id, "").exit_status, status);
    status
}
