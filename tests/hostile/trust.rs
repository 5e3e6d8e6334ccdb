//! Tests in which other users may write where the runtime reads or writes. These are its store and records, the
//! directory of a pid file or an engine's configuration, its working directory, an image, and a cgroup.

use super::faults::{known, left, started};
use super::watched::{self, NotifiedCall, Verdict};
use crate::cgroups::is_version_2;
use crate::util::{Bundle, Runtime, Seen, is_husk, is_root, need};
use husk_spawn::sys::process::SockFilter;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, mkdirat, mknodat, open, openat, unlinkat};
use rustix::io::Errno;
use serde_json::json;
use std::fs::{self, File, Permissions};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use tempfile::TempDir;

/// Returns a bundle whose `poststop` hook creates a file.
fn with_tripwire(tripwire: &Path) -> Bundle {
    let hook = json!([{ "path": "/bin/touch", "args": ["touch", tripwire] }]);
    Bundle::running("hang").with("/hooks", json!({ "poststop": hook }))
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Asserts that every verb that uses the store is refused with this message.
#[track_caller]
fn is_refused(runtime: &Runtime, bundle: &Bundle, words: &str) {
    let bundle = bundle.path().to_str().unwrap();
    let verbs: [(&str, &[&str]); 7] = [
        ("state", &["c"]),
        ("list", &[]),
        ("kill", &["c", "KILL"]),
        ("exec", &["c", "/guest", "exit", "0"]),
        ("delete", &["c"]),
        ("delete", &["--force", "c"]),
        ("run", &["--bundle", bundle, "other"]),
    ];
    for (verb, arguments) in verbs {
        let seen = runtime.call(verb, arguments);
        assert!(!seen.0.status.success(), "{verb}");
        seen.says(words);
    }
}

#[test]
fn store_that_others_may_write_is_refused() {
    need!(is_husk(), "runc trusts any store");
    let host = TempDir::new().unwrap();
    let tripwire = host.path().join("tripwire");
    let bundle = with_tripwire(&tripwire);
    let runtime = Runtime::started(&bundle);
    let store = runtime.root().display().to_string();
    for (writable, bits) in [(runtime.root().to_owned(), 0o777), (runtime.root().to_owned(), 0o1777)] {
        mode(&writable, bits);
        let words = format!("store {store}: other users may write to it (mode {bits:04o})");
        is_refused(&runtime, &bundle, &words);
        mode(&writable, 0o700);
    }
    let entry = runtime.root().join("c");
    mode(&entry, 0o770);
    let words = format!("store {store}: {}: other users may write to it", entry.display());
    runtime.call("delete", &["--force", "c"]).fails(1, &words);
    mode(&entry, 0o700);
    assert!(!tripwire.exists(), "the hook of the record ran");
    assert_eq!(runtime.status(), "running");
}

#[test]
fn store_of_another_user_is_refused() {
    need!(is_husk(), "runc trusts any store");
    need!(is_root(), "needs root to change the owner");
    let host = TempDir::new().unwrap();
    let tripwire = host.path().join("tripwire");
    let bundle = with_tripwire(&tripwire);
    let runtime = Runtime::started(&bundle);
    let store = runtime.root().display().to_string();
    chown(runtime.root(), Some(4711), None).unwrap();
    let words =
        format!("store {store}: it belongs to user 4711, who is neither root nor the caller (user 0)");
    is_refused(&runtime, &bundle, &words);
    chown(runtime.root(), Some(0), None).unwrap();
    assert!(!tripwire.exists(), "the hook of the record ran");
    assert_eq!(runtime.status(), "running");
}

// The owner of a parent directory can replace the store.
#[test]
fn store_below_another_users_directory_or_link_is_refused() {
    need!(is_husk(), "runc trusts any store");
    need!(is_root(), "needs root to change owners");
    let host = TempDir::new().unwrap();
    let path = |name: &str| host.path().join(name);
    fs::create_dir_all(path("above/store")).unwrap();
    symlink("above/store", path("link")).unwrap();
    mode(host.path(), 0o1777);
    let list = |store: &Path| {
        let store = store.to_str().unwrap();
        Runtime::under_test().typed(&["--root", store, "list"])
    };
    list(&path("link")).succeeds();
    rustix::fs::chownat(
        CWD,
        path("link"),
        Some(rustix::fs::Uid::from_raw(4711)),
        None,
        AtFlags::SYMLINK_NOFOLLOW,
    )
    .unwrap();
    list(&path("link")).fails(1, "/link: it belongs to user 4711");
    list(&path("above/store")).succeeds();
    chown(path("above"), Some(4711), None).unwrap();
    list(&path("above/store")).fails(1, "/above: it belongs to user 4711");
}

// In the user namespace in which podman makes a user's containers, root's directories belong to the overflow user.
#[test]
fn store_below_directories_of_an_unmapped_root_is_used() {
    need!(is_husk(), "runc trusts any store");
    need!(is_root(), "needs root to become another user");
    let home = TempDir::new().unwrap();
    chown(home.path(), Some(1000), Some(1000)).unwrap();
    let program = Path::new(&crate::util::program()).to_owned();
    let rootless = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "unshare", "--user"]);
        command.arg("--map-root-user").arg(&program).args(words).env("XDG_RUNTIME_DIR", home.path());
        command.env_remove("USER").output().map(Seen).unwrap()
    };
    need!(
        rootless(&["--version"]).0.status.success(),
        "needs user namespaces, and files that others may read"
    );
    let store = home.path().join("husk");
    fs::create_dir(&store).unwrap();
    chown(&store, Some(1000), Some(1000)).unwrap();
    rootless(&["list", "--quiet"]).prints("");
    rootless(&["--root", store.to_str().unwrap(), "list", "--quiet"]).prints("");
    // An unmapped owner, such as root here, could be any user, so the store is refused.
    chown(&store, Some(0), Some(0)).unwrap();
    mode(&store, 0o755);
    rootless(&["list", "--quiet"]).fails(1, "it belongs to user 65534");
}

#[test]
fn record_of_another_user_is_not_used() {
    need!(is_husk(), "runc trusts any record");
    need!(is_root(), "needs root to change the owner");
    let host = TempDir::new().unwrap();
    let tripwire = host.path().join("tripwire");
    let bundle = with_tripwire(&tripwire);
    let runtime = Runtime::under_test();
    started(&runtime, &bundle);
    let (record, forged) = (runtime.root().join("c/state.json"), runtime.root().join("forged"));
    fs::create_dir(&forged).unwrap();
    mode(&forged, 0o700);
    // The record names the cgroup and process of another container.
    fs::copy(record, forged.join("state.json")).unwrap();
    chown(forged.join("state.json"), Some(4711), None).unwrap();
    for verb in ["state", "kill", "pause", "ps", "delete"] {
        runtime.call(verb, &["forged"]).says("it belongs to user 4711");
    }
    runtime.call("list", &[]).says("forged: state of the container cannot be read");
    runtime.call("delete", &["--force", "forged"]).succeeds();
    assert!(!forged.exists() && !tripwire.exists(), "the hook of the record ran");
    assert_eq!(known(&runtime).into_values().collect::<Vec<_>>(), ["running"]);
}

/// A thread that opens a FIFO for writing and closes it again. A reader finds a writer and then the end of file, so
/// that no reader waits for ever.
struct Writer {
    fifo: OwnedFd,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    fn of(path: &Path) -> Self {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let fifo = open(path, OFlags::PATH, Mode::empty()).unwrap();
        let (ends, own) = (Arc::new(AtomicBool::new(false)), format!("/proc/self/fd/{}", fifo.as_raw_fd()));
        let should_end = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            while !should_end.load(Ordering::Relaxed) {
                drop(open(&*own, OFlags::WRONLY, Mode::empty()).unwrap());
            }
        });
        Self { fifo, ends, thread: Some(thread) }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let own = format!("/proc/self/fd/{}", self.fifo.as_raw_fd());
        // Opens a reader, for which the writer may be waiting.
        let _reader = open(own, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn record_that_is_a_fifo_or_endless_does_not_block() {
    need!(is_husk(), "runc blocks");
    let bundle = Bundle::running("hang");
    let runtime = Runtime::started(&bundle);
    let directory = runtime.root().join("strange");
    let record = directory.join("state.json");
    let mut writer = None;
    let makers: [(&str, &mut dyn FnMut()); 4] = [
        ("it is not a regular file", &mut || writer = Some(Writer::of(&record))),
        ("it is not a regular file", &mut || drop(UnixListener::bind(&record).unwrap())),
        ("it is not a regular file", &mut || symlink("../c/state.json", &record).unwrap()),
        ("it is longer than 64 MiB", &mut || File::create(&record).unwrap().set_len(300 << 20).unwrap()),
    ];
    for (words, make) in makers {
        fs::create_dir(&directory).unwrap();
        mode(&directory, 0o700);
        make();
        let listed = runtime.call("list", &["--quiet"]);
        listed.prints("c");
        listed.says(words);
        for verb in ["state", "start", "kill", "delete"] {
            runtime.call(verb, &["strange"]).says(words);
        }
        runtime.call("delete", &["--force", "strange"]).succeeds();
        assert!(!directory.exists());
    }
    assert_eq!(runtime.status(), "running", "the target of the link belongs to another user");
}

#[test]
fn pid_file_is_not_written_through_links_of_others() {
    need!(is_husk(), "runc writes a temporary file with a predictable name");
    let host = TempDir::new().unwrap();
    let path = |name: &str| host.path().join(name);
    fs::write(path("victim"), "kept").unwrap();
    symlink("victim", path(".pid")).unwrap();
    symlink("victim", path("pid")).unwrap();
    let bundle = Bundle::running("hang");
    let runtime = Runtime::under_test();
    runtime.create_with(&bundle, &["--pid-file", path("pid").to_str().unwrap()]).succeeds();
    assert_eq!(fs::read_to_string(path("victim")).unwrap(), "kept");
    let pid: i32 = fs::read_to_string(path("pid")).unwrap().parse().unwrap();
    assert!(pid > 1);
    assert!(!fs::symlink_metadata(path("pid")).unwrap().is_symlink());
    assert_eq!(fs::read_dir(host.path()).unwrap().count(), 3, "a temporary file was left");
    assert_eq!(fs::metadata(runtime.root().join("c/state.json")).unwrap().mode() & 0o777, 0o600);
}

/// Returns a filter that notifies of calls that rename a file (x86-64).
fn renames() -> &'static [SockFilter] {
    let (load, equal, answer, allow, notify) = (0x20, 0x15, 0x06, 0x7fff_0000, 0x7fc0_0000);
    let mut program = vec![SockFilter { code: load, jt: 0, jf: 0, k: 0 }];
    for number in [82, 264, 316] {
        program.push(SockFilter { code: equal, jt: 0, jf: 1, k: number });
        program.push(SockFilter { code: answer, jt: 0, jf: 0, k: notify });
    }
    program.push(SockFilter { code: answer, jt: 0, jf: 0, k: allow });
    program.leak()
}

#[test]
fn engine_configuration_has_owner_and_mode_before_its_name() {
    need!(is_husk(), "other runtimes have no register command");
    need!(is_root(), "needs root to change the owner");
    need!(cfg!(target_arch = "x86_64"), "knows the call numbers of x86-64 only");
    let etc = TempDir::new().unwrap();
    let docker = etc.path().join("docker");
    fs::create_dir(&docker).unwrap();
    let file = docker.join("daemon.json");
    fs::write(&file, "{ \"secret\": true }").unwrap();
    mode(&file, 0o640);
    chown(&file, Some(4711), Some(4712)).unwrap();
    let mut command = Command::new(crate::util::program());
    let place = etc.path().to_str().unwrap();
    command.args(["register", "docker", "--program", "/opt/husk", "--etc", place]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let renamed = Arc::clone(&seen);
    let done = watched::run(&command, renames(), move |_: &NotifiedCall| {
        let entries = fs::read_dir(&docker).unwrap().map(|entry| entry.unwrap());
        let others = entries.filter(|entry| entry.file_name() != "daemon.json");
        let what = others.map(|entry| entry.metadata().unwrap());
        renamed.lock().unwrap().extend(what.map(|found| (found.mode() & 0o7777, found.uid(), found.gid())));
        Verdict::GoOn
    });
    done.succeeds();
    assert_eq!(*seen.lock().unwrap(), [(0o640, 4711, 4712)]);
    let found = fs::metadata(&file).unwrap();
    assert_eq!((found.mode() & 0o7777, found.uid(), found.gid()), (0o640, 4711, 4712));
    assert!(fs::read_to_string(&file).unwrap().contains("/opt/husk"));
}

#[test]
fn programs_of_the_host_are_not_searched_in_the_working_directory() {
    need!(is_husk(), "runc finds the programs there");
    need!(is_root(), "needs root to create cgroups");
    let bundle = Bundle::running("hang");
    let runtime = Runtime::started(&bundle);
    let here = TempDir::new().unwrap();
    let tripwire = here.path().join("tripwire");
    for name in ["ps", "criu"] {
        fs::write(here.path().join(name), format!("#!/bin/sh\n: > {}\n", tripwire.display())).unwrap();
        mode(&here.path().join(name), 0o755);
    }
    let call = |path: &str, verb: &str| {
        let mut command = runtime.command(verb);
        command.arg("c").current_dir(here.path()).env("PATH", path);
        runtime.detached(command)
    };
    for path in [".", "", ":/no/such", "./:.."] {
        call(path, "ps").fails(1, "ps: was not found: install procps");
        call(path, "checkpoint").fails(1, "criu was not found: install CRIU");
        assert!(!tripwire.exists(), "{path:?}");
    }
    // It is found in a directory of PATH that may be searched.
    call(here.path().to_str().unwrap(), "ps");
    assert!(tripwire.exists());
}

// A device in the image could be a watchdog of the host. A FIFO, which needs no permission for devices, shows the same.
#[test]
fn passwd_that_is_not_a_file_is_not_opened() {
    need!(is_husk(), "runc opens the file in the container");
    let bundle = Bundle::running("wait");
    let etc = bundle.rootfs().join("etc");
    fs::create_dir(&etc).unwrap();
    let lists = ["passwd", "group"].map(|name| etc.join(name));
    let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    for list in &lists {
        mknodat(CWD, list, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
        inotify::add_watch(&watch, list, WatchFlags::OPEN).unwrap();
    }
    let runtime = Runtime::started(&bundle);
    runtime.call("exec", &["--user", "who:staff", "c", "/guest", "exit", "0"]).says("who");
    // Without root no other id is mapped.
    if is_root() {
        runtime.call("exec", &["--user", "1", "c", "/guest", "exit", "0"]).succeeds();
    }
    let mut room = [MaybeUninit::uninit(); 4096];
    let first = inotify::Reader::new(&watch, &mut room).next().map(|event| event.events());
    assert_eq!(first.err(), Some(Errno::AGAIN), "the file was opened: {first:?}");
    // Opening one is noticed.
    drop(open(&lists[0], OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap());
    let first = inotify::Reader::new(&watch, &mut room).next().map(|event| event.events());
    assert_eq!(first, Ok(ReadFlags::OPEN));
}

/// Nested cgroups, removed on drop.
struct Nest {
    top: OwnedFd,
    depth: usize,
}

const NAME: &str = "n";

/// Too many directories to be open recursively on a stack of 8 MiB.
const DEPTH: usize = 1500;

impl Nest {
    fn below(directory: &Path, depth: usize) -> Self {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let top = open(directory, flags, Mode::empty()).unwrap();
        let nest = Self { top, depth };
        let mut current = openat(&nest.top, ".", flags, Mode::empty()).unwrap();
        for _ in 0..depth {
            mkdirat(&current, NAME, Mode::RWXU).unwrap();
            current = openat(&current, NAME, flags, Mode::empty()).unwrap();
        }
        nest
    }
}

impl Drop for Nest {
    fn drop(&mut self) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut levels = 0;
        let Ok(mut current) = openat(&self.top, ".", flags, Mode::empty()) else { return };
        while let Ok(below) = openat(&current, NAME, flags, Mode::empty()) {
            levels += 1;
            current = below;
        }
        assert!(levels <= self.depth);
        for _ in 0..levels {
            current = openat(&current, "..", flags, Mode::empty()).unwrap();
            unlinkat(&current, NAME, AtFlags::REMOVEDIR).unwrap();
        }
    }
}

/// Returns the directories of the bundle's cgroup, one for each hierarchy.
fn cgroups(bundle: &Bundle) -> Vec<PathBuf> {
    let own = bundle.config["linux"]["cgroupsPath"].as_str().unwrap().trim_start_matches('/').to_owned();
    let trees = if is_version_2() {
        vec![PathBuf::from("/sys/fs/cgroup")]
    } else {
        fs::read_dir("/sys/fs/cgroup").unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    trees.into_iter().map(|tree| tree.join(&own)).filter(|path| path.is_dir()).collect()
}

// A container that may write to its cgroup decides how deeply cgroups are nested in it.
#[test]
fn deeply_nested_cgroups_are_listed_and_deleted() {
    need!(is_root(), "needs root to create cgroups");
    need!(is_husk(), "another runtime has its own limits");
    let host = TempDir::new().unwrap();
    let tripwire = host.path().join("tripwire");
    let bundle = with_tripwire(&tripwire);
    let runtime = Runtime::started(&bundle);
    let in_use = ["devices", "freezer", "unified", ""];
    let is_looked_at = |path: &&PathBuf| {
        let tree = path.parent().unwrap().strip_prefix("/sys/fs/cgroup").unwrap();
        in_use.iter().any(|name| Path::new(name) == tree)
    };
    let nests: Vec<_> =
        cgroups(&bundle).iter().filter(is_looked_at).map(|path| Nest::below(path, DEPTH)).collect();
    assert!(!nests.is_empty());
    let few = |verb: &str, words: &[&str]| {
        let command = runtime.command(verb);
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -n 64; exec \"$@\"", "sh"]);
        shell.arg(command.get_program()).args(command.get_args()).args(words);
        runtime.detached(shell)
    };
    assert_eq!(few("ps", &["--format", "json", "c"]).succeeds().matches(',').count(), 0);
    few("pause", &["c"]).succeeds();
    few("resume", &["c"]).succeeds();
    few("delete", &["--force", "c"]).succeeds();
    assert!(tripwire.exists(), "the hook of the record did not run");
    assert_eq!(left(&runtime, &bundle), [""; 0]);
}

#[test]
fn failure_to_remove_a_cgroup_is_a_warning_of_delete() {
    need!(is_root(), "needs root to create cgroups");
    need!(is_husk(), "runc keeps the container");
    let host = TempDir::new().unwrap();
    let tripwire = host.path().join("tripwire");
    let bundle = with_tripwire(&tripwire);
    let runtime = Runtime::started(&bundle);
    runtime.call("kill", &["c", "KILL"]).succeeds();
    runtime.call("wait", &["c"]);
    // `delete` runs with hierarchies that are read-only for this process.
    let delete = runtime.command("delete");
    let script = "for tree in /sys/fs/cgroup /sys/fs/cgroup/*; do \
                    if mountpoint -q $tree; then mount -o remount,bind,ro $tree || exit 99; fi; \
                  done; exec \"$@\"";
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "sh", "-c", script, "sh"]);
    shell.arg(delete.get_program()).args(delete.get_args()).arg("c");
    let seen = runtime.detached(shell);
    need!(seen.0.status.code() != Some(99), "needs a mount namespace");
    let stays = cgroups(&bundle);
    stays.iter().for_each(|directory| fs::remove_dir(directory).unwrap());
    assert!(!stays.is_empty());
    seen.succeeds();
    seen.says("linux.cgroupsPath: remove the cgroup");
    seen.says("read-only file system; the container is deleted, and its cgroup stays");
    assert!(tripwire.exists(), "the hook of the record did not run");
    assert!(runtime.is_empty());
}
