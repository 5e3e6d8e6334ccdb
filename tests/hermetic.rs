//! `test`: programs that see nothing of their surroundings and leave nothing behind, even if they try. An ordinary
//! shell of this machine runs most of them.

use crate::util::{Seen, guest, is_husk, is_linux, is_root, need, watch};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A directory `here` to work in, with a home directory beside it.
pub(crate) struct Project {
    directory: TempDir,
}

impl Project {
    pub(crate) fn new() -> Self {
        watch();
        let directory = TempDir::new().unwrap();
        for name in ["here", "home"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        fs::write(directory.path().join("home/secret"), "secret").unwrap();
        fs::write(directory.path().join("here/file"), "file").unwrap();
        Self { directory }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    fn here(&self) -> String {
        self.path("here")
    }

    /// Returns the command `husk test` with these options and this program.
    pub(crate) fn command(&self, options: &[&str], program: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_husk"));
        let guests = guest().parent().unwrap().to_owned();
        command.arg("test").args(options).arg("--read").arg(guests).arg("--").args(program);
        command.current_dir(self.here()).env("HOME", self.path("home")).stdin(Stdio::null());
        command
    }

    pub(crate) fn test(&self, options: &[&str], program: &[&str]) -> Seen {
        Seen(self.command(options, program).output().unwrap())
    }

    pub(crate) fn sh(&self, options: &[&str], script: &str) -> Seen {
        self.test(options, &["sh", "-c", script])
    }
}

fn run_guest(place: &Project, options: &[&str], words: &[&str]) -> Seen {
    let guest = guest();
    place.test(options, &[&[guest.to_str().unwrap()], words].concat())
}

/// Whether husk can make sandboxes on this machine.
pub(crate) fn has_sandboxes() -> bool {
    is_husk() && Project::new().test(&[], &["true"]).0.status.success()
}

#[test]
fn sandbox_ends_with_the_programs_status() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    assert_eq!(place.sh(&[], "exit 7").0.status.code(), Some(7));
    // The first process of a pid namespace would ignore these signals.
    for signal in ["TERM", "INT", "KILL", "SEGV"] {
        let status = place.sh(&[], &format!("kill -{signal} $$")).0.status;
        assert!(status.signal().is_some(), "{signal}: {status}");
    }
    place.test(&[], &["/no/such"]).fails(127, "husk: /no/such: no such file or directory");
    place.test(&[], &[""]).fails(127, "husk: \"\": no such file or directory");
    place.test(&[], &["/etc/passwd"]).fails(126, "husk: /etc/passwd: permission denied");
    let hidden = place.path("home/program");
    fs::write(&hidden, "").unwrap();
    let mut found = place.command(&[], &["program"]);
    let found = found.env("PATH", place.path("home")).output().unwrap();
    // A program is not hidden, whether it is named by its path or found through `PATH`.
    Seen(found).fails(126, "permission denied");
    place.test(&[], &[&hidden]).fails(126, "permission denied");
}

#[test]
fn program_has_the_callers_streams() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let mut cat = place.command(&[], &["sh", "-c", "cat; echo error >&2"]);
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    cat.stdin.take().unwrap().write_all(b"hello").unwrap();
    let seen = Seen(cat.wait_with_output().unwrap());
    seen.prints("hello");
    seen.says("error");
}

#[test]
fn signals_are_forwarded_to_the_program() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let script = "trap 'echo got it; exit 5' USR1; echo begun; while :; do sleep 0.01; done";
    let mut child = place
        .command(&[], &["sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "begun");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::USR1).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "got it");
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn files_of_the_host_cannot_be_written() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let script = "for place in / /etc /usr /var /var/lib /home /opt /srv /boot /mnt . /proc/sys/kernel /sys/kernel; do \
                  true 2>/dev/null > $place/husk-was-here && echo $place; done; echo changed >> file; rm -rf file; true";
    place.sh(&[], script).prints("");
    assert_eq!(fs::read_to_string(place.path("here/file")).unwrap(), "file");
    assert!(!fs::exists("/etc/husk-was-here").unwrap());
}

#[test]
fn kernel_settings_cannot_be_written() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let script = "for file in /proc/sys/kernel/panic /proc/sys/vm/drop_caches /proc/sysrq-trigger /proc/irq/*/smp_affinity; do \
                  true 2> /dev/null >> $file && echo $file; done; true";
    place.sh(&[], script).prints("");
}

#[test]
fn directory_of_the_host_as_a_standard_stream_is_refused() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let mut command = place.command(&[], &["true"]);
    let seen = Seen(command.stdin(fs::File::open("/").unwrap()).output().unwrap());
    seen.fails(125, "husk: standard input is a directory, through which");
}

#[test]
fn private_directories_are_empty_and_removed_afterwards() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let mark = format!("mark{}", place.path("").replace('/', "-"));
    let script = format!(
        "for place in /tmp /var/tmp /dev/shm /run $HOME $XDG_RUNTIME_DIR; do ls -A $place; echo x > $place/{mark} || exit 1; done"
    );
    // These directories show only the path to the working directory.
    let seen = place.sh(&["--net", "none"], &script).succeeds();
    assert!(!seen.contains("secret"), "{seen}");
    for other in ["/tmp", "/var/tmp", "/dev/shm", "/run"] {
        let path = std::path::Path::new(other).join(&mark);
        assert!(!path.is_file(), "{}", path.display());
    }
    assert!(!fs::exists(place.path(&format!("home/{mark}"))).unwrap());
}

#[test]
fn changing_mounts_reveals_nothing_of_the_host() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    // The script has all privileges in a user namespace of its own.
    let script = "unshare -Um sh -c '
        umount -l /tmp; umount -l /tmp; umount -l $HOME; umount -l /proc; umount -l /run
        mount -o remount,rw /; mount -o remount,rw,bind /; true > /etc/husk-was-here && echo wrote
        cat $HOME/secret' 2>/dev/null; true";
    for options in [&[][..], &["--nested"]] {
        place.sh(options, script).prints("");
        assert!(!fs::exists("/etc/husk-was-here").unwrap());
    }
    let first =
        "cat /proc/1/environ /proc/1/maps /proc/1/mem; ls /proc/1/root/ /proc/1/cwd/; cat /proc/1/fd/*";
    let seen = place.sh(&[], &format!("({first}) 2>/dev/null; grep Cap /proc/self/status")).succeeds();
    assert!(seen.lines().all(|line| line.starts_with("Cap")), "{seen}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(seen.contains(&format!("{set}:\t0000000000000000")), "{seen}");
    }
}

#[test]
fn network_is_private() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let name = place.path("");
    let _abstract = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    run_guest(&place, &[], &["connect", &port]).fails(1, "refused");
    run_guest(&place, &["--net", "none"], &["connect", &port]).fails(1, "unreachable");
    run_guest(&place, &[], &["connect", &name]).fails(1, "refused");
    run_guest(&place, &["--net", "host"], &["connect", &port]).prints("connected");
    run_guest(&place, &["--net", "host"], &["connect", &name]).prints("connected");
    assert_eq!(place.sh(&[], "tail -n +3 /proc/net/dev | cut -d: -f1").succeeds().trim(), "lo");
}

#[test]
fn two_sandboxes_can_listen_at_the_same_port() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let guest = guest();
    let listen = || {
        let mut command = place.command(&[], &[guest.to_str().unwrap(), "listen", "8080"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut both = [listen(), listen()];
    for child in &mut both {
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "connected\n");
    }
    for child in &mut both {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn other_processes_can_be_neither_seen_nor_signalled() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let seen = place.sh(&[], "ls /proc | grep '^[0-9]' | head -2; echo $$ $PPID").succeeds();
    assert_eq!(seen.lines().collect::<Vec<_>>(), ["1", "2", "2 1"]);
    // Signals every process that the program can reach, including its process group and the sandbox's first process.
    let us = std::process::id();
    let script =
        format!("trap '' TERM; kill -TERM 0; kill -TERM -1; kill -KILL 1; kill -KILL {us}; echo alive");
    place.sh(&[], &script).prints("alive");
}

#[test]
fn remaining_processes_are_killed_and_named() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let begun = "while ! tr '\\0' ' ' < /proc/$!/cmdline | grep -q '^sleep'; do :; done";
    let script =
        format!("sleep 4242 & {begun}; setsid sh -c 'sleep 4343 & sleep 4444' > /dev/null 2>&1 & exit 3");
    let seen = place.sh(&[], &script);
    assert_eq!(seen.0.status.code(), Some(3));
    seen.says("husk: warning: killed a process that was left running: sleep 4242 (pid ");
    let stderr = String::from_utf8_lossy(&seen.0.stderr);
    for line in stderr.lines() {
        let pid = line.rsplit_once("(pid ").unwrap().1.trim_end_matches(')');
        assert!(!fs::exists(format!("/proc/{pid}")).unwrap(), "{line}");
    }
    place.sh(&[], "sleep 0.01 &  wait").prints("");
}

#[test]
fn home_directory_is_replaced() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let home = place.path("home");
    place.sh(&[], "echo $HOME; ls -A ~; echo new > ~/new; cat ~/new").prints(&format!("{home}\nnew"));
    place.sh(&["--read", &home], "cat ~/secret").prints("secret");
    assert!(!fs::exists(place.path("home/new")).unwrap());
}

#[test]
fn environment_contains_only_listed_variables() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let variables = |options: &[&str]| {
        let mut command = place.command(options, &["env"]);
        command.env_clear().envs([
            ("PATH", "/usr/bin:/bin"),
            ("TZ", "Asia/Tokyo"),
            ("LC_ALL", "de_DE"),
            ("EDITOR", "vi"),
        ]);
        command.envs([
            ("CARGO_PKG_NAME", "husk"),
            ("CARGO_REGISTRY_TOKEN", "secret"),
            ("HOME", &place.path("home")),
        ]);
        let seen = Seen(command.output().unwrap()).succeeds();
        let mut lines: Vec<_> = seen.lines().map(str::to_owned).collect();
        lines.sort();
        lines.join("\n")
    };
    let (home, uid) = (place.path("home"), rustix::process::geteuid().as_raw());
    let list = |editor: &str, name: &str| {
        let fixed = format!(
            "CARGO_PKG_NAME=husk\n{editor}HOME={home}\nLANG=C.UTF-8\n{name}PATH=/usr/bin:/bin\nSHELL=/bin/sh\nTZ=UTC\nXDG_RUNTIME_DIR=/run/user/{uid}"
        );
        fixed
    };
    assert_eq!(variables(&[]), list("", ""));
    assert_eq!(
        variables(&["--env", "EDITOR", "-e", "NAME=a=b", "-e", "NOT_SET"]),
        list("EDITOR=vi\n", "NAME=a=b\n")
    );
}

#[test]
fn hostname_time_zone_and_umask_are_fixed() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    place
        .sh(&[], "cat /proc/sys/kernel/hostname; date +%Z; umask; ulimit -c")
        .prints("localhost\nUTC\n0022\n0");
}

#[test]
fn paths_are_shown_as_requested() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let here = place.here();
    fs::create_dir(place.path("here/sub")).unwrap();
    place
        .sh(&["--write", "sub"], "echo 1 > sub/written; true 2> /dev/null > file || cat file")
        .prints("file");
    assert_eq!(fs::read_to_string(place.path("here/sub/written")).unwrap(), "1\n");
    place.sh(&["--overlay", "."], "rm file; echo new > new; ls").prints("new\nsub");
    place.sh(&["--overlay", ".", "--write", "sub"], "echo 2 > sub/written; : > file").prints("");
    assert_eq!(fs::read_to_string(place.path("here/sub/written")).unwrap(), "2\n");
    assert_eq!(fs::read_to_string(place.path("here/file")).unwrap(), "file");
    place.sh(&["--write", "file"], "echo more > file").prints("");
    place.sh(&["--hide", "file", "--hide", "sub"], "cat file; ls sub; pwd").prints(&here);
    place.sh(&["--hide", "/usr/share"], "ls /usr/share").prints("");
    assert_eq!(fs::read_to_string(place.path("here/file")).unwrap(), "more\n");
    assert!(!fs::exists(place.path("here/new")).unwrap());
    place.sh(&["--write", "missing"], "").fails(125, "husk: find missing: no such file or directory");
    place.sh(&["--overlay", "file"], "").fails(125, "is not a directory");
    // From a subdirectory, the whole repository is visible.
    fs::create_dir(place.path("here/.git")).unwrap();
    let mut below = place.command(&[], &["cat", "../file"]);
    Seen(below.current_dir(place.path("here/sub")).output().unwrap()).prints("more");
}

#[test]
fn directory_can_be_removed_from_an_overlay() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    // The kernel marks the replacement of a removed directory, which is in memory, with an attribute.
    need!(is_linux(6, 6), "needs Linux 6.6, for user attributes in a tmpfs");
    fs::create_dir(place.path("here/sub")).unwrap();
    fs::write(place.path("here/sub/file"), "").unwrap();
    place.sh(&["--overlay", "."], "rm -r sub; ls").prints("file");
    assert!(fs::exists(place.path("here/sub/file")).unwrap());
}

#[test]
fn only_basic_devices_exist() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let seen = place.sh(
        &[],
        "ls /dev | tr '\\n' ' '; head -c 3 /dev/zero | wc -c; : > /dev/null; head -c 1 /dev/urandom | wc -c",
    );
    seen.prints("fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero 3\n1");
    // Devices for hardware do not exist, and even root cannot make one.
    place.sh(&[], "mknod /tmp/disk b 8 0 2>/dev/null && cat /tmp/disk; ls /dev/pts").prints("ptmx");
}

#[test]
fn exceeded_limit_kills_the_program_and_is_reported() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    place.sh(&["--timeout", "100ms"], "sleep 1000").fails(124, "husk: killed: time limit of 0.1 s reached");
    // The time to make the sandbox counts too: it is longer than this.
    place.sh(&["--timeout", "1ms"], "sleep 1000").fails(124, "husk: killed: time limit of 0.001 s reached");
    place
        .sh(&["--cpu", "1"], "while :; do :; done")
        .fails(124, "husk: killed: processor limit of 1 s reached");
    let large = "exec head -c 2000000 /dev/zero > /tmp/large";
    place
        .sh(&["--file-size", "1m"], large)
        .fails(124, "husk: killed: file size limit of 1048576 bytes reached");
    place.sh(&["--files", "20"], "ulimit -n").prints("20");
    place.sh(&["--disk", "1m"], large).fails(1, "No space left on device");
    let huge = place.sh(&["--memory", "32m"], "head -c 100m /dev/zero | tail -c 90m > /dev/null");
    if String::from_utf8_lossy(&huge.0.stderr).contains("no cgroup is available") {
        huge.fails(1, "memory exhausted");
    } else {
        huge.fails(124, "husk: killed: memory limit of 33554432 bytes reached");
    }
    for (option, value) in
        [("--timeout", "soon"), ("--memory", "much"), ("--memory", "1.5m"), ("--net", "some")]
    {
        place.sh(&[option, value], "").fails(125, value);
    }
}

#[test]
fn fork_bomb_is_an_error_of_the_program() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let bomb = place.sh(&["--pids", "50"], "b() { b | b & b; }; b");
    let is_limited =
        !is_root() || !String::from_utf8_lossy(&bomb.0.stderr).contains("no cgroup is available");
    need!(is_limited, "needs an ordinary user or a cgroup for limits on processes");
    bomb.fails(2, "Cannot fork");
}

/// Whichever of its directories a program fills, it keeps its own exit code.
#[test]
fn full_disk_is_reported_if_the_program_fails() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let note = "husk: the private directories are full: disk limit of 65536 bytes reached (--disk)\n";
    let options = ["--disk", "64k", "--overlay", ".", "--explain", "off"];
    for file in ["/tmp/own", "$HOME/x", "/dev/shm/x", "./x"] {
        place.sh(&options, &format!("head -c 100000 /dev/zero > {file} || exit 7")).fails(7, note);
    }
    for script in ["head -c 100000 /dev/zero > /tmp/own; exit 0", "head -c 9000 /dev/zero > /tmp/own; exit 7"]
    {
        let said = place.sh(&options, script).0.stderr;
        assert!(!String::from_utf8_lossy(&said).contains("husk: "), "{script}");
    }
    // The explanation says it instead.
    let explained = place.sh(&["--disk", "64k"], "head -c 100000 /dev/zero > /tmp/own");
    explained.says("raise the limit with '--disk 128k'");
    assert!(!String::from_utf8_lossy(&explained.0.stderr).contains("disk limit"));
}

#[test]
fn plan_option_lists_the_steps() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let plan = place.sh(&["--plan", "--write", "file"], "true").succeeds();
    let here = place.here();
    for line in [
        &format!("write {here}/file"),
        "recursive +ro,nosuid,nodev private",
        "vfork-and-reap space /dev",
        "no-new-privileges",
        &format!("cwd {here}"),
    ] {
        assert!(plan.contains(line), "{line}\n{plan}");
    }
}
