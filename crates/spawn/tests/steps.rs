//! Tests each step: a child performs it just before exec, and the test then asks the kernel for its effect.
//! Another test checks that a child makes no other system calls.

#[path = "steps/attributes.rs"]
mod attributes;
#[path = "steps/mounts.rs"]
mod below;
#[path = "steps/container.rs"]
mod container;
#[path = "steps/files.rs"]
mod files;
#[path = "steps/limits.rs"]
mod limits;
#[path = "steps/memory.rs"]
mod memory;
#[path = "steps/net.rs"]
mod net;
#[path = "steps/session.rs"]
mod session;
mod support;
#[path = "steps/terminal.rs"]
mod terminal;

use husk_script::Request;
use husk_spawn::sys::file::{Mode, OFlags};
use husk_spawn::sys::mount::MountFlags;
use husk_spawn::sys::{Errno, Fd};
use husk_spawn::{Command, Error, IdMap, Namespaces, Reason, Reg, Step, Writer};
use rustix::process::{getegid, geteuid};
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use support::{Dir, Held, Observed, needs_namespaces, needs_root, observe, own_root, skip};

/// Maps each step to its test, so that a new step does not compile without one.
const _: fn(&Step<'_>) -> fn() = |step| match step {
    Step::Open { .. } => open,
    Step::Close { .. } => close,
    Step::CloseRange { .. } => close_range,
    Step::CloseRangeOnExec { .. } => close_range_on_exec,
    Step::Dup { .. } => dup,
    Step::Dup3 { .. } => dup,
    Step::KeepOnExec { .. } => keep_on_exec,
    Step::Await { .. } => await_,
    Step::Write { .. } => write,
    Step::WriteFile { .. } => write_file,
    Step::Mkdir { .. } => files::mkdir,
    Step::Symlink { .. } => files::symlink,
    Step::Mount { .. } => files::mount,
    Step::MountBind { .. } => files::mount_bind,
    Step::MountChange { .. } => files::mount_change,
    Step::UmountDetach { .. } => files::umount_detach,
    Step::PivotRoot { .. } => files::pivot_root,
    Step::Chdir { .. } => files::chdir,
    Step::Chroot { .. } => files::chroot,
    Step::Umask { .. } => files::umask,
    Step::Setsid => session::setsid,
    Step::Setpgid { .. } => session::setpgid,
    Step::Tiocsctty { .. } => session::tiocsctty,
    Step::Tcsetpgrp { .. } => session::tcsetpgrp,
    Step::ResetHandlers => session::reset_handlers,
    Step::DefaultAction { .. } => session::ignore_signal_and_default_action,
    Step::ExitOnSignal { .. } => session::exit_on_signal,
    Step::IgnoreSignal { .. } => session::ignore_signal_and_default_action,
    Step::SignalMask { .. } => session::signal_mask,
    Step::ParentDeathSignal { .. } => session::parent_death_signal,
    Step::Unshare { .. } => unshare,
    Step::Setns { .. } => setns,
    Step::Sethostname { .. } => sethostname,
    Step::Request { .. } => request,
    Step::Setrlimit { .. } => limits::setrlimit,
    Step::Setpriority { .. } => limits::setpriority,
    Step::SchedSetattr { .. } => limits::sched_setattr,
    Step::SchedSetaffinity { .. } => limits::sched_setaffinity,
    Step::IoprioSet { .. } => limits::ioprio_set,
    Step::Setgroups { .. } => limits::identity,
    Step::Setresgid { .. } => limits::identity,
    Step::Setresuid { .. } => limits::identity,
    Step::NoNewPrivs => limits::no_new_privs,
    Step::Execve { .. } => limits::execve,
    // Steps for a root file system.
    Step::CloseOthers { .. } => container::close_others,
    Step::OpenInRoot { .. } => container::open_in_root,
    Step::EnsureDirectory { .. } => container::ensure_directory,
    Step::Attach { .. } => container::attach,
    Step::Mknod { .. } => container::mknod_and_symlink_in,
    Step::SymlinkIn { .. } => container::mknod_and_symlink_in,
    Step::Fsopen { .. } => container::attach,
    Step::FsconfigString { .. } => container::attach,
    Step::FsconfigFlag { .. } => container::attach,
    Step::Fsmount { .. } => container::attach,
    Step::OpenTree { .. } => container::open_tree_move_mount_and_setattr,
    Step::MountSetattr { .. } => container::open_tree_move_mount_and_setattr,
    Step::MoveMount { .. } => container::open_tree_move_mount_and_setattr,
    Step::Mask { .. } => container::mask_and_read_only,
    Step::ReadOnly { .. } => container::mask_and_read_only,
    Step::Fchdir { .. } => container::open_in_root,
    Step::Enter { .. } => container::enter,
    Step::DropBounding { .. } => container::capabilities,
    Step::KeepCaps { .. } => container::capabilities,
    Step::Capset { .. } => container::capabilities,
    Step::RaiseAmbient { .. } => container::capabilities,
    Step::LandlockRuleset { .. } => container::landlock,
    Step::LandlockAllow { .. } => container::landlock,
    Step::LandlockRestrict { .. } => container::landlock,
    Step::Seccomp { .. } => container::seccomp,
    Step::CheckExecutable { .. } => container::check_executable_and_execve_first,
    Step::ExecveFirst { .. } => container::check_executable_and_execve_first,
    Step::Park { .. } => container::park,
    Step::SeccompListener { .. } => attributes::seccomp_listener,
    Step::OpenSeccompListener { .. } => attributes::open_seccomp_listener,
    Step::Hook { .. } => container::hook,
    Step::FchownStreams { .. } => attributes::fchown_streams,
    Step::OpenProc { .. } => attributes::open_in_proc,
    Step::OpenInProc { .. } => attributes::open_in_proc,
    Step::JoinSessionKeyring { .. } => attributes::join_session_keyring,
    Step::SetMempolicy { .. } => attributes::set_mempolicy,
    Step::Personality { .. } => attributes::personality,
    // second_process.rs tests this step too.
    Step::CloneParent { .. } => clone_parent,
    Step::CloneAndReap { .. } => clone_and_reap,
    Step::VforkAndReap { .. } => vfork_and_reap,
    Step::Setdomainname { .. } => setdomainname,
    Step::LoopbackUp => loopback_up,
    Step::NewNet { .. } => net::new_net,
    Step::JoinNewNet => net::new_net,
    Step::ForgetMemory => memory::forget_memory,
    Step::Undumpable => memory::undumpable,
    Step::FsconfigFd { .. } => container::fsconfig_fd,
    // Steps for mounts.
    Step::OpenDevice { .. } => container::open_device,
    Step::OpenTreeOrRequest { .. } => below::requests_of_trees,
    Step::RequestTree { .. } => below::requests_of_trees,
    Step::FsconfigModeOf { .. } => below::mode_and_copy,
    Step::CopyUp { .. } => below::mode_and_copy,
    Step::Fspick { .. } => below::reconfiguration,
    Step::Reconfigure { .. } => below::reconfiguration,
    Step::MountSetattrUnlocked { .. } => below::attributes_that_are_locked,
    Step::MountSetattrAbove { .. } => below::propagation_above,
    Step::Label { .. } => below::label,
    Step::Hide { .. } => below::hide,
    Step::UnlinkIn { .. } => below::unlink_in,
    Step::OpenPty { .. } => terminal::open_pty,
    Step::Tiocswinsz { .. } => terminal::open_pty,
    Step::OpenTreeOf { .. } => terminal::open_tree_of,
    Step::RequestWith { .. } => terminal::request_with,
};

/// Starts a program that performs `steps`, and holds it after exec.
fn after<const N: usize>(steps: [Step<'static>; N]) -> Observed {
    observe(|command| command.final_steps(list(steps)))
}

/// Like `after`, in namespaces where any user may mount.
fn after_in_namespaces<const N: usize>(steps: [Step<'static>; N]) -> Observed {
    observe(|command| with_privileges(command).final_steps(list(steps)))
}

/// Returns the error of a child that performs `steps`.
fn failure<const N: usize>(steps: [Step<'static>; N]) -> String {
    Command::new("true").final_steps(list(steps)).status().unwrap_err().to_string()
}

fn list<const N: usize>(
    steps: [Step<'static>; N],
) -> impl for<'b> Fn(&mut Writer<'b>) -> Result<(), Error> + Send + Sync + 'static {
    move |writer| {
        steps.into_iter().for_each(|step| writer.push(step));
        Ok(())
    }
}

/// Lets the child mount and set its host name, whoever runs the tests.
fn with_privileges(command: &mut Command) -> &mut Command {
    own_root(command).new_namespaces(Namespaces::MOUNT | Namespaces::UTS)
}

/// Returns a string for a step, which outlives every child.
fn text(path: impl AsRef<Path>) -> &'static CStr {
    Box::leak(CString::new(path.as_ref().as_os_str().as_bytes()).unwrap().into_boxed_c_str())
}

/// Returns a descriptor by number. Numbers for steps to create must not be in use.
fn fd(number: i32) -> Fd {
    Fd::new(number).unwrap()
}

const R0: Reg = Reg::new(0).unwrap();

const OPEN_ZERO: Step<'static> =
    Step::Open { path: c"/dev/zero", flags: OFlags::RDONLY, mode: Mode::empty(), out: R0 };

const OPEN_NULL: Step<'static> =
    Step::Open { path: c"/dev/null", flags: OFlags::RDONLY, mode: Mode::empty(), out: R0 };

fn numbers(observed: &Observed) -> Vec<i32> {
    observed.fds().into_keys().collect()
}

fn permissions(path: impl AsRef<Path>) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Returns the mounts of `observed` at or below `path`: the path and the rest of each line.
fn mounts(observed: &Observed, path: &Path) -> Vec<(String, String)> {
    let mountinfo = observed.file("mountinfo");
    let mounts = mountinfo.lines().map(|line| {
        let mut fields = line.splitn(6, ' ').skip(4);
        (fields.next().unwrap().to_owned(), fields.next().unwrap().to_owned())
    });
    mounts.filter(|(at, _)| Path::new(at).starts_with(path)).collect()
}

fn mount_tmpfs(target: &Path) -> Step<'static> {
    let (source, fstype, flags) = (c"a-source", c"tmpfs", MountFlags::NOSUID | MountFlags::NODEV);
    Step::Mount { source, target: text(target), fstype, flags, data: c"size=64k,mode=711" }
}

// Descriptors.

#[test]
fn open() {
    let observed = after([OPEN_ZERO, Step::Dup3 { from: R0.into(), to: fd(509) }]);
    assert_eq!(observed.fds()[&509], Path::new("/dev/zero"));
    assert_eq!(numbers(&observed), [0, 1, 2, 509], "exec closes opened descriptors");

    let dir = Dir::new();
    let (path, flags) = (text(dir.join("new")), OFlags::WRONLY | OFlags::CREATE);
    let mode = Mode::from_raw_mode(0o640);
    after([Step::Umask { mask: Mode::empty() }, Step::Open { path, flags, mode, out: R0 }]);
    assert_eq!(permissions(dir.join("new")), 0o640);
}

#[test]
fn close() {
    let to = fd(509);
    let observed = after([
        OPEN_ZERO,
        Step::Dup3 { from: R0.into(), to },
        Step::Dup3 { from: R0.into(), to: fd(510) },
        Step::Close { fd: to.into() },
    ]);
    assert_eq!(numbers(&observed), [0, 1, 2, 510]);
    // Closing a descriptor that is not open is not an error.
    after([Step::Close { fd: to.into() }]);
}

#[test]
fn close_range() {
    let at = |number| Step::Dup3 { from: Fd::STDIN.into(), to: fd(number) };
    let range = Step::CloseRange { first: fd(510), last: fd(512) };
    assert_eq!(numbers(&after([at(509), at(510), at(512), at(513), range])), [0, 1, 2, 509, 513]);
    // The descriptors are closed immediately.
    let late = Step::KeepOnExec { fd: fd(510) };
    assert_eq!(failure([at(510), range, late]), "keep 510: Bad file descriptor (os error 9)");
}

#[test]
fn close_range_on_exec() {
    let at = |number| Step::Dup3 { from: Fd::STDIN.into(), to: fd(number) };
    let range = Step::CloseRangeOnExec { first: fd(510), last: fd(512) };
    assert_eq!(numbers(&after([at(509), at(510), at(512), at(513), range])), [0, 1, 2, 509, 513]);
    // The descriptors are closed only at exec.
    let late = Step::KeepOnExec { fd: fd(510) };
    assert_eq!(numbers(&after([at(510), at(511), range, late])), [0, 1, 2, 510]);
}

#[test]
fn dup() {
    let dup = Step::Dup { from: Fd::STDIN.into(), least: fd(600), out: R0 };
    let observed =
        after([dup, Step::Dup3 { from: R0.into(), to: fd(509) }, Step::KeepOnExec { fd: fd(600) }]);
    assert_eq!(numbers(&observed), [0, 1, 2, 509, 600]);
    let fds = observed.fds();
    assert_eq!((&fds[&509], &fds[&600]), (&fds[&0], &fds[&0]));
    assert_eq!(numbers(&after([dup])), [0, 1, 2], "exec closes the descriptor");
}

#[test]
fn keep_on_exec() {
    let dup = Step::Dup { from: Fd::STDIN.into(), least: fd(601), out: R0 };
    assert_eq!(numbers(&after([dup, Step::KeepOnExec { fd: fd(601) }])), [0, 1, 2, 601]);
}

#[test]
fn await_() {
    // Every held child shows that this waits. This checks that it reads exactly one byte.
    let mut command = Command::new("cat");
    command.final_steps(list([Step::Await { fd: Fd::STDIN.into() }]));
    assert_eq!(command.output_with_input(b"abc").unwrap().stdout, b"bc");
    // The end of file also ends the wait.
    after([OPEN_NULL, Step::Await { fd: R0.into() }]);
}

#[test]
fn write() {
    let mut command = Command::new("echo");
    command.arg("after").final_steps(list([Step::Write { fd: Fd::STDOUT.into(), bytes: b"before " }]));
    assert_eq!(command.output().unwrap().stdout, b"before after\n");
}

#[test]
fn write_file() {
    let dir = Dir::new();
    fs::write(dir.join("file"), "lower case").unwrap();
    let there = Step::WriteFile { path: text(dir.join("file")), bytes: b"UPPER", tolerate: None };
    assert_eq!(numbers(&after([there])), [0, 1, 2]);
    assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "UPPER case");

    let absent = |tolerate| Step::WriteFile { path: c"/no/such", bytes: b"", tolerate };
    after([absent(Some(Errno::NOENT))]);
    let reason = "No such file or directory (os error 2)";
    assert_eq!(failure([absent(None)]), format!("write /no/such \"\": {reason}"));
    assert_eq!(failure([absent(Some(Errno::ACCESS))]), format!("write /no/such \"\": {reason}"));
}

// Namespaces.

#[test]
fn unshare() {
    needs_namespaces!();
    let observed = after([Step::Unshare { namespaces: Namespaces::USER | Namespaces::NET }]);
    for (name, same) in [("user", false), ("net", false), ("uts", true)] {
        let link = format!("ns/{name}");
        assert_eq!(observed.link(&link) == fs::read_link(format!("/proc/self/{link}")).unwrap(), same);
    }
}

#[test]
fn setns() {
    needs_namespaces!();
    let other = after_in_namespaces([]);
    let file = |name| File::open(format!("/proc/{}/ns/{name}", other.child.id())).unwrap();
    let (user, uts) = (file("user"), file("uts"));
    let observed = after([
        Step::Setns { fd: Fd::of(&user).into(), namespaces: Namespaces::USER },
        Step::Setns { fd: Fd::of(&uts).into(), namespaces: Namespaces::UTS },
    ]);
    assert_eq!(observed.link("ns/user"), other.link("ns/user"));
    assert_eq!(observed.link("ns/uts"), other.link("ns/uts"));
    assert_ne!(observed.link("ns/mnt"), other.link("ns/mnt"));
}

#[test]
fn sethostname() {
    needs_namespaces!();
    let mut command = Command::new("cat");
    with_privileges(&mut command).arg("/proc/sys/kernel/hostname");
    command.final_steps(list([Step::Sethostname { name: b"a-name" }]));
    assert_eq!(command.output().unwrap().stdout, b"a-name\n");
}

#[test]
fn clone_parent() {
    let mut command = Command::new("true");
    command.notify_release();
    let step = Step::CloneParent { namespaces: Namespaces::EMPTY };
    command.final_steps(list([Step::Setsid, step]));
    let held = Held::before_exec(&mut command);
    let mut child = command.kill_on_drop().spawn().unwrap();
    held.wait(&child);
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let session = stat.rsplit_once(") ").unwrap().1.split(' ').nth(3).unwrap();
    assert_ne!(session, child.id().to_string(), "the session leader has ended");
    held.release();
    assert!(child.wait().unwrap().success());

    // Without a channel this process could not tell whether the child has execed.
    let why = "clone-parent: its exec can be seen only with Command::notify_release";
    assert_eq!(failure([step]), why);
}

/// Returns a shell that is the second process of a new pid namespace.
fn second(step: Step<'static>, script: &str) -> Command {
    let mut command = Command::new("sh");
    own_root(&mut command).new_namespaces(Namespaces::PID).args(["-c", script]);
    command.final_steps(list([Step::Undumpable, step]));
    command
}

#[test]
fn clone_and_reap() {
    needs_namespaces!();
    reaps(|space| Step::CloneAndReap { space });
}

#[test]
fn vfork_and_reap() {
    needs_namespaces!();
    reaps(|space| Step::VforkAndReap { space });
}

fn reaps(step: fn(Option<&'static std::ffi::CStr>) -> Step<'static>) {
    let second = |script| second(step(None), script);
    let output = second("echo $$ $PPID").output().unwrap();
    assert_eq!(output.stdout, b"2 1\n");
    // For the first process of the namespace, the kernel would discard a signal without a handler.
    let status = second("kill -TERM $$").status().unwrap();
    assert_eq!(status.signal(), Some(15));
    assert_eq!(second("exit 7").status().unwrap().code(), Some(7));
    // Orphans are reaped: the loop runs while it sees one that has ended.
    let status = second("(true &) ; while kill -0 3 || kill -0 4; do :; done 2>/dev/null").status();
    assert!(status.unwrap().success());

    let mut child = second("exec 2>&-; sleep 1000 & exit 3").notify_release().spawn().unwrap();
    assert_eq!(child.next_request().unwrap(), Some(Request::RemainingProcesses), "the parent is asked");
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    assert!(!fs::read_to_string(children).unwrap().trim().is_empty(), "the child still runs");
    child.go_on().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert!(child.usage().is_some());
    assert!(!child.has_full_space());

    // A tmpfs of one page, which the program fills. Only a failure is of interest.
    for (status, space, is_full) in [(3, Some(c"/tmp"), true), (0, Some(c"/tmp"), false), (3, None, false)] {
        let script = format!("mount -t tmpfs -o size=4k tmpfs /tmp && echo x > /tmp/x && exit {status}");
        let mut command = Command::new("sh");
        with_privileges(&mut command).new_namespaces(Namespaces::PID | Namespaces::MOUNT);
        command.args(["-c", &script]).final_steps(list([Step::Undumpable, step(space)]));
        let mut child = command.spawn().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(status));
        assert_eq!(child.has_full_space(), is_full, "{status} {space:?}");
    }

    let error = second("").final_steps(list([Step::Chdir { path: c"/no/such" }])).status().unwrap_err();
    assert_eq!(error.to_string(), "cwd /no/such: No such file or directory (os error 2)");
}

#[test]
fn setdomainname() {
    needs_namespaces!();
    let mut command = Command::new("cat");
    with_privileges(&mut command).arg("/proc/sys/kernel/domainname");
    command.final_steps(list([Step::Setdomainname { name: b"a-domain" }]));
    assert_eq!(command.output().unwrap().stdout, b"a-domain\n");
}

#[test]
fn loopback_up() {
    needs_namespaces!();
    let ports = |steps: &'static [Step<'static>]| {
        observe(|command| {
            own_root(command).new_namespaces(Namespaces::NET).final_steps(|writer| {
                steps.iter().for_each(|step| writer.push(*step));
                Ok(())
            })
        })
    };
    // An interface that is up has an address, and an address has a route.
    let local = |observed: &Observed| observed.file("net/fib_trie").contains("127.0.0.1");
    assert!(!local(&ports(&[])));
    assert!(local(&ports(&[Step::LoopbackUp])));
}

#[test]
fn request() {
    // A command that does not need a channel has none.
    let alone = Step::Request { what: Request::IdMaps };
    let error = Command::new("true").step(alone).status().unwrap_err();
    assert_eq!((error.act(), error.reason()), ("request id-maps", Reason::Errno(Errno::NOTCONN)));

    // A map of more than one id.
    needs_root!();
    let map = [IdMap { inside: 0, outside: 0, count: 2 }];
    let observed = observe(|command| command.new_namespaces(Namespaces::USER).uid_map(&map).gid_map(&map));
    let words = |file: &str| observed.file(file).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!((words("uid_map"), words("gid_map")), ("0 0 2".into(), "0 0 2".into()));
}

// System calls besides the steps.

#[test]
fn child_makes_only_the_system_calls_of_its_steps() {
    needs_namespaces!();
    let map = |file, own| format!(r#"write /proc/self/{file} "0 {own} 1\n""#);
    for returns in ["at-once", "when-released"] {
        let Some((listing, calls)) = traced(returns) else { skip!("needs strace and permission to trace") };
        let wanted = [
            ("signal 13 default", "rt_sigaction"),
            ("setsid", "setsid"),
            (&*map("uid_map", geteuid().as_raw()), "openat write close"),
            (r#"write /proc/self/setgroups "deny""#, "openat write close"),
            (&*map("gid_map", getegid().as_raw()), "openat write close"),
            (r#"hostname "traced""#, "sethostname"),
            ("rlimit core 0 0", "prlimit64"),
            ("nice 1", "setpriority"),
            ("umask 077", "umask"),
            ("uid 0", "setresuid"),
            ("parent-death-signal 9", "prctl getppid"),
            ("cwd /", "chdir"),
            ("r0 = open /dev/null", "openat"),
            ("r0 = dup r0 at least 3", "fcntl"),
            ("close-on-exec 3-2147483647", "close_range"),
            ("dup r0 -> 0", "dup3"),
            ("no-new-privileges", "prctl"),
            ("signal-mask 0x0", "rt_sigprocmask"),
            ("exec /bin/true", "execve"),
        ];
        let (lines, names): (Vec<_>, Vec<_>) = wanted.into_iter().unzip();
        assert_eq!(listing, lines);
        let names: Vec<_> = names.iter().flat_map(|names| names.split(' ')).collect();
        assert_eq!(calls, names, "{returns}");
    }
}

/// Returns the listing of the guest's command, and the system calls that its child makes until exec.
fn traced(returns: &str) -> Option<(Vec<String>, Vec<String>)> {
    let dir = Dir::new();
    let trace = dir.join("trace");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-o"]).arg(&trace).args([support::GUEST, "traced", returns]);
    let output = strace.output().ok().filter(|output| output.status.success())?;
    let listing = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    // Each line begins with a pid; that of the first line is the guest's.
    let trace = fs::read_to_string(trace).unwrap();
    let lines = trace.lines().map(|line| line.split_once(' ').unwrap());
    let lines: Vec<_> = lines.map(|(pid, rest)| (pid, rest.trim_start())).collect();
    let child = lines.iter().filter(|(pid, _)| *pid != lines[0].0);
    // A call interrupted by another process has a second line, for its end.
    let calls = child.map(|(_, rest)| *rest).filter(|rest| !rest.starts_with("<..."));
    let names: Vec<_> = calls.map(|call| call.split('(').next().unwrap().to_owned()).collect();
    let exec = names.iter().position(|name| name == "execve").unwrap();
    Some((listing, names[..=exec].to_vec()))
}
