//! Uses `Command` and `Child` as a user does. The program gets what was asked for, and errors name what is
//! impossible.

mod support;

use husk_script::sys::Gid;
use husk_script::sys::process::setgroups;
use husk_spawn::{
    Adopted, Command, Error, IdMap, Namespaces, Reason, Request, Resource, SchedAttr, Signal, SignalSet,
    Stdio, Step,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, getegid, geteuid, kill_process_group, waitid};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::thread;
use support::{
    Dir, Held, Observed, Terminal, is_root, needs_namespaces, needs_root, observe, own_root, program, skip,
    until_asleep,
};

/// Returns the output of a command that succeeds.
fn printed(command: &Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the error message of a command that fails.
fn failure(command: &Command) -> String {
    command.status().unwrap_err().to_string()
}

// Program.

#[test]
fn arguments_are_passed_byte_for_byte() {
    let given = [b"".as_slice(), b"two words", b"*", b"\xff\n"];
    let given = given.map(OsStr::from_bytes);
    let observed = observe(|command| command.arg("first").args(given).arg("last"));
    let program = observed.program();
    let wanted = [program.as_os_str().as_bytes(), b"\0first\0\0two words\0*\0\xff\n\0last\0"].concat();
    assert_eq!(observed.bytes("cmdline"), wanted);
}

#[test]
fn arg0_replaces_the_programs_name() {
    assert_eq!(observe(|command| command.arg0("-sh").arg("a")).bytes("cmdline"), b"-sh\0a\0");
}

/// Returns the environment of a program and checks that each variable occurs once.
fn environment(set: impl FnOnce(&mut Command) -> &mut Command) -> BTreeSet<String> {
    let environ = observe(set).file("environ");
    let variables: Vec<_> = environ.split_terminator('\0').map(str::to_owned).collect();
    let set: BTreeSet<_> = variables.iter().cloned().collect();
    assert_eq!(set.len(), variables.len(), "{variables:?}");
    set
}

fn variables<const N: usize>(variables: [&str; N]) -> BTreeSet<String> {
    variables.map(str::to_owned).into()
}

#[test]
fn environment_is_inherited_with_changes() {
    let own: BTreeSet<_> = std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
    let path = format!("PATH={}", std::env::var("PATH").unwrap());
    assert!(own.contains(&path));
    assert_eq!(environment(|command| command), own);

    let mut wanted = own.clone();
    wanted.remove(&path);
    assert_eq!(environment(|command| command.env_remove("PATH")), wanted);
    assert_eq!(environment(|command| command.env("A", "b").env_remove("A").env_remove("PATH")), wanted);
    wanted.extend(variables(["A=", "PATH=/new"]));
    assert_eq!(environment(|command| command.envs([("A", ""), ("PATH", "/new")])), wanted);
}

#[test]
fn env_clear_starts_from_an_empty_environment() {
    assert_eq!(environment(|command| command.env("A", "b").env_clear()), variables([]));
    assert_eq!(environment(|command| command.env_clear().env("A", "b=c")), variables(["A=b=c"]));
    let last = environment(|command| command.env_clear().env("A", "b").env("A", "c"));
    assert_eq!(last, variables(["A=c"]));
    assert_eq!(environment(|command| command.env_clear().env("A", "b").env_remove("A")), variables([]));
}

/// Returns the exit code of `tool`, looked up in this PATH.
fn looked_up(path: &str) -> Result<Option<i32>, String> {
    let status = Command::new("tool").env("PATH", path).status();
    status.map(|status| status.code()).map_err(|error| error.to_string())
}

#[test]
fn program_is_searched_in_the_childs_path() {
    let (first, second, plain, with_dir) = (Dir::new(), Dir::new(), Dir::new(), Dir::new());
    first.program("tool", program::exits(1));
    second.program("tool", program::exits(2));
    fs::write(plain.join("tool"), "").unwrap();
    fs::create_dir(with_dir.join("tool")).unwrap();
    let path = |dirs: &[&Dir]| {
        let dirs: Vec<_> = dirs.iter().map(|dir| dir.path().to_str().unwrap()).collect();
        dirs.join(":")
    };

    assert_eq!(looked_up(&path(&[&first, &second])), Ok(Some(1)));
    assert_eq!(looked_up(&path(&[&second, &first])), Ok(Some(2)));
    // Files that are not executable are skipped.
    assert_eq!(looked_up(&path(&[&plain, &with_dir, &second])), Ok(Some(2)));
    assert_eq!(looked_up(&format!("/no/such:{}", path(&[&second]))), Ok(Some(2)));
    // If nothing else is found, the error is about such a file.
    let denied = "exec tool: Permission denied (os error 13)";
    assert_eq!(looked_up(&path(&[&plain, &with_dir])), Err(denied.into()));
    let absent = "exec tool: No such file or directory (os error 2)";
    assert_eq!(looked_up(&path(&[&with_dir])), Err(absent.into()));
    assert_eq!(looked_up("/no/such"), Err(absent.into()));
}

#[test]
fn program_is_searched_in_default_directories_without_a_path() {
    assert!(Command::new("true").env_clear().status().unwrap().success());
    assert!(Command::new("true").env_remove("PATH").status().unwrap().success());
}

#[test]
fn relative_path_entries_start_at_the_childs_directory() {
    let dir = Dir::new();
    fs::create_dir(dir.join("below")).unwrap();
    dir.program("tool", program::exits(1));
    dir.program("below/tool", program::exits(2));
    let status = |path: &str| {
        let status = Command::new("tool").env("PATH", path).current_dir(dir.path()).status();
        status.map(|status| status.code()).map_err(|error| error.to_string())
    };
    assert_eq!(status(""), Ok(Some(1)));
    assert_eq!(status("/no/such:"), Ok(Some(1)));
    assert_eq!(status(":/no/such"), Ok(Some(1)));
    assert_eq!(status("."), Ok(Some(1)));
    assert_eq!(status("below"), Ok(Some(2)));
}

#[test]
fn relative_program_starts_at_the_childs_directory() {
    let dir = Dir::new();
    dir.program("tool", program::exits(3));
    let code = Command::new("./tool").current_dir(dir.path()).status().unwrap().code();
    assert_eq!(code, Some(3));
    assert_eq!(failure(&Command::new("./tool")), "exec ./tool: No such file or directory (os error 2)");
}

#[test]
fn working_directory_is_set_or_inherited() {
    assert_eq!(observe(|command| command.current_dir("/proc")).link("cwd"), Path::new("/proc"));
    let own = std::env::current_dir().unwrap();
    assert_eq!(observe(|command| command).link("cwd"), own);
}

// Descriptors.

/// Creates a file with this content, and returns it and its path.
fn file(dir: &Dir, name: &str) -> (File, PathBuf) {
    let path = dir.join(name);
    fs::write(&path, name).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    (file, path)
}

#[test]
fn standard_streams_are_inherited() {
    let observed = observe(|command| command);
    assert_eq!(observed.link("fd/2"), fs::read_link("/proc/self/fd/2").unwrap());
}

#[test]
fn standard_streams_are_null() {
    let mut command = Command::new("ls");
    command.args(["-l", "/proc/self/fd"]).stdin(Stdio::null()).stderr(Stdio::null());
    let links = printed(&command);
    for number in [0, 2] {
        assert!(links.contains(&format!(" {number} -> /dev/null\n")), "{links}");
    }
    assert!(Command::new("cat").stdin(Stdio::null()).status().unwrap().success());
}

#[test]
fn standard_streams_are_pipes() {
    let mut command = Command::new("tee");
    command.arg("/dev/stderr").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"both").unwrap();
    let (mut stdout, mut stderr) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((stdout.as_str(), stderr.as_str()), ("both", "both"));
    assert!(child.wait().unwrap().success());
}

#[test]
fn standard_streams_are_files() {
    let dir = Dir::new();
    let ((input, _), (out, path)) = (file(&dir, "input"), file(&dir, "out"));
    let mut command = Command::new("cat");
    assert!(command.stdin(input).stdout(out.try_clone().unwrap()).status().unwrap().success());
    assert_eq!(fs::read_to_string(path).unwrap(), "input");
    drop(out);
}

#[test]
fn output_of_one_program_is_the_input_of_another() {
    let mut first = Command::new("echo").arg("through").stdout(Stdio::piped()).spawn().unwrap();
    let mut second = Command::new("cat");
    second.stdin(first.stdout.take().unwrap());
    let output = second.output().unwrap();
    assert_eq!(output.stdout, b"through\n");
    assert!(first.wait().unwrap().success());
}

#[test]
fn wait_closes_the_childs_input() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn descriptors_get_the_requested_numbers() {
    let dir = Dir::new();
    let [(a, path_a), (b, path_b), (c, path_c), (d, path_d)] =
        ["a", "b", "c", "d"].map(|name| file(&dir, name));
    let numbers = [&a, &b, &c].map(|file| file.as_raw_fd());
    // Three that trade numbers, one that keeps its number, and one that occurs twice.
    let again = d.try_clone().unwrap();
    let stays = d.as_raw_fd();
    let observed = observe(|command| {
        command.fd(numbers[1], a).fd(numbers[2], b).fd(numbers[0], c).fd(stays, d).fd(555, again)
    });
    let fds = observed.fds();
    assert_eq!(fds[&numbers[1]], path_a);
    assert_eq!(fds[&numbers[2]], path_b);
    assert_eq!(fds[&numbers[0]], path_c);
    assert_eq!((&fds[&stays], &fds[&555]), (&path_d, &path_d));
    assert_eq!(fds.len(), 3 + 5);
}

#[test]
fn descriptors_and_standard_streams_can_be_swapped() {
    let dir = Dir::new();
    let ((a, path_a), (b, path_b)) = (file(&dir, "a"), file(&dir, "b"));
    let (at_a, at_b) = (a.as_raw_fd(), b.as_raw_fd());
    let observed = observe(|command| {
        let ours = io::stderr().as_fd().try_clone_to_owned().unwrap();
        command.stderr(a).fd(at_a, b).fd(at_b, ours)
    });
    let fds = observed.fds();
    assert_eq!((&fds[&2], &fds[&at_a]), (&path_a, &path_b));
    assert_eq!(fds[&at_b], fs::read_link("/proc/self/fd/2").unwrap());
}

#[test]
fn later_descriptor_replaces_an_earlier_one() {
    let dir = Dir::new();
    let ((a, _), (b, path_b)) = (file(&dir, "a"), file(&dir, "b"));
    let observed = observe(|command| command.fd(9, a).fd(9, b));
    assert_eq!(observed.fds()[&9], path_b);
}

#[test]
fn standard_stream_can_be_given_as_a_descriptor() {
    let observed = observe(|command| command.fd(2, File::open("/dev/zero").unwrap()));
    assert_eq!(observed.fds()[&2], Path::new("/dev/zero"));
}

#[test]
fn negative_descriptor_number_is_refused() {
    let mut command = Command::new("true");
    let failure = failure(command.fd(-1, File::open("/dev/null").unwrap()));
    assert!(failure.ends_with("-> 2147483647: Bad file descriptor (os error 9)"), "{failure}");
}

#[test]
fn other_descriptors_are_not_inherited() {
    // None of these is marked close-on-exec.
    let open = || rustix::fs::open("/dev/zero", OFlags::RDONLY, Mode::empty()).unwrap();
    let many: Vec<OwnedFd> = (0..200).map(|_| open()).collect();
    assert_eq!(observe(|command| command).fds().into_keys().collect::<Vec<_>>(), [0, 1, 2]);
    let one = many[77].try_clone().unwrap();
    let observed = observe(|command| command.fd(many[5].as_raw_fd(), one).notify_release());
    assert_eq!(observed.fds().into_keys().collect::<Vec<_>>(), [0, 1, 2, many[5].as_raw_fd()]);
}

#[test]
fn ten_megabytes_in_both_directions_do_not_block() {
    let input: Vec<u8> = (0..10 << 20_u32).map(|index: u32| index.to_le_bytes()[1]).collect();
    let output = Command::new("tee").arg("/dev/stderr").output_with_input(&input).unwrap();
    assert!(output.status.success());
    assert!(output.stdout == input && output.stderr == input);
}

#[test]
fn program_may_ignore_its_input() {
    let output = Command::new("true").output_with_input(&vec![0; 10 << 20]).unwrap();
    assert!(output.status.success());
}

#[test]
fn output_keeps_configured_streams() {
    let dir = Dir::new();
    let (mut out, _) = file(&dir, "out");
    let mut command = Command::new("sh");
    command.args(["-c", "echo out; echo err >&2; cat; exit 3"]).stdout(out.try_clone().unwrap());
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout, &*output.stderr), (Some(3), &b""[..], &b"err\n"[..]));
    let mut written = String::new();
    out.rewind().unwrap();
    out.read_to_string(&mut written).unwrap();
    assert_eq!(written, "out\n");
}

// Session, terminal, signals. Fields of stat: 5 process group, 6 session, 7 terminal, 8 foreground.

#[test]
fn new_session_and_process_group_are_set() {
    let leader = observe(|command| command.new_session());
    assert_eq!(leader.stat(6), i64::from(leader.child.id()));
    let leader = observe(|command| command.process_group(0));
    let group = leader.child.id();
    assert_eq!(leader.stat(5), i64::from(group));
    let member = observe(|command| command.process_group(group.cast_signed()));
    assert_eq!(member.stat(5), i64::from(group));
}

#[test]
fn controlling_terminal_is_set() {
    let terminal = Terminal::new();
    let observed =
        observe(|command| command.new_session().stdin(terminal.slave()).controlling_terminal().foreground());
    assert_ne!(observed.stat(7), 0);
    assert_eq!(observed.stat(8), i64::from(observed.child.id()));
    assert_eq!(observed.link("fd/0"), terminal.path);
}

#[test]
fn controlling_terminal_must_be_a_terminal() {
    let mut command = Command::new("true");
    command.new_session().controlling_terminal().stdin(Stdio::null());
    let error = command.status().unwrap_err();
    assert_eq!((error.act(), error.reason()), ("controlling-terminal 0", Reason::Errno(Errno::NOTTY)));
}

#[test]
fn program_dies_with_the_thread_that_started_it() {
    let start = || observe(|command| command.parent_death_signal(Signal::TERM));
    assert_eq!(thread::spawn(start).join().unwrap().ended_by(), Some(15));

    if is_root() {
        // Even after a change of identity, which makes the kernel clear the signal.
        let start = || observe(|command| command.parent_death_signal(Signal::TERM).uid(1));
        assert_eq!(thread::spawn(start).join().unwrap().ended_by(), Some(15));
    }
}

#[test]
fn signals_are_blocked() {
    let blocked = SignalSet::EMPTY.with(Signal::INT);
    assert_eq!(observe(|command| command.blocked_signals(blocked)).status("SigBlk"), "0000000000000002");
}

#[test]
fn broken_pipe_kills_the_program() {
    // `yes` writes forever, so it does not matter that another thread's child may have a copy of this
    // process's end until it execs.
    let mut child = Command::new("yes").stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::PIPE.number()));
}

// Limits and scheduling.

#[test]
fn rlimits_and_umask_are_set() {
    let observed = observe(|command| {
        command
            .rlimit(Resource::Nofile, Some(61), Some(62))
            .rlimit(Resource::Core, Some(0), Some(0))
            .umask(0o137)
    });
    assert_eq!(observed.limit("Max open files"), ("61".into(), "62".into()));
    assert_eq!(observed.limit("Max core file size"), ("0".into(), "0".into()));
    assert_eq!(observed.status("Umask"), "0137");
}

#[test]
fn rlimit_with_soft_above_hard_is_an_error() {
    let mut command = Command::new("true");
    command.rlimit(Resource::Nofile, Some(2), Some(1));
    assert_eq!(failure(&command), "rlimit nofile 2 1: Invalid argument (os error 22)");
}

#[test]
fn scheduler_and_priorities_are_set() {
    const BATCH: u32 = 3;
    let mut attr = SchedAttr::default();
    (attr.policy, attr.nice) = (BATCH, 5);
    let observed = observe(|command| command.scheduler(attr));
    assert_eq!((observed.stat(41), observed.stat(19)), (i64::from(BATCH), 5));
    assert_eq!(observe(|command| command.nice(7)).stat(19), 7);

    let mut ionice = Command::new("ionice");
    let Ok(output) = ionice.io_priority(2, 6).output() else { skip!("needs ionice for I/O priority") };
    assert_eq!(output.stdout, b"best-effort: prio 6\n");
}

#[test]
fn affinity_is_set() {
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let last: usize = own.rsplit([',', '-']).next().unwrap().parse().unwrap();
    let observed = observe(|command| command.affinity([last]));
    assert_eq!(observed.status("Cpus_allowed_list"), last.to_string());
    assert_eq!(observe(|command| command).status("Cpus_allowed_list"), own);
    // A mask of several words: a CPU that exists, and one beyond those of any machine.
    let observed = observe(|command| command.affinity([last, 8000]));
    assert_eq!(observed.status("Cpus_allowed_list"), last.to_string());
}

// Identity.

#[test]
fn user_and_groups_are_set() {
    needs_root!();
    // Sets the groups of this thread only.
    setgroups(&[5].map(Gid::from_raw)).unwrap();
    assert_eq!(observe(|command| command).status("Groups"), "5");

    let observed = observe(|command| command.uid(12).gid(11));
    assert_eq!(observed.status("Uid"), "12 12 12 12");
    assert_eq!(observed.status("Gid"), "11 11 11 11");
    assert_eq!(observed.status("Groups"), "", "root's groups are dropped");
    assert_eq!(observed.status("CapPrm"), "0000000000000000");

    assert_eq!(observe(|command| command.uid(12).groups(&[7, 9])).status("Groups"), "7 9");
    assert_eq!(observe(|command| command.groups(&[7])).status("Groups"), "7");
}

#[test]
fn working_directory_is_entered_with_the_programs_identity() {
    needs_root!();
    let dir = Dir::new();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
    let mut command = Command::new("true");
    command.uid(1).current_dir(dir.path());
    let path = dir.path().display();
    assert_eq!(failure(&command), format!("cwd {path}: Permission denied (os error 13)"));
}

#[test]
fn change_of_identity_needs_privileges() {
    needs_namespaces!();
    // A user namespace in which uid 1 is not mapped.
    let mut command = Command::new("true");
    own_root(&mut command).uid(1);
    assert_eq!(failure(&command), "uid 1: Invalid argument (os error 22)");
}

#[test]
fn no_new_privs_is_set() {
    assert_eq!(observe(|command| command.no_new_privs()).status("NoNewPrivs"), "1");
}

// Namespaces.

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn own_ids_are_mapped_by_the_child() {
    needs_namespaces!();
    let observed = observe(own_root);
    assert_eq!(words(&observed.file("uid_map")), format!("0 {} 1", geteuid().as_raw()));
    assert_eq!(words(&observed.file("gid_map")), format!("0 {} 1", getegid().as_raw()));
    assert_eq!(observed.file("setgroups"), "deny\n");
}

#[test]
fn other_ids_are_mapped_by_the_parent() {
    needs_root!();
    let maps = |outside| {
        [IdMap { inside: 0, outside, count: 1 }, IdMap { inside: 1, outside: outside + 100, count: 50 }]
    };
    let observed = observe(|command| {
        command
            .new_namespaces(Namespaces::USER)
            .uid_map(&maps(1000))
            .gid_map(&maps(2000))
            .uid(0)
            .gid(0)
            .groups(&[1])
    });
    assert_eq!(words(&observed.file("uid_map")), "0 1000 1 1 1100 50");
    assert_eq!(words(&observed.file("gid_map")), "0 2000 1 1 2100 50");
    assert_eq!(observed.status("Uid"), "1000 1000 1000 1000");
    assert_eq!(observed.status("Groups"), "2100");
    assert_eq!(observed.file("setgroups"), "allow\n");
}

#[test]
fn failure_to_write_an_id_map_is_the_parents_error() {
    needs_namespaces!();
    let overlapping = IdMap { inside: 0, outside: 0, count: 2 };
    let mut command = Command::new("true");
    command.new_namespaces(Namespaces::USER).uid_map(&[overlapping, overlapping]);
    let error = command.spawn().unwrap_err();
    assert!(error.act().ends_with("/uid_map"), "{error}");

    // A child with a list of its own has not closed its copy of the parent's end of the channel.
    let mut command = Command::of_steps(|writer| {
        writer.push(Step::Request { what: Request::IdMaps });
        Ok(())
    });
    command.new_namespaces(Namespaces::USER).uid_map(&[overlapping, overlapping]);
    let error = command.spawn().unwrap_err();
    assert!(error.act().ends_with("/uid_map"), "{error}");
}

#[test]
fn hostname_is_set() {
    needs_namespaces!();
    let mut command = Command::new("cat");
    own_root(&mut command).new_namespaces(Namespaces::UTS).hostname("other").arg("/proc/sys/kernel/hostname");
    assert_eq!(printed(&command), "other\n");
}

fn namespace(of: &Observed, kind: &str) -> File {
    File::open(format!("/proc/{}/ns/{kind}", of.child.id())).unwrap()
}

#[test]
fn namespaces_are_joined_by_file() {
    needs_namespaces!();
    let other = observe(|command| own_root(command).new_namespaces(Namespaces::NET | Namespaces::UTS));
    // The user namespace is joined first, because it grants the right to join the other.
    let joined = observe(|command| {
        let (net, user) = (namespace(&other, "net"), namespace(&other, "user"));
        command.join(net, Namespaces::NET).join(user, Namespaces::USER)
    });
    for (kind, same) in [("net", true), ("user", true), ("uts", false)] {
        let link = format!("ns/{kind}");
        assert_eq!(joined.link(&link) == other.link(&link), same, "{kind}");
    }
}

#[test]
fn namespaces_are_joined_by_process() {
    needs_root!();
    let kinds = Namespaces::PID | Namespaces::UTS | Namespaces::NET;
    let other = observe(|command| command.new_namespaces(kinds));

    let pidfd = other.child.as_fd().try_clone_to_owned().unwrap();
    let joined = observe(|command| command.join(pidfd, kinds));
    for kind in ["pid", "uts", "net"] {
        let link = format!("ns/{kind}");
        assert_eq!(joined.link(&link), other.link(&link), "{kind}");
    }
    // `other` is the first process there, so this is the second.
    assert_eq!(joined.status("NSpid"), format!("{} 2", joined.child.id()));
    assert_eq!(
        observe(|command| command).status("NSpid").split(' ').count(),
        1,
        "the child is in no new pid namespace"
    );

    // It sees its own pid in that namespace.
    let pidfd = other.child.as_fd().try_clone_to_owned().unwrap();
    let mut shell = Command::new("sh");
    assert_eq!(printed(shell.args(["-c", "echo $$"]).join(pidfd, kinds)), "3\n");
}

#[test]
fn failed_join_names_the_kind_and_the_descriptor() {
    for (kind, name) in [(Namespaces::PID, "pid"), (Namespaces::NET, "net")] {
        let file = File::open("/dev/null").unwrap();
        let number = file.as_raw_fd();
        let mut command = Command::new("true");
        command.join(file, kind);
        assert_eq!(failure(&command), format!("join {name} {number}: Invalid argument (os error 22)"));
    }
}

// The child.

#[test]
fn child_can_be_waited_for_more_than_once() {
    let dir = Dir::new();
    let mut child = Command::new(dir.program("exits", program::exits(7))).spawn().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
    assert_eq!(child.wait().unwrap().code(), Some(7));
    assert_eq!(child.try_wait().unwrap(), Some(ExitStatus::from_raw(7 << 8)));
    // Signals arrive too late, which is not an error.
    child.kill().unwrap();
    child.signal(Signal::TERM).unwrap();
}

#[test]
fn running_child_has_no_status() {
    let mut observed = observe(|command| command);
    let child = &mut observed.child;
    assert_eq!(child.try_wait().unwrap(), None);
    assert!(!is_readable(&*child, Some(&Timespec::default())));
    child.kill().unwrap();
    assert!(is_readable(&*child, None), "the descriptor is readable after the exit");
    assert_eq!(child.try_wait().unwrap().unwrap().signal(), Some(9));
}

#[test]
fn child_gets_the_signal() {
    let mut observed = observe(|command| command);
    observed.child.signal(Signal::USR1).unwrap();
    assert_eq!(observed.child.wait().unwrap().signal(), Some(Signal::USR1.number()));
}

fn is_readable(fd: impl AsFd, timeout: Option<&Timespec>) -> bool {
    let mut polled = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut polled, timeout).unwrap();
    !polled[0].revents().is_empty()
}

#[test]
fn child_with_kill_on_drop_is_killed_when_dropped() {
    let dir = Dir::new();
    let mut command = Command::new(dir.program("holds", program::holds(7)));
    command.stdin(Stdio::piped()).stdout(Stdio::null());

    // The child's input is closed, so it ends by itself without being waited for.
    let child = command.spawn().unwrap();
    let pidfd = child.as_fd().try_clone_to_owned().unwrap();
    drop(child);
    let ended = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED).unwrap().unwrap();
    assert_eq!(ended.exit_status(), Some(7));

    let mut child = command.kill_on_drop().spawn().unwrap();
    let (pidfd, stdin) = (child.as_fd().try_clone_to_owned().unwrap(), child.stdin.take());
    drop(child);
    let waited = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
    assert_eq!(waited.unwrap_err(), Errno::CHILD, "the child has been reaped");
    drop(stdin);
}

#[test]
fn command_can_be_started_from_several_threads() {
    let dir = Dir::new();
    let command = Command::new(dir.program("exits", program::exits(7)));
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| command.status().unwrap().code())).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), Some(7));
        }
    });
}

// Errors.

#[test]
fn first_query_reports_what_failed() {
    let absent = "exec /no/such: No such file or directory (os error 2)";
    let command = Command::new("/no/such");
    assert_eq!(failure(&command), absent);
    assert_eq!(command.output().unwrap_err().to_string(), absent);
    assert_eq!(command.spawn_and_exec().unwrap_err().to_string(), absent);
    assert_eq!(command.spawn().unwrap().wait().unwrap_err().to_string(), absent);
    assert_eq!(command.spawn().unwrap().wait_for_exec().unwrap_err().to_string(), absent);

    let mut child = command.spawn().unwrap();
    assert!(is_readable(&child, None));
    assert_eq!(child.try_wait().unwrap_err().to_string(), absent);
    assert_eq!(child.wait().unwrap_err().to_string(), absent, "the error is reported again");
}

#[test]
fn error_names_the_step() {
    let mut command = Command::new("true");
    assert_eq!(
        failure(command.current_dir("/no/such\n")),
        "cwd /no/such\\n: No such file or directory (os error 2)"
    );
    let mut command = Command::new("/");
    assert_eq!(failure(&command), "exec /: Permission denied (os error 13)");
    command = Command::new("true");
    command.step(Step::Symlink { target: c"a", path: c"/proc/self/exe" });
    assert_eq!(failure(&command), "symlink /proc/self/exe -> a: File exists (os error 17)");
}

#[test]
fn nul_byte_in_a_string_is_an_error() {
    let failures = [
        failure(Command::new("true").arg("a\0b")),
        failure(Command::new("true").arg0("a\0b")),
        failure(Command::new("true").env("NAME", "a\0b")),
        failure(Command::new("true").current_dir("a\0b")),
        failure(&Command::new("/a\0b")),
    ];
    for (failure, act) in failures.iter().zip(["a\0b", "a\0b", "NAME=a\0b", "a\0b", "/a\0b"]) {
        assert_eq!(*failure, format!("string {act:?}: contains a NUL byte"));
    }
}

#[test]
fn contradicting_settings_are_refused() {
    let one = [IdMap { inside: 0, outside: 0, count: 1 }];
    let null = || File::open("/dev/null").unwrap();
    let mut terminal = Command::new("true");
    let mut join = Command::new("true");
    // Only this process can map these ids, so the child waits for it while it waits for the child.
    let others = [IdMap { inside: 0, outside: 4711, count: 1 }];
    let mut join_time = Command::new("true");
    join_time.new_namespaces(Namespaces::USER).uid_map(&others).join(null(), Namespaces::TIME);
    let failures = [
        failure(Command::new("true").uid_map(&one)),
        failure(Command::new("true").gid_map(&one)),
        failure(Command::new("true").hostname("mine")),
        failure(terminal.controlling_terminal()),
        failure(join.join(null(), Namespaces::PID).new_namespaces(Namespaces::PID)),
        failure(Command::new("true").join(null(), Namespaces::PID).pids(&[4711])),
        failure(&join_time),
    ];
    let wanted = [
        "id maps: only a new user namespace has its ids mapped",
        "id maps: only a new user namespace has its ids mapped",
        "hostname: would be set for the whole host, without a UTS namespace",
        "controlling terminal: only a new session can take one",
        "join: a pid or time namespace cannot be both joined and new",
        "pids: cannot be chosen in a pid namespace that is joined",
        "join time: cannot be had with a child that waits for us",
    ];
    assert_eq!(failures, wanted);
}

#[test]
fn io_error_keeps_the_kind() {
    let kind = |error: Error| {
        let kind = error.kind();
        let number = error.raw_os_error();
        let text = error.to_string();
        let error = io::Error::from(error);
        assert_eq!((error.kind(), error.to_string()), (kind, text));
        (kind, number)
    };
    let status = |program: &str, argument: &str| Command::new(program).arg(argument).status().unwrap_err();
    assert_eq!(kind(status("/no/such", "")), (io::ErrorKind::NotFound, Some(2)));
    assert_eq!(kind(status("/", "")), (io::ErrorKind::PermissionDenied, Some(13)));
    assert_eq!(kind(status("true", "\0")), (io::ErrorKind::InvalidInput, None));
    assert_eq!(kind(died()), (io::ErrorKind::Other, None));
}

/// Returns the error of a child that is killed between clone and exec.
fn died() -> Error {
    let mut command = Command::new("true");
    let held = Held::before_exec(&mut command);
    let mut child = command.spawn().unwrap();
    held.wait(&child);
    // Wait until the child is in the step after the one that woke this process.
    until_asleep(&format!("/proc/{}", child.id()));
    child.kill().unwrap();
    child.wait().unwrap_err()
}

#[test]
fn child_killed_before_exec_is_reported_with_its_step() {
    let error = died();
    assert_eq!(error.reason(), Reason::Died(ExitStatus::from_raw(9)));
    assert!(error.act().starts_with("await "), "{error}");
    assert!(error.to_string().ends_with(": killed by signal 9 before exec"), "{error}");
}

#[test]
fn wait_for_exec_fails_if_the_child_is_killed() {
    let mut command = Command::new("true");
    let held = Held::before_exec(&mut command);
    let mut child = command.spawn().unwrap();
    held.wait(&child);
    child.kill().unwrap();
    let error = child.wait_for_exec().unwrap_err();
    assert_eq!(error.reason(), Reason::Died(ExitStatus::from_raw(9)));

    // Here the caller is suspended and knows no pid, so the child is killed by its process group.
    let leader = observe(|command| command.process_group(0));
    let group = leader.child.id().cast_signed();
    command.process_group(group);
    thread::scope(|scope| {
        let starts = scope.spawn(|| command.spawn_and_exec().map(drop));
        held.wait_unseen();
        kill_process_group(Pid::from_raw(group).unwrap(), rustix::process::Signal::KILL).unwrap();
        let error = starts.join().unwrap().unwrap_err();
        assert_eq!(error.reason(), Reason::Died(ExitStatus::from_raw(9)));
    });
}

#[test]
fn adopted_child_can_be_waited_for() {
    let adopted = |script: &str| {
        // Only the pid is known to the test.
        let child = std::process::Command::new("sh").args(["-c", script]).spawn();
        Adopted::new(child.unwrap().id().cast_signed()).unwrap()
    };
    let mut other = adopted("exit 7");
    assert_eq!(other.wait().unwrap().code(), Some(7));
    assert_eq!(other.try_wait().unwrap().and_then(|status| status.code()), Some(7));
    other.signal(Signal::KILL).unwrap();

    let mut other = adopted("exec sleep 1000");
    assert!(PathBuf::from(format!("/proc/{}", other.id())).exists());
    assert_eq!(other.try_wait().unwrap(), None);
    other.signal(Signal::TERM).unwrap();
    assert_eq!(other.wait().unwrap().signal(), Some(15));

    // Invalid pids, and a process that is not a child of this one.
    for pid in [0, -1, 1] {
        assert!(Adopted::new(pid).is_err(), "{pid}");
    }
}
