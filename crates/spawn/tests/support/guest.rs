//! Roles that tests start as separate processes. These roles end, are killed, need a single thread, or change
//! the process irreversibly.
//!
//! Each role writes its result to standard output, and the test checks it. A role that cannot do its part
//! panics, which no test accepts as success. Tests pass data on standard input.
//!
//! # Safety
//!
//! Two functions of libc are declared here with libc's signatures. `signal` gets a handler that stores to an
//! atomic. `prctl` reads a filter that lives for the call.

#![expect(clippy::disallowed_macros, reason = "a guest that cannot print fails its test")]
#![allow(unsafe_code, clippy::allow_attributes, reason = "signal handlers and seccomp filters")]

mod held;

use held::Held;
use husk_script::sys::mount::{
    AttributeChange, Extent, MountAttributes, MountPropagationFlags, mount_setattr, open_tree_clone,
};
use husk_script::sys::process::{prctl_get_dumpable, prctl_set_no_new_privs};
use husk_spawn::sys::Fd;
use husk_spawn::sys::process::Capabilities;
use husk_spawn::{
    Child, Command, Error, IdMap, Namespaces, Resource, Signal, Stdio, Step, forget_variables, run_from,
};
use rustix::process::{Pid, WaitId, WaitIdOptions, getegid, geteuid, kill_process_group, waitid};
use std::ffi::{c_int, c_ulong};
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ChildStdout;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, fs, io};

fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["outlived"] => outlived(),
        ["out-of-memory", "at-once", procs] => out_of_memory(procs, |command| command.spawn()),
        ["out-of-memory", "when-released", procs] => {
            out_of_memory(procs, |command| command.spawn_and_exec());
        }
        ["oom-score-adj", "at-once"] => oom_score_adj(|command| command.spawn()),
        ["oom-score-adj", "when-released"] => oom_score_adj(|command| command.spawn_and_exec()),
        ["dumpable"] => dumpable(&|command| command.uid(1)),
        ["dumpable-without-capabilities"] => dumpable(&|command| {
            let capabilities = Capabilities { effective: 0, permitted: 0, inheritable: 0 };
            command.step(Step::Capset { capabilities })
        }),
        ["dumpable-in-new-user-namespace"] => {
            let own = |outside| [IdMap { inside: 0, outside, count: 1 }];
            let (uids, gids) = (own(geteuid().as_raw()), own(getegid().as_raw()));
            dumpable(&|command| command.new_namespaces(Namespaces::USER).uid_map(&uids).gid_map(&gids));
        }
        ["dumpable-in-joined-user-namespace"] => {
            dumpable(&|command| command.join(handed_over(), Namespaces::USER))
        }
        ["dumpable-after-drop"] => dumpable_after_drop(),
        ["join-time"] => join_time(),
        ["foreground"] => foreground(),
        ["traced", "at-once"] => traced(|command| command.spawn()),
        ["traced", "when-released"] => traced(|command| command.spawn_and_exec()),
        ["handlers"] => handlers(),
        ["handlers-without-clone3"] => {
            refuse_clone3();
            handlers();
        }
        ["from-another-mount"] => from_another_mount(),
        ["kill-group"] => kill_group(),
        ["killed-while-asked"] => killed_while_asked(),
        ["time-without-clone3"] => {
            refuse_clone3();
            println!("{:?}", Command::new("true").new_namespaces(Namespaces::TIME).status().map_err(text));
        }
        _ => panic!("no such role: {arguments:?}"),
    }
}

/// Exits while its child waits for the test.
fn outlived() {
    let child = Command::new("echo").arg("outlived").step(Step::Await { fd: Fd::STDIN.into() }).spawn();
    println!("{}", child.expect("a child").id());
}

/// Starts a child that moves to the cgroup of the file `procs`, and asks for more memory than its limit.
fn out_of_memory(procs: &str, start: impl FnOnce(&Command) -> Result<Child, Error>) {
    let procs = procs.to_owned();
    let mut command = Command::new("/bin/true");
    // Less than a quarter of the stack limit, the most that exec accepts (execve(2)).
    command.args((0..12).map(|_| "x".repeat(100_000)));
    command.steps(move |writer| {
        let path = writer.text(&procs)?;
        writer.push(Step::WriteFile { path, bytes: b"0", tolerate: None });
        Ok(())
    });
    let ended = start(&command).and_then(|mut child| child.wait());
    println!("{:?}", ended.map_err(text));
}

/// Starts a child that the OOM killer would prefer, and prints the resulting score of this process.
fn oom_score_adj(start: impl FnOnce(&Command) -> Result<Child, Error>) {
    let path = c"/proc/self/oom_score_adj";
    let mut command = Command::new("cat");
    command.arg("/proc/self/oom_score_adj").step(Step::WriteFile { path, bytes: b"777", tolerate: None });
    start(&command).expect("a child").wait().expect("exit status");
    print!("{}", fs::read_to_string("/proc/self/oom_score_adj").expect("a file of /proc/self"));
}

/// Prints which processes may read this one's memory before, while and after a child has another identity.
fn dumpable(set: &dyn Fn(&mut Command) -> &mut Command) {
    println!("{:?}", prctl_get_dumpable().expect("before"));
    let mut command = Command::new("true");
    let held = Held::before_exec(&mut command);
    let mut child = set(&mut command).spawn().expect("a child");
    held.wait(&child);
    println!("{:?}", prctl_get_dumpable().expect("dumpability"));
    held.release();
    child.wait().expect("exit status");
    println!("{:?}", prctl_get_dumpable().expect("after"));
}

/// Like `dumpable`, but drops the child without waiting, and starts another later.
fn dumpable_after_drop() {
    let mut command = Command::new("true");
    let held = Held::before_exec(&mut command);
    let child = command.uid(1).spawn().expect("a child");
    held.wait(&child);
    let pidfd = child.as_fd().try_clone_to_owned().expect("its pidfd");
    drop(child);
    println!("{:?}", prctl_get_dumpable().expect("dumpability"));
    // The memory of this child is reused before that of the first.
    Command::new("true").status().expect("another child");
    held.release();
    waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED).expect("exit status");
    Command::new("true").status().expect("a third child");
    println!("{:?}", prctl_get_dumpable().expect("after"));
}

/// Maps this program from a read-only mount.
fn from_another_mount() {
    static CHANGED: AtomicBool = AtomicBool::new(true);
    CHANGED.store(false, Ordering::Relaxed);
    forget_variables(|name| name == "KEPT").expect("this process has one thread");
    let environment = fs::read("/proc/self/environ").expect("environment");
    println!("{:?}", String::from_utf8_lossy(&environment).trim_matches('\0'));
    println!("{:?}", env::vars().collect::<Vec<_>>());

    let own = fs::read_link("/proc/self/exe").expect("own path");
    let mount = open_tree_clone(c"/proc/self/exe", Extent::Top).expect("a copy of the mount");
    let read_only = AttributeChange::set(MountAttributes::RDONLY);
    mount_setattr(mount, Extent::Top, read_only, MountPropagationFlags::empty()).expect("a read-only mount");
    let file = fs::File::open(format!("/proc/self/fd/{}", mount.number())).expect("this program");
    let (threads, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || ended.recv());
    println!("{:?} with a thread", run_from(&file));
    drop(threads);
    thread.join().expect("a thread that ends").expect_err("a closed channel");
    println!("{:?} for another file", run_from(fs::File::open("/bin/true").expect("a file")));
    let mapped =
        || fs::read_to_string("/proc/self/maps").expect("mappings").contains(&*own.to_string_lossy());
    println!("mapped: {}", mapped());

    println!("{:?}", run_from(file));
    println!("mapped: {}", mapped());
    let written = fs::OpenOptions::new().write(true).truncate(true).open("/proc/self/exe");
    println!("{:?}", written.expect_err("a read-only mount").kind());
    println!("changed: {}", CHANGED.load(Ordering::Relaxed));
    println!("{:?}", Command::new("/bin/true").status().map_err(text));
}

/// Starts a child in another process's time namespace.
fn join_time() {
    let own = || fs::read_link("/proc/self/ns/time").expect("own time namespace");
    println!("{}", own().display());
    let joined =
        Command::new("readlink").arg("/proc/self/ns/time").join(handed_over(), Namespaces::TIME).output();
    print!("{}", String::from_utf8_lossy(&joined.expect("a child in the namespace").stdout));
    println!("{}", own().display());
}

/// Starts a child with many kinds of steps, for a tracer to watch.
fn traced(start: impl FnOnce(&Command) -> Result<Child, Error>) {
    let own = |outside| [IdMap { inside: 0, outside, count: 1 }];
    let mut command = Command::new("/bin/true");
    command
        .new_session()
        .new_namespaces(Namespaces::USER | Namespaces::UTS)
        .uid_map(&own(geteuid().as_raw()))
        .gid_map(&own(getegid().as_raw()))
        .hostname("traced")
        .rlimit(Resource::Core, Some(0), Some(0))
        .nice(1)
        .umask(0o077)
        .uid(0)
        .parent_death_signal(Signal::KILL)
        .current_dir("/")
        .stdin(Stdio::null())
        .no_new_privs();
    command.listing().expect("its steps").iter().for_each(|line| println!("{line}"));
    start(&command).expect("a child").wait().expect("exit status");
}

/// Starts a child that brings itself to the foreground of this session's terminal.
fn foreground() {
    let group = || {
        let stat = fs::read_to_string("/proc/self/stat").expect("a file of /proc/self");
        let (_, rest) = stat.rsplit_once(") ").expect("a name in brackets");
        rest.split(' ').nth(5).expect("the terminal's foreground group").parse::<u32>().expect("a number")
    };
    let before = group();
    let mut command = Command::new("true");
    let held = Held::before_exec(&mut command);
    let mut child = command.process_group(0).foreground().spawn().expect("a child");
    held.wait(&child);
    let after = group();
    held.release();
    child.wait().expect("exit status");
    assert_eq!((before, after), (std::process::id(), child.id()));
    println!("from its own group to the child's");
}

/// Sends a signal that this process handles to a child between clone and exec.
fn handlers() {
    static HANDLED: AtomicBool = AtomicBool::new(false);
    extern "C" fn handle(_: c_int) {
        HANDLED.store(true, Ordering::SeqCst);
    }
    // SAFETY: the handler only stores to an atomic, so it may run at any time.
    unsafe { signal(Signal::USR1.number(), handle) };
    let mut command = Command::new("true");
    let held = Held::before_exec(&mut command);
    let mut child = command.spawn().expect("a child");
    held.wait(&child);
    child.signal(Signal::USR1).expect("a signal");
    held.release();
    println!("{:?}", child.wait().map_err(text));
    println!("{:?}", HANDLED.load(Ordering::SeqCst));
}

/// Kills process groups whose leaders run or have ended, and prints what happens.
fn kill_group() {
    let start = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a child");
        let mut stdout = child.stdout.take().expect("a pipe");
        stdout.read_exact(&mut [0]).expect("a descendant");
        (child, stdout)
    };
    let ends = |mut stdout: ChildStdout| stdout.read(&mut [0]).expect("a pipe") == 0;

    let (mut child, stdout) = start("(echo; exec sleep 1000) & wait");
    println!("{:?}", child.kill_group().map_err(text));
    println!("{:?} {}", child.wait().map(|status| status.signal()).map_err(text), ends(stdout));

    let (mut child, stdout) = start("(echo; exec sleep 1000) &");
    println!("{:?}", child.wait().map(|status| status.code()).map_err(text));
    let killed = child.kill_group();
    let is_killed = killed.is_ok();
    println!("{:?}", killed.map_err(text).map_err(|error| error.replace(&child.id().to_string(), "PID")));
    if is_killed {
        println!("{}", ends(stdout));
        println!("{:?}", child.kill_group().and_then(|()| child.signal_group(Signal::TERM)).map_err(text));
    } else {
        let group = Pid::from_raw(child.id().cast_signed()).expect("a pid");
        kill_process_group(group, rustix::process::Signal::KILL).expect("the descendant");
    }
}

/// Starts a child and is killed when it would tell the child that the ids are mapped.
fn killed_while_asked() {
    const SENDTO: u32 = if cfg!(target_arch = "x86_64") { 44 } else { 206 };
    const KILL_PROCESS: u32 = 0x8000_0000;
    filter(SENDTO, KILL_PROCESS);
    let map = [IdMap { inside: 0, outside: 0, count: 2 }];
    Command::new("true").new_namespaces(Namespaces::USER).uid_map(&map).spawn().expect("never");
}

/// Makes the kernel answer `clone3` with ENOSYS from now on, as container engines do.
fn refuse_clone3() {
    const CLONE3: u32 = 435;
    const ERRNO_NOSYS: u32 = 0x0005_0000 | 38;
    filter(CLONE3, ERRNO_NOSYS);
}

/// Makes the kernel take `action` on the system call `number` from now on, and allow all others.
fn filter(number: u32, action: u32) {
    let filter = [
        // BPF_LD | BPF_W | BPF_ABS: the system call number, the first word of `struct seccomp_data`.
        SockFilter { code: 0x20, jump_true: 0, jump_false: 0, operand: 0 },
        // BPF_JMP | BPF_JEQ | BPF_K.
        SockFilter { code: 0x15, jump_true: 0, jump_false: 1, operand: number },
        // BPF_RET | BPF_K: the action, or SECCOMP_RET_ALLOW.
        SockFilter { code: 0x06, jump_true: 0, jump_false: 0, operand: action },
        SockFilter { code: 0x06, jump_true: 0, jump_false: 0, operand: 0x7fff_0000 },
    ];
    let program = Filter { length: 4, instructions: filter.as_ptr() };
    prctl_set_no_new_privs().expect("no_new_privs");
    const PR_SET_SECCOMP: c_int = 22;
    const SECCOMP_MODE_FILTER: c_ulong = 2;
    // SAFETY: the kernel reads exactly as many instructions as `program` says.
    let refused = unsafe { prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &raw const program, 0, 0) };
    assert_eq!(refused, 0, "{}", io::Error::last_os_error());
}

/// `struct sock_filter`.
#[repr(C)]
struct SockFilter {
    code: u16,
    jump_true: u8,
    jump_false: u8,
    operand: u32,
}

/// `struct sock_fprog`.
#[repr(C)]
struct Filter {
    length: u16,
    instructions: *const SockFilter,
}

// SAFETY: libc defines both. `signal` takes and returns a handler, which has the size of a `usize`. `prctl`
// is variadic; on the supported architectures a call with these five words passes them in the same registers.
unsafe extern "C" {
    fn signal(number: c_int, handler: extern "C" fn(c_int)) -> usize;
    fn prctl(option: c_int, mode: c_ulong, filter: *const Filter, _: c_ulong, _: c_ulong) -> c_int;
}

fn text(error: Error) -> String {
    error.to_string()
}

fn handed_over() -> OwnedFd {
    io::stdin().as_fd().try_clone_to_owned().expect("standard input")
}
