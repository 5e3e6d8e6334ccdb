//! Kernel behaviour that the design depends on, one fact per test. If a kernel behaves differently, a test
//! here fails rather than a container.

mod support;

use husk_script::sys::clone::flags;
use husk_script::sys::signal::{SignalSet, rt_sigaction_ignore, rt_sigprocmask};
use husk_spawn::sys::{Errno, Fd};
use husk_spawn::{Command, Namespaces, Reason, Signal, Stdio, Step};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::write;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::thread::gettid;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::sync::mpsc;
use std::thread;
use support::{
    Cgroup, Held, guest, needs_namespaces, needs_root, needs_time_at_exec, observe, own_root, skip,
    until_asleep,
};

// Facts about shared memory.

#[test]
fn child_outlives_the_parent_whose_memory_it_shares() {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let mut parent = guest("outlived").stdin(reader).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(parent.stdout.take().unwrap());
    assert!(parent.wait().unwrap().success());

    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let program = fs::read_link(format!("/proc/{}/exe", line.trim())).unwrap();
    assert_eq!(program, fs::canonicalize(support::GUEST).unwrap(), "the child has not execed");

    write(&writer, b".").unwrap();
    line.clear();
    said.read_to_string(&mut line).unwrap();
    assert_eq!(line, "outlived\n");
}

#[test]
fn program_runs_on_from_another_mount() {
    needs_namespaces!();
    let mut command = guest("from-another-mount");
    let command = own_root(&mut command).new_namespaces(Namespaces::MOUNT);
    let output = command.env("KEPT", "1").env("SECRET", "2").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        said.lines().collect::<Vec<_>>(),
        [
            r#""KEPT=1""#,
            r#"[("KEPT", "1")]"#,
            "Err(Os { code: 22, kind: InvalidInput, message: \"Invalid argument\" }) with a thread",
            "Err(Os { code: 22, kind: InvalidInput, message: \"Invalid argument\" }) for another file",
            "mapped: true",
            "Ok(())",
            "mapped: false",
            "ReadOnlyFilesystem",
            "changed: false",
            "Ok(ExitStatus(unix_wait_status(0)))",
        ],
        "{output:?}"
    );
}

#[test]
fn child_does_not_wait_for_a_dead_parent() {
    needs_root!();
    // The child also holds this standard output, so reading would not end if the child did not.
    let output = guest("killed-while-asked").output().unwrap();
    assert_eq!(output.status.signal(), Some(Signal::SYS.number()), "{output:?}");
}

#[test]
fn exec_releases_the_memory_and_then_closes_descriptors() {
    let mut command = Command::new("true");
    let held = Held::before_exec(&mut command);
    let mut child = command.notify_release().kill_on_drop().spawn().unwrap();
    held.wait(&child);
    assert!(!child.is_released());
    assert!(!is_at_end(child.release_fd().unwrap(), Some(&Timespec::default())));

    held.release();
    assert!(is_at_end(child.release_fd().unwrap(), None));
    // The word changes before the descriptor, so a caller that waited for the descriptor finds it already
    // changed.
    assert!(child.is_released());
    child.wait_for_exec().unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn exec_wakes_threads_that_wait_for_the_memory() {
    let mut command = Command::new("true");
    let held = Held::before_exec(&mut command);
    let mut child = command.kill_on_drop().spawn().unwrap();
    held.wait(&child);
    let (waiter, waiters) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            waiter.send(gettid()).unwrap();
            child.wait_for_exec().unwrap();
            assert!(child.is_released());
        });
        // Until it sleeps, which means that it waits for the child.
        until_asleep(&format!("/proc/self/task/{}", waiters.recv().unwrap().as_raw_pid()));
        held.release();
    });
}

#[test]
fn exit_releases_the_memory_and_then_closes_descriptors() {
    let mut command = Command::new("true");
    let held = Held::before_exec(&mut command);
    let mut child = command.notify_release().kill_on_drop().spawn().unwrap();
    held.wait(&child);
    child.kill().unwrap();
    assert!(is_at_end(child.release_fd().unwrap(), None));
    assert!(child.is_released());
    let error = child.wait_for_exec().unwrap_err();
    assert!(matches!(error.reason(), Reason::Died(status) if status.signal() == Some(9)), "{error}");
}

fn is_at_end(fd: impl std::os::fd::AsFd, timeout: Option<&Timespec>) -> bool {
    let mut polled = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut polled, timeout).unwrap();
    polled[0].revents().contains(PollFlags::HUP)
}

#[test]
fn oom_killer_also_kills_the_parent_that_shares_memory() {
    let Some(cgroup) = Cgroup::memory(256 << 10) else { skip!("needs a memory cgroup of its own") };
    let output = guest("out-of-memory").args(["at-once", &cgroup.procs()]).output().unwrap();
    // Only the child is in that cgroup, but until exec it uses the parent's memory. The kernel kills every
    // process that shares its victim's memory (mm/oom_kill.c, `__oom_kill_process`).
    assert_eq!(output.status.signal(), Some(9), "{output:?}");
}

#[test]
fn oom_killer_spares_a_parent_that_waits_for_exec() {
    let Some(cgroup) = Cgroup::memory(256 << 10) else { skip!("needs a memory cgroup of its own") };
    let output = guest("out-of-memory").args(["when-released", &cgroup.procs()]).output().unwrap();
    // The kernel does not select a child of CLONE_VFORK (mm/oom_kill.c, `oom_badness`, `in_vfork`). Exec
    // fails instead, because it cannot copy the arguments.
    assert_eq!(text(&output.stdout), "Err(\"exec /bin/true: Argument list too long (os error 7)\")\n");
}

#[test]
fn child_changes_oom_score_adj_of_its_parent() {
    let output = guest("oom-score-adj").arg("at-once").output().unwrap();
    // The value belongs to the memory, whichever processes share it (fs/proc/base.c, `__set_oom_adj`).
    assert_eq!(text(&output.stdout), "777\n777\n");
}

#[test]
fn child_does_not_change_oom_score_adj_of_a_parent_that_waits_for_exec() {
    let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    let output = guest("oom-score-adj").arg("when-released").output().unwrap();
    assert_eq!(text(&output.stdout), format!("777\n{own}"));
}

// Dumpability.

/// Returns the processes that may read memory after its identity has changed (fs.suid_dumpable).
fn after_change() -> &'static str {
    match fs::read_to_string("/proc/sys/fs/suid_dumpable").unwrap().trim() {
        "0" => "No",
        "1" => "Yes",
        _ => "Root",
    }
}

#[test]
fn child_with_another_identity_makes_shared_memory_undumpable_until_exec() {
    needs_root!();
    let said = guest("dumpable").output().unwrap().stdout;
    assert_eq!(text(&said), format!("Yes\n{}\nYes\n", after_change()));
}

#[test]
fn less_privileged_child_of_root_makes_shared_memory_undumpable() {
    needs_root!();
    // Neither changes an id, so the kernel does not change dumpability.
    for weaker in ["dumpable-without-capabilities", "dumpable-in-new-user-namespace"] {
        let said = guest(weaker).output().unwrap().stdout;
        assert_eq!(text(&said), "Yes\nNo\nYes\n", "{weaker}");
    }
}

#[test]
fn child_that_joins_a_foreign_user_namespace_makes_shared_memory_undumpable() {
    needs_root!();
    let other = observe(|command| {
        command.uid(1).final_steps(|writer| {
            writer.push(Step::Unshare { namespaces: Namespaces::USER });
            Ok(())
        })
    });
    let namespace = File::open(format!("/proc/{}/ns/user", other.child.id())).unwrap();
    let said = guest("dumpable-in-joined-user-namespace").stdin(namespace).output().unwrap().stdout;
    assert_eq!(text(&said), format!("Yes\n{}\nYes\n", after_change()));
}

#[test]
fn memory_is_dumpable_again_after_a_dropped_child() {
    needs_root!();
    let said = guest("dumpable-after-drop").output().unwrap().stdout;
    assert_eq!(text(&said), format!("{}\nYes\n", after_change()));
}

// Namespaces.

/// Returns the namespaces of a process that differ from this one's, by their names in `/proc/PID/ns`.
fn others(id: u32) -> Vec<&'static str> {
    let link = |process: &str, name: &str| fs::read_link(format!("/proc/{process}/ns/{name}")).unwrap();
    let names = Namespaces::NAMES.map(|(_, name)| name);
    names.into_iter().filter(|name| link(&id.to_string(), name) != link("thread-self", name)).collect()
}

#[test]
fn child_sharing_memory_can_start_in_all_eight_namespaces() {
    needs_namespaces!();
    needs_time_at_exec!();
    // The child is made with CLONE_VFORK.
    let observed = observe(|command| command.new_namespaces(Namespaces::ALL));
    let eight = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"];
    assert_eq!(others(observed.child.id()), eight);

    // The child is made without CLONE_VFORK.
    let mut command = Command::new("true");
    let held = Held::before_exec(&mut command);
    let mut child = command.new_namespaces(Namespaces::ALL).kill_on_drop().spawn().unwrap();
    held.wait(&child);
    // The clock page is part of the memory. So the child enters the time namespace only once it has its own
    // memory (kernel/nsproxy.c, `exec_task_namespaces`).
    assert_eq!(others(child.id()), &eight[..7]);
    let for_children = fs::read_link(format!("/proc/{}/ns/time_for_children", child.id())).unwrap();
    assert_ne!(for_children, fs::read_link("/proc/self/ns/time").unwrap());
    held.release();
    assert!(child.wait().unwrap().success());
}

#[test]
fn child_sharing_memory_can_unshare_user_mount_and_time_namespaces() {
    needs_namespaces!();
    needs_time_at_exec!();
    let namespaces = Namespaces::USER | Namespaces::MOUNT | Namespaces::TIME;
    let observed = observe(|command| command.step(Step::Unshare { namespaces }));
    assert_eq!(others(observed.child.id()), ["user", "mnt", "time"]);
}

#[test]
fn child_sharing_memory_cannot_join_a_time_namespace() {
    needs_namespaces!();
    let other = observe(|command| command.new_namespaces(Namespaces::USER | Namespaces::TIME));
    let namespace = File::open(format!("/proc/{}/ns/time", other.child.id())).unwrap();
    let step = Step::Setns { fd: Fd::of(&namespace).into(), namespaces: Namespaces::TIME };
    let error = Command::new("true").step(step).status().unwrap_err();
    assert_eq!(error.reason(), Reason::Errno(Errno::USERS), "{error}");
}

#[test]
fn single_threaded_parent_joins_a_time_namespace_for_its_child() {
    needs_root!();
    needs_time_at_exec!();
    let other = observe(|command| command.new_namespaces(Namespaces::TIME));
    let namespace = File::open(format!("/proc/{}/ns/time", other.child.id())).unwrap();
    let said = guest("join-time").stdin(namespace).output().unwrap().stdout;
    let own = fs::read_link("/proc/self/ns/time").unwrap();
    let (own, others) = (own.display(), other.link("ns/time"));
    assert_eq!(text(&said), format!("{own}\n{}\n{own}\n", others.display()));
}

#[test]
fn multithreaded_parent_cannot_join_a_time_namespace() {
    needs_root!();
    // The test harness has several threads, and so is such a parent.
    let other = observe(|command| command.new_namespaces(Namespaces::TIME));
    let namespace = File::open(format!("/proc/{}/ns/time", other.child.id())).unwrap();
    let error = Command::new("true").join(namespace, Namespaces::TIME).status().unwrap_err();
    assert_eq!((error.act(), error.reason()), ("join time", Reason::Errno(Errno::USERS)));
}

// Clone.

#[test]
fn flags_of_clone3_keep_their_upper_bits() {
    assert_eq!(flags::CLEAR_SIGHAND, 1 << 32);
    assert_eq!(flags::INTO_CGROUP, 1 << 33);
}

#[test]
fn child_starts_in_the_given_cgroup() {
    let Some(cgroup) = Cgroup::unified() else { skip!("needs a writable cgroup2 tree") };
    let observed = observe(|command| command.cgroup(cgroup.open()));
    let cgroups = observed.file("cgroup");
    let unified = cgroups.lines().find_map(|line| line.strip_prefix("0::")).unwrap();
    assert_eq!(unified.rsplit('/').next(), Some(cgroup.name()));
    drop(observed);
}

#[test]
fn new_cgroup_namespace_is_rooted_at_the_childs_cgroup() {
    needs_root!();
    let Some(cgroup) = Cgroup::unified() else { skip!("needs a writable cgroup2 tree") };
    let mut cat = Command::new("cat");
    cat.arg("/proc/self/cgroup").cgroup(cgroup.open()).new_namespaces(Namespaces::CGROUP);
    let seen = String::from_utf8(cat.output().unwrap().stdout).unwrap();
    let unified = seen.lines().find_map(|line| line.strip_prefix("0::")).unwrap();
    assert_eq!(unified, "/");
}

#[test]
fn child_gets_the_chosen_pids() {
    needs_root!();
    let free = free_pid();
    let init = observe(|command| command.new_namespaces(Namespaces::PID).pids(&[1, free]));
    assert_eq!(init.child.id(), free.unsigned_abs());
    assert_eq!(init.status("NSpid"), format!("{free} 1"));
}

/// Returns the pid of a process that has ended. The kernel reuses it only after all other pids.
fn free_pid() -> i32 {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id().cast_signed()
}

#[test]
fn signal_handler_never_runs_in_a_child() {
    let said = guest("handlers").output().unwrap().stdout;
    assert_eq!(text(&said), "Err(\"signal-mask 0x0: killed by signal 10 before exec\")\nfalse\n");
}

#[test]
fn signal_handler_never_runs_in_a_child_without_clone3() {
    let said = guest("handlers-without-clone3").output().unwrap().stdout;
    assert_eq!(text(&said), "Err(\"signal-mask 0x0: killed by signal 10 before exec\")\nfalse\n");
}

#[test]
fn feature_that_needs_clone3_is_an_error_without_it() {
    let said = guest("time-without-clone3").output().unwrap().stdout;
    assert_eq!(text(&said), "Err(\"clone with new time: Function not implemented (os error 38)\")\n");
}

// Signals.

#[test]
fn ignored_signals_stay_ignored_except_sigpipe() {
    rt_sigaction_ignore(Signal::USR2).unwrap();
    let ignored = |status: &str| u64::from_str_radix(status, 16).unwrap();
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let own = ignored(own.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap());
    let pipe = SignalSet::EMPTY.with(Signal::PIPE).bits();
    assert_eq!(own & pipe, pipe);

    let childs = ignored(&observe(|command| command).status("SigIgn"));
    assert_eq!(childs, own & !pipe);
    assert_ne!(childs & SignalSet::EMPTY.with(Signal::USR2).bits(), 0);

    let childs = ignored(&observe(|command| command.ignore_signal(Signal::PIPE)).status("SigIgn"));
    assert_eq!(childs, own);
}

#[test]
fn blocked_signals_are_not_inherited() {
    let before = rt_sigprocmask(SignalSet::EMPTY.with(Signal::USR1)).unwrap();
    let childs = observe(|command| command).status("SigBlk");
    let ours = rt_sigprocmask(before).unwrap();
    assert_eq!(childs, "0000000000000000");
    assert_eq!(ours, SignalSet::EMPTY.with(Signal::USR1), "the parent's mask is unchanged");
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
