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

/// Runs as an ordinary user, because mapping root takes CAP_SETFCAP, which a sandbox started by root does not have.
#[test]
fn nested_sandbox_needs_the_nested_option() {
    need!(has_landlock(), "needs Landlock");
    const USER: u32 = 1000;
    let place = Project::new();
    let husk = place.path("here/husk");
    fs::copy(env!("CARGO_BIN_EXE_husk"), &husk).unwrap();
    let run = |options: &[&str]| {
        let mut command = Command::new(&husk);
        command.arg("test").args(options).args(["--", &husk, "test", "--", "echo", "inner"]);
        command.current_dir(place.path("here")).env("HOME", place.path("home")).stdin(Stdio::null());
        if is_root() {
            command.uid(USER).gid(USER);
        }
        Seen(command.output().unwrap())
    };
    if is_root() {
        ["", "here", "home"].iter().for_each(|name| chown(place.path(name), Some(USER), Some(USER)).unwrap());
    }
    run(&[]).fails(125, "a process restricted by Landlock cannot mount");
    run(&["--nested"]).prints("inner");
}
