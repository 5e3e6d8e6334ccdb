//! `test --shell` and `test --keep`: looking into a sandbox.

use crate::hermetic::{Project, has_sandboxes};
use crate::util::{Seen, need};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs the sandbox's shell with this input. `shell` is the caller's `SHELL`.
fn shell(place: &Project, shell: &str, options: &[&str], input: &str) -> Seen {
    let mut command = place.command(&[&["--shell"], options].concat(), &["./check", "it's", "--exact"]);
    command.env("SHELL", shell).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    Seen(child.wait_with_output().unwrap())
}

fn is_installed(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", "command -v \"$0\"", program])
        .stdout(Stdio::null())
        .status()
        .unwrap()
        .success()
}

#[test]
fn shell_has_the_files_network_and_environment_of_the_program() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let script = "cat file; ls /tmp; env | grep -v ^_= | sort; ls /proc/net/ | sort; cat /proc/net/dev";
    let program = place.sh(&["--env", "A=b"], script).succeeds();
    let seen = shell(&place, "/bin/sh", &["--env", "A=b"], &format!("{script}\n"));
    // The shell of `sh -c` may set other variables than one that reads its standard input.
    let without =
        |text: &str| text.lines().filter(|line| !line.starts_with("SHLVL=")).collect::<Vec<_>>().join("\n");
    assert_eq!(without(&seen.succeeds()), without(&program));
    seen.says("husk: shell in the sandbox; run: ./check 'it'\\''s' --exact\n");
    assert_eq!(shell(&place, "/bin/sh", &[], "exit 7\n").0.status.code(), Some(7));
}

#[test]
fn shell_is_the_callers_if_the_sandbox_shows_it() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let copy = |to: &str| assert!(Command::new("cp").args(["-L", "/bin/sh", to]).status().unwrap().success());
    let (here, home) = (place.path("here/mine"), place.path("home/mine"));
    copy(&here);
    copy(&home);
    shell(&place, &here, &[], "echo $0\n").prints(&here);
    shell(&place, &home, &["--read", &home], "echo $0\n").prints(&home);
    for (name, options) in [(&*home, &[][..]), ("/no/such", &[]), ("", &[]), (&here, &["--hide", &here])] {
        shell(&place, name, options, "echo $0\n").prints("/bin/sh");
    }
}

#[test]
fn shell_of_a_test_binary_shows_its_directory() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let directory = place.path("home/target/debug/deps");
    let binary = format!("{directory}/web-0123456789abcdef");
    fs::create_dir_all(&directory).unwrap();
    fs::write(&binary, "").unwrap();
    fs::write(format!("{directory}/libweb.so"), "").unwrap();
    let mut command = place.command(&["--shell"], &[&binary, "--exact", "it_works"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(format!("ls {directory}\n").as_bytes()).unwrap();
    let seen = Seen(child.wait_with_output().unwrap());
    seen.prints("libweb.so\nweb-0123456789abcdef");
    seen.says(&format!("run: {binary} --exact it_works\n"));
}

#[test]
fn debuggers_work_in_the_shell() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(is_installed("strace") && is_installed("gdb"), "needs strace and gdb");
    let place = Project::new();
    let script = "strace -o /tmp/calls true && grep -c '^execve' /tmp/calls\n";
    shell(&place, "/bin/sh", &[], script).prints("1");
    let script = "gdb -nx -batch -ex run -ex bt --args /bin/sh -c 'kill -SEGV $$' 2>&1 | grep -o 'received signal SIGSEGV'\n";
    shell(&place, "/bin/sh", &[], script).prints("received signal SIGSEGV");
}

#[test]
fn written_files_are_kept() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let kept = place.path("kept");
    let read = |path: &str| fs::read_to_string(format!("{kept}{path}")).unwrap();
    let mode = |path: &str| fs::symlink_metadata(format!("{kept}{path}")).unwrap().mode() & 0o7777;
    let script = "echo a > /tmp/a; mkdir -p /tmp/b/c; chmod 700 /tmp/b; ln -s /etc/passwd /tmp/l; mkfifo /tmp/p
        echo s > /dev/shm/s; echo h > ~/h; chmod 4755 ~/h; echo new > file; echo n > new; truncate -s 1G /tmp/holes
        echo v > /var/tmp/v; ln /var/tmp/v /var/tmp/w; exit 3";
    let seen = place.sh(&["--overlay", ".", "--keep", &kept], script);
    seen.fails(
        3,
        &format!("husk: kept 9 files in {kept}, and skipped 1 (devices, sockets, pipes, unreadable files)"),
    );
    assert_eq!(
        (read("/tmp/a"), read("/dev/shm/s"), read("/var/tmp/w")),
        ("a\n".into(), "s\n".into(), "v\n".into())
    );
    assert_eq!((mode("/tmp/b"), mode("/tmp/b/c")), (0o700, 0o755));
    assert_eq!(fs::read_link(format!("{kept}/tmp/l")).unwrap(), Path::new("/etc/passwd"));
    let (home, here) = (place.path("home"), place.path("here"));
    assert_eq!((read(&format!("{home}/h")), mode(&format!("{home}/h"))), ("h\n".into(), 0o755));
    assert_eq!((read(&format!("{here}/file")), read(&format!("{here}/new"))), ("new\n".into(), "n\n".into()));
    let holes = fs::metadata(format!("{kept}/tmp/holes")).unwrap();
    assert_eq!((holes.size(), holes.blocks()), (1 << 30, 0));
    // Nothing that the sandbox itself provides, and nothing of the host.
    assert!(!Path::new(&format!("{kept}/run")).exists() && !Path::new(&format!("{kept}/dev/null")).exists());
    assert_eq!(fs::read_to_string(place.path("here/file")).unwrap(), "file");
    assert_eq!(fs::metadata(&kept).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn files_of_a_killed_program_are_kept() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let kept = place.path("kept");
    // The process that is left running cannot change the copies.
    let script = "echo a > /tmp/a; while :; do :; done & kill -KILL $$";
    place.sh(&["--keep", &kept], script).says(&format!("husk: kept 1 file in {kept}\n"));
    assert_eq!(fs::read_to_string(format!("{kept}/tmp/a")).unwrap(), "a\n");
    fs::remove_dir_all(&kept).unwrap();
    let late = place.sh(&["--timeout", "1s", "--keep", &kept], "echo b > /tmp/b; while :; do :; done");
    late.fails(124, "husk: kept 1 file in");
    assert_eq!(fs::read_to_string(format!("{kept}/tmp/b")).unwrap(), "b\n");
}

#[test]
fn program_that_wrote_nothing_leaves_an_empty_directory() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let kept = place.path("kept");
    let guest = crate::util::guest();
    place
        .test(&["--keep", &kept, "--read", guest.to_str().unwrap()], &["true"])
        .says("husk: kept 0 files in");
    assert_eq!(fs::read_dir(&kept).unwrap().count(), 0);
}

#[test]
fn copies_stay_in_their_directory() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let (kept, outside) = (place.path("kept"), place.path("outside"));
    fs::create_dir(&outside).unwrap();
    // A link in an overlay, where a directory of another overlay would be copied to.
    fs::create_dir_all(place.path("here/a/b")).unwrap();
    let script =
        format!("ln -s {outside} /tmp/link; ln -s {outside} a/link; echo x > /tmp/link/x; echo y > a/b/y");
    place.sh(&["--overlay", "a", "--overlay", "a/b", "--keep", &kept], &script).succeeds();
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(format!("{kept}{}", place.path("here/a/b/y"))).unwrap(), "y\n");
    // A file with many names would need more space than the program had.
    fs::remove_dir_all(&kept).unwrap();
    let script = "head -c 600k /dev/zero | tr '\\0' x > /tmp/a; ln /tmp/a /tmp/b";
    let many = place.sh(&["--disk", "1m", "--keep", &kept], script);
    many.fails(125, "the copies take more space than the program had");
}

#[test]
fn directory_to_keep_files_in_is_empty_and_out_of_reach() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let keep =
        |directory: &str, options: &[&str]| place.sh(&[options, &["--keep", directory]].concat(), "true");
    keep(".", &[]).fails(125, "--keep .: is not empty");
    keep("file", &[]).fails(125, "--keep file: not a directory");
    keep("new", &["--write", "."]).fails(125, "where the program could change it; choose another directory");
    assert!(!Path::new(&place.path("here/new")).exists());
    fs::create_dir(place.path("empty")).unwrap();
    symlink(place.path("empty"), place.path("here/link")).unwrap();
    keep("link", &[]).fails(125, "--keep link:");
    fs::set_permissions(place.path("empty"), fs::Permissions::from_mode(0o755)).unwrap();
    keep(&place.path("empty"), &[]).succeeds();
}
