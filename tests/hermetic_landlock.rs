//! `test`: writes that Landlock forbids and no mount does. Each test shows that the same write succeeds with
//! `--nested`, which does not use Landlock.

use crate::hermetic::{Project, has_sandboxes};
use crate::util::{Seen, is_root, need};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Whether the kernel has Landlock and husk can make sandboxes.
fn has_landlock() -> bool {
    has_sandboxes() && Project::new().test(&["--plan"], &["true"]).succeeds().contains("landlock")
}

/// Makes a directory on the host that none of the sandbox's own directories covers.
fn uncovered() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn is_uncovered(directory: &Path) -> bool {
    ["/tmp", "/var/tmp", "/run", "/dev"].iter().all(|own| !directory.starts_with(own))
}

#[test]
fn standard_input_opened_for_reading_cannot_be_reopened_for_writing() {
    need!(has_landlock(), "needs Landlock");
    let place = Project::new();
    let file = place.path("input");
    let write = |options: &[&str], input: File| {
        let mut command = place.command(options, &["sh", "-c", "echo changed > /proc/self/fd/0"]);
        Seen(command.stdin(Stdio::from(input)).output().unwrap())
    };
    fs::write(&file, "kept").unwrap();
    write(&[], File::open(&file).unwrap()).fails(2, "Permission denied");
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    write(&["--nested"], File::open(&file).unwrap()).succeeds();
    assert_eq!(fs::read_to_string(&file).unwrap(), "changed\n");

    // If the caller opened the file for writing, the program may do so too.
    fs::write(&file, "kept").unwrap();
    write(&[], OpenOptions::new().read(true).write(true).open(&file).unwrap()).succeeds();
    assert_eq!(fs::read_to_string(&file).unwrap(), "changed\n");
}

#[test]
fn standard_output_and_error_can_be_reopened_by_name() {
    need!(has_landlock(), "needs Landlock");
    let place = Project::new();
    let (out, error) = (place.path("out"), place.path("error"));
    let script = "echo 1 > /dev/stdout; echo 2 > /dev/stderr; echo 3 >> /proc/self/fd/1";
    let mut command = place.command(&[], &["sh", "-c", script]);
    command.stdout(File::create(&out).unwrap()).stderr(File::create(&error).unwrap());
    assert!(command.status().unwrap().success());
    assert_eq!(fs::read_to_string(out).unwrap(), "1\n3\n");
    assert_eq!(fs::read_to_string(error).unwrap(), "2\n");
    // Opening them also works if they are pipes, which have no path.
    place.sh(&[], script).succeeds();
}

#[test]
fn fifo_of_the_host_cannot_be_written() {
    need!(has_landlock(), "needs Landlock");
    let (place, directory) = (Project::new(), uncovered());
    need!(is_uncovered(directory.path()), "needs a build directory outside /tmp");
    let fifo = directory.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // Opens the fifo for reading, so that writers do not block.
    let _reader = open(&fifo, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let path = fifo.to_str().unwrap();
    let script = format!("echo hello > {path}");
    place.sh(&["--read", path], &script).fails(2, "Permission denied");
    place.sh(&["--read", path, "--nested"], &script).succeeds();
    place.sh(&["--write", path], &script).succeeds();
}

#[test]
fn writable_directories_work_as_without_landlock() {
    need!(has_landlock(), "needs Landlock");
    let (place, directory) = (Project::new(), uncovered());
    need!(is_uncovered(directory.path()), "needs a build directory outside /tmp");
    let path = directory.path().to_str().unwrap();
    let script = "cd $1 && mkdir -p a b && echo 1 > a/f && mv a/f b/ && ln b/f a/g && ln -s g a/h && mkfifo p && \
                  : > b/f && truncate -s 5 a/g && rm -r a b p && echo done";
    for own in ["/tmp", "/var/tmp", "/dev/shm", "$HOME", "$XDG_RUNTIME_DIR"] {
        place.sh(&[], &format!("set -- {own}; {script}")).prints("done");
    }
    place.sh(&["--write", path], &format!("set -- {path}; {script}")).prints("done");
    place.sh(&["--overlay", path], &format!("set -- {path}; {script}")).prints("done");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    // A single file, whose directory is not writable.
    let file = directory.path().join("file");
    fs::write(&file, "long").unwrap();
    let name = file.to_str().unwrap();
    place.sh(&["--write", name], &format!("echo x > {name} && echo done")).prints("done");
    assert_eq!(fs::read_to_string(&file).unwrap(), "x\n");
}

#[test]
fn nested_sandbox_needs_the_nested_option() {
    need!(has_landlock(), "needs Landlock");
    const USER: u32 = 1000;
    let place = Project::new();
    let husk = place.path("here/husk");
    fs::copy(env!("CARGO_BIN_EXE_husk"), &husk).unwrap();
    if is_root() {
        ["", "here", "home"].iter().for_each(|name| chown(place.path(name), Some(USER), Some(USER)).unwrap());
    }
    for is_user in [false, true] {
        let command = |program: &str| {
            let mut command = Command::new(program);
            command.current_dir(place.path("here")).env("HOME", place.path("home")).stdin(Stdio::null());
            if is_user && is_root() {
                command.uid(USER).gid(USER);
            }
            command
        };
        // Each sandbox but the innermost gets the options.
        let run = |depth: usize, options: &[&str]| {
            let outer = [&[&husk, "test"], options, &["--"]].concat().repeat(depth - 1);
            let words = [&outer[..], &[&husk, "test", "--explain", "off", "--", "echo", "inner"]].concat();
            Seen(command(words[0]).args(&words[1..]).output().unwrap())
        };
        let refused = run(2, &[]);
        refused.fails(125, "pass --nested to the outer");
        refused.says("allow it with '--nested'");
        run(2, &["--nested"]).prints("inner");
        run(3, &["--nested"]).prints("inner");
        // The innermost program fails, and the sandboxes around it cannot always tell why.
        let words = ["test", "--nested", "--", &husk, "test", "--", "sh", "-c", "exit 3"];
        let failed = command(&husk).args(words).output().unwrap();
        let said = String::from_utf8(failed.stderr).unwrap();
        assert_eq!(failed.status.code(), Some(3), "{said}");
        assert!(!said.contains("user namespaces cannot be created"), "{said}");
    }
}

/// Root owns the files of all cgroups, and may mount them in a namespace of its own.
#[test]
fn nested_root_reaches_only_its_own_cgroup() {
    need!(has_sandboxes() && is_root(), "needs root");
    let place = Project::new();
    // Only the root of a hierarchy lacks `cgroup.events`, or has a `release_agent`.
    let script = "
        mkdir /tmp/2 && mount -t cgroup2 none /tmp/2 && { test -e /tmp/2/cgroup.events && echo own || echo root; }
        while IFS=: read -r _ names _; do
            test -z \"$names\" || mkdir \"/tmp/$names\" || exit
            test -z \"$names\" || mount -t cgroup -o \"$names\" none \"/tmp/$names\" || continue
            test ! -e \"/tmp/$names/release_agent\" || echo root
        done </proc/self/cgroup";
    let script = format!("unshare --user --map-root-user --mount --cgroup sh <<'END'{script}\nEND");
    place.sh(&["--nested"], &script).prints("own");
}

/// Root may only do what `--nested` is for: map its id. All other capabilities are gone.
#[test]
fn nested_root_keeps_one_capability() {
    need!(has_sandboxes() && is_root(), "needs root");
    const SETFCAP: &str = "0000000080000000";
    let place = Project::new();
    let script = "grep -E 'Cap(Prm|Eff|Inh|Amb)' /proc/self/status";
    let sets = |permitted: &str| {
        let zero = "0".repeat(16);
        format!("CapInh:\t{zero}\nCapPrm:\t{permitted}\nCapEff:\t{permitted}\nCapAmb:\t{zero}")
    };
    place.sh(&[], script).prints(&sets(&"0".repeat(16)));
    place.sh(&["--nested"], script).prints(&sets(SETFCAP));
}
