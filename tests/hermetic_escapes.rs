//! `test`: attacks on the machine that need neither a file nor a network, and that fail in a sandbox. Most take system
//! calls that no shell can make. Perl, which every Debian has, makes them.

use crate::hermetic::{Project, has_sandboxes};
use crate::util::{Seen, is_root, need};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

/// System calls that perl has no name for, by their numbers on this processor.
struct Calls {
    keyctl: u32,
    mq_open: u32,
    mq_unlink: u32,
    ptrace: u32,
    process_vm_readv: u32,
    perf_event_open: u32,
    bpf: u32,
    unshare: u32,
    inotify_init1: u32,
    clock_settime: u32,
}

#[cfg(target_arch = "x86_64")]
const CALLS: Calls = Calls {
    keyctl: 250,
    mq_open: 240,
    mq_unlink: 241,
    ptrace: 101,
    process_vm_readv: 310,
    perf_event_open: 298,
    bpf: 321,
    unshare: 272,
    inotify_init1: 294,
    clock_settime: 227,
};
#[cfg(target_arch = "aarch64")]
const CALLS: Calls = Calls {
    keyctl: 219,
    mq_open: 180,
    mq_unlink: 181,
    ptrace: 117,
    process_vm_readv: 270,
    perf_event_open: 241,
    bpf: 280,
    unshare: 97,
    inotify_init1: 26,
    clock_settime: 112,
};

/// Returns a Perl script that prints `done` if the call succeeds, and otherwise fails with the reason.
fn said(call: &str) -> String {
    format!("{call} or die qq($!\\n); print qq(done\\n)")
}

/// Like `said`, for a system call, which returns -1 if it fails.
fn called(number: u32, arguments: &str) -> String {
    format!("syscall({number}, {arguments}) == -1 and die qq($!\\n); print qq(done\\n)")
}

/// The observer lets calls go on, except those that the filter of every sandbox refuses.
#[test]
fn program_that_is_observed_is_refused_the_same_calls() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let left = place.path("here/left");
    fs::write(&left, "").unwrap();
    let vsock = 40;
    let script = format!(
        "open(F, '>>', 'left'); syscall({}, 0, 0, 0); print F qq($!\n); syscall({}, 0, 0); print F qq($!\n); \
         socket(S, {vsock}, 1, 0); print F qq($!\n); exit 1",
        CALLS.bpf, CALLS.clock_settime
    );
    let seen = place.test(&["--write", &left], &["perl", "-e", &script]);
    let answers =
        "Function not implemented\nOperation not permitted\nAddress family not supported by protocol\n";
    assert_eq!(fs::read_to_string(&left).unwrap(), answers.repeat(2));
    for call in ["socket", "clock_settime", "bpf"] {
        seen.says(&format!("husk: the system call {call} is refused; no option allows it"));
    }
}

fn perl(place: &Project, script: &str) -> Seen {
    place.test(&[], &["perl", "-e", script])
}

/// Runs a Perl script outside a sandbox.
fn outside(script: &str) -> Seen {
    Seen(Command::new("perl").args(["-e", script]).output().unwrap())
}

#[test]
fn descriptors_of_the_caller_are_closed() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let husk = env!("CARGO_BIN_EXE_husk");
    let look = "for fd in 3 7 8 9 10; do test ! -e /proc/$$/fd/$fd || echo $fd; done";
    let script = format!("exec 7< / 9> out; exec {husk} test -- bash -c '{look}'");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(place.path("here")).env("HOME", place.path("home"));
    Seen(command.output().unwrap()).prints("");
}

#[test]
fn shared_memory_and_queues_are_private() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    // System V: nothing else uses this key. A segment made outside is found there, but not in the sandbox.
    let key = 0x4855_0000 | (std::process::id() & 0xffff);
    outside(&format!("print shmget({key}, 64, 0666 | 01000)")).succeeds();
    outside(&said(&format!("defined shmget({key}, 0, 0)"))).prints("done");
    perl(&place, &said(&format!("defined shmget({key}, 0, 0)"))).fails(2, "No such file");
    perl(&place, &said(&format!("defined msgget({key}, 01000 | 0666)"))).prints("done");
    outside(&said(&format!("defined msgget({key}, 0)"))).fails(2, "No such file");
    outside(&format!("shmctl(shmget({key}, 0, 0), 0, 0) or die $!")).succeeds();

    let name = format!("\"husk-test-{}\"", std::process::id());
    let of_queue = |call, rest: &str| format!("my $name = {name}; {}", called(call, &format!("$name{rest}")));
    let queue = |flags: &str| of_queue(CALLS.mq_open, &format!(", {flags}, 0600, 0"));
    // O_CREAT | O_RDWR.
    need!(outside(&queue("0102")).0.status.success(), "needs POSIX message queues");
    perl(&place, &queue("2")).fails(2, "No such file");
    outside(&of_queue(CALLS.mq_unlink, "")).prints("done");
    perl(&place, &queue("0102")).prints("done");
    outside(&queue("2")).fails(2, "No such file");

    let mark = format!("/dev/shm/husk-test-{}", std::process::id());
    fs::write(&mark, "").unwrap();
    place.sh(&[], "ls /dev/shm").prints("");
    fs::remove_file(mark).unwrap();
}

#[test]
fn calls_that_no_namespace_isolates_are_refused() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    // Gets the session keyring, makes a new one, and joins one.
    for arguments in ["0, -3, 0", "0, -3, 1", "1, 0"] {
        perl(&place, &called(CALLS.keyctl, arguments)).fails(38, "not implemented");
    }
    // 425 to 427 are io_uring, on every processor. It would carry out operations that the filter refuses as system
    // calls.
    for call in [CALLS.perf_event_open, CALLS.bpf, 425, 426, 427] {
        perl(&place, &called(call, "0, 0, 0, 0, 0")).fails(38, "not implemented");
    }
    let now = called(CALLS.clock_settime, "0, $now");
    perl(&place, &format!("my $now = pack(q(qq), 0, 0); {now}")).fails(1, "not permitted");
    place.sh(&[], "dmesg > /dev/null").fails(1, "not permitted");
    place.sh(&[], "cat /dev/kmsg").fails(1, "No such file");
    place.sh(&[], "mkdir /sys/fs/cgroup/husk-was-here").fails(1, "");
    // AF_VSOCK, for sockets of virtual machines, which network namespaces do not separate.
    perl(&place, &said("socket(my $s, 40, 1, 0)")).fails(97, "not supported");
}

/// Calls of 32-bit programs have their own numbers. The program that makes them is that of the crate `husk-seccomp`. On
/// x86-64 every program can make such calls. On aarch64 only a 32-bit program can: see `integration/guest/tests.sh`.
#[test]
fn calls_of_32_bits_are_refused_too() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let program = place.path("here/calls");
    let made = if cfg!(target_arch = "x86_64") {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/seccomp/tests/oracle/kernel.c");
        Command::new("cc").args(["-o", &program, source]).output()
    } else {
        let built = std::env::var("HUSK_ORACLES").unwrap_or_default();
        Command::new("cp").args([&format!("{built}/kernel-32"), &program]).output()
    };
    need!(made.is_ok_and(|made| made.status.success()), "needs a compiler of C, or programs in HUSK_ORACLES");
    // The numbers of getpid, keyctl and clock_settime, after a filter that allows everything.
    let numbers = if cfg!(target_arch = "x86_64") { [0x14, 0x120, 0x108] } else { [0x14, 0x137, 0x106] };
    let calls = numbers.map(|number| format!("call32 {number:x} 0 0\n")).concat();
    fs::write(place.path("here/input"), format!("flags 0\ncode 6 0 0 7fff0000\n{calls}")).unwrap();
    let answers = place.sh(&[], "./calls < input | grep -v ^load");
    let answers = String::from_utf8(answers.0.stdout).unwrap();
    need!(!answers.contains("killed 11"), "needs a kernel with 32-bit calls");
    let [pid, others @ ..] = &answers.lines().collect::<Vec<_>>()[..] else { panic!("{answers:?}") };
    assert!(pid.strip_prefix("returned ").is_some_and(|pid| pid.parse::<u32>().is_ok_and(|pid| pid > 0)));
    assert_eq!(others, ["returned -38", "returned -1"]);
}

/// PTRACE_ATTACH and reading memory fail for the sandbox's first process, which shares its parent's memory.
#[test]
fn first_process_cannot_be_traced() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    perl(&place, &called(CALLS.ptrace, "16, 1, 0, 0")).fails(1, "not permitted");
    let read = called(CALLS.process_vm_readv, "1, $vector, 1, $vector, 1, 0");
    perl(&place, &format!("my $vector = pack(q(JJ), 0x400000, 8); {read}")).fails(1, "not permitted");
    // Attaching also fails with all privileges in a new user namespace.
    let (user, attach) = (CALLS.unshare, called(CALLS.ptrace, "16, 1, 0, 0"));
    perl(&place, &format!("syscall({user}, 0x10000000) == 0 or die; {attach}")).fails(1, "not permitted");
    // The first process shares oom_score_adj with its parent, because they share memory.
    place.sh(&[], "echo 500 > /proc/1/oom_score_adj").fails(2, "Read-only");
    let uncovered = "umount /proc/1; mount -o remount,rw,bind /proc/1; echo 500 > /proc/1/oom_score_adj";
    place.sh(&["--nested"], &format!("unshare -Um sh -c '{uncovered}'")).fails(2, "Read-only");
}

#[test]
fn program_gains_no_privileges() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    place.sh(&[], "grep NoNewPrivs /proc/self/status").prints("NoNewPrivs:\t1");
    need!(is_root(), "needs root");
    // A set-user-ID program of root, which an ordinary user may run.
    let (id, husk) = (place.path("here/id"), place.path("here/husk"));
    for (from, to) in [("/usr/bin/id", &id), (env!("CARGO_BIN_EXE_husk"), &husk)] {
        assert!(Command::new("cp").args([from, to]).status().unwrap().success());
    }
    for (path, mode) in [(&id, 0o4755), (&place.path(""), 0o755), (&place.path("here"), 0o755)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let as_user = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups"]).args(arguments);
        Seen(command.current_dir(place.path("here")).env("HOME", "/nowhere").output().unwrap())
    };
    as_user(&["./id", "-u"]).prints("0");
    as_user(&[&husk, "test", "--", "./id", "-u"]).prints("1000");
    assert_eq!(fs::metadata(&id).unwrap().uid(), 0);
}

/// A crash neither writes a core file nor starts a core handler, which the kernel would run outside (core(5)).
#[test]
fn crash_leaves_no_core_file() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let seen = place.sh(&["--write", "."], "kill -SEGV $$");
    assert!(!seen.0.status.core_dumped(), "{}", seen.0.status);
    let limits = place.sh(&[], "grep core /proc/self/limits").succeeds();
    assert_eq!(limits.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["1", "1"], "{limits}");
    let left = fs::read_dir(place.path("here")).unwrap().count();
    assert_eq!(left, 1);
}

/// Resources that the kernel counts for each user are released.
#[test]
fn per_user_resources_are_released() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let watch = format!("syscall({}, 0)", CALLS.inotify_init1);
    let all = format!("my $n = 0; $n++ while $n < 100000 && {watch} != -1; print $n > 0 ? qq(done\\n) : $!");
    perl(&place, &all).prints("done");
    outside(&called(CALLS.inotify_init1, "0")).prints("done");
}

/// Sorting, spelling and formats do not depend on the caller's locale.
#[test]
fn locale_does_not_depend_on_the_caller() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let mut command =
        place.command(&[], &["sh", "-c", "locale; date -d @0 +%c; printf 'b\\nB\\na\\n' | sort"]);
    let seen = command.envs([
        ("LC_ALL", "de_DE.UTF-8"),
        ("LANG", "tr_TR"),
        ("TZ", "Asia/Tokyo"),
        ("LANGUAGE", "fr"),
    ]);
    let said = Seen(seen.output().unwrap()).succeeds();
    assert!(said.contains("LANG=C.UTF-8\n") && said.contains("LC_ALL=\n"), "{said}");
    assert!(said.trim_end().ends_with("Thu Jan  1 00:00:00 1970\nB\na\nb"), "{said}");
}

#[test]
fn uptime_is_the_requested_one() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(fs::exists("/proc/self/timens_offsets").unwrap(), "needs time namespaces");
    let place = Project::new();
    let up = |time: &str| {
        let script =
            "cut -d. -f1 /proc/uptime; perl -MTime::HiRes=clock_gettime -e 'print int clock_gettime(1)'";
        let seen = place.sh(&["--uptime", time], script).succeeds();
        seen.lines().map(|line| line.parse::<u64>().unwrap()).collect::<Vec<_>>()
    };
    // By 50 days, a 32-bit counter of milliseconds has wrapped around.
    assert!(up("50d").iter().all(|seconds| (50 * 86_400..51 * 86_400).contains(seconds)));
    assert!(up("0s").iter().all(|seconds| *seconds < 3600));
}
