//! Tests lists that a second process continues, and how both processes end.

mod support;

use husk_script::Handle;
use husk_spawn::sys::file::{Mode, OFlags};
use husk_spawn::sys::{Errno, Fd};
use husk_spawn::{Command, Namespaces, Reason, Reg, Request, Signal, Step};
use rustix::io::read;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use support::{Held, Observed, is_root, needs_namespaces, needs_root, observe, own_root};

const R0: Reg = Reg::new(0).unwrap();

/// Continues in a second process, in the same namespaces.
const ON: Step<'static> = Step::CloneParent { namespaces: Namespaces::EMPTY };

/// Returns a command whose list ends with these steps.
fn ending(program: &str, steps: &'static [Step<'static>]) -> Command {
    let mut command = Command::new(program);
    command.notify_release().final_steps(move |writer| {
        steps.iter().for_each(|step| writer.push(*step));
        Ok(())
    });
    command
}

/// Starts such a program and holds it after exec.
fn after(steps: &'static [Step<'static>]) -> Observed {
    observe(|command| {
        command.notify_release().final_steps(move |writer| {
            steps.iter().for_each(|step| writer.push(*step));
            Ok(())
        })
    })
}

#[test]
fn steps_continue_with_their_registers_in_a_second_child() {
    const OPEN: Step<'_> =
        Step::Open { path: c"/dev/zero", flags: OFlags::RDONLY, mode: Mode::empty(), out: R0 };
    const FD: Fd = Fd::new(509).unwrap();
    const FROM: Handle = Handle::Register(R0);
    let observed = after(&[Step::Setsid, OPEN, ON, Step::Dup3 { from: FROM, to: FD }]);
    assert_eq!(observed.fds()[&509], PathBuf::from("/dev/zero"));
    assert_eq!(observed.link("exe"), observed.program(), "the child is the one that execed");
    assert_eq!(observed.stat(4), i64::from(std::process::id()), "wrong parent");
    // Its session is that of the first process, which has ended and been waited for.
    let first = observed.stat(6);
    assert_ne!(first, i64::from(observed.child.id()));
    assert!(!PathBuf::from(format!("/proc/{first}")).exists());
}

#[test]
fn steps_can_change_processes_twice() {
    let observed = after(&[ON, ON]);
    assert_eq!(observed.link("exe"), observed.program());
    let error = ending("true", &[ON, ON, ON]).status().unwrap_err();
    assert_eq!((error.act(), error.reason()), ("clone-parent", Reason::Errno(Errno::TOOMANYREFS)));
}

#[test]
fn second_process_is_the_first_of_a_new_pid_namespace() {
    needs_root!();
    let observed = after(&[Step::CloneParent { namespaces: Namespaces::PID }]);
    assert_eq!(observed.status("NSpid"), format!("{} 1", observed.child.id()));
    // `clone` has no flag bit left for time namespaces.
    let error = ending("true", &[Step::CloneParent { namespaces: Namespaces::TIME }]).status().unwrap_err();
    assert_eq!(error.reason(), Reason::Errno(Errno::INVAL));
}

#[test]
fn child_ends_with_the_status_of_the_second_process() {
    let status = ending("false", &[ON]).status().unwrap();
    assert_eq!(status.code(), Some(1));
    let mut child = ending("true", &[ON, ON]).spawn().unwrap();
    assert!(child.wait().unwrap().success());
    assert!(child.try_wait().unwrap().is_some_and(|status| status.success()));
}

#[test]
fn failures_before_and_after_the_change_are_reported_alike() {
    const NOWHERE: Step<'_> = Step::Chdir { path: c"/no/such" };
    for steps in [&[NOWHERE, ON][..], &[ON, NOWHERE], &[ON, ON, NOWHERE]] {
        for error in [
            ending("true", steps).status().unwrap_err(),
            ending("true", steps).spawn_and_exec().unwrap_err(),
            ending("true", steps).spawn().unwrap().wait_for_exec().unwrap_err(),
        ] {
            assert_eq!(error.to_string(), "cwd /no/such: No such file or directory (os error 2)");
        }
    }
    let error = ending("/no/such", &[ON]).spawn_and_exec().unwrap_err();
    assert_eq!(error.to_string(), "exec /no/such: No such file or directory (os error 2)");
}

#[test]
fn killed_child_leaves_no_process() {
    // How many times the list changes processes before it is held, and how many after.
    for (before, after) in [(0, 1), (1, 0), (1, 1), (2, 0)] {
        for waited_for in [true, false] {
            let (here, say) = pipe_with(PipeFlags::CLOEXEC).unwrap();
            let (forever, ours) = pipe_with(PipeFlags::CLOEXEC).unwrap();
            let [fd, forever_fd, ours_fd] = [Fd::of(&say), Fd::of(&forever), Fd::of(&ours)];
            let mut command = Command::of_steps(move |writer| {
                writer.push(Step::Close { fd: ours_fd.into() });
                (0..before).for_each(|_| writer.push(ON));
                writer.push(Step::Write { fd: fd.into(), bytes: b"." });
                writer.push(Step::Await { fd: forever_fd.into() });
                (0..after).for_each(|_| writer.push(ON));
                Ok(())
            });
            let mut child = command.kill_on_drop().spawn().unwrap();
            drop(say);
            read(&here, &mut [0]).unwrap();
            if waited_for {
                child.kill().unwrap();
                let error = child.wait().unwrap_err();
                assert!(
                    matches!(error.reason(), Reason::Died(status) if status.signal() == Some(9)),
                    "{error}"
                );
                // The child has written, and may not have started waiting yet.
                assert!(error.step().is_some_and(|step| step > before && step <= before + 2), "{error}");
            }
            drop(child);
            // Every process of the list has a copy of the other end.
            assert_eq!(read(&here, &mut [0]).unwrap(), 0);
        }
    }
}

#[test]
fn process_with_its_own_memory_joins_and_creates_time_namespaces() {
    needs_namespaces!();
    // A process in shared memory cannot join it (see facts.rs).
    let other = observe(|command| own_root(command).new_namespaces(Namespaces::TIME));
    let [user, time] = ["user", "time"].map(|name| namespace(&other, name));
    let steps = [
        Step::Setns { fd: Fd::of(&user).into(), namespaces: Namespaces::USER },
        ON,
        Step::Setns { fd: Fd::of(&time).into(), namespaces: Namespaces::TIME },
    ];
    let joined = observe(|command| {
        command.notify_release().final_steps(move |writer| {
            steps.iter().for_each(|step| writer.push(*step));
            Ok(())
        })
    });
    assert_eq!(joined.link("ns/time"), other.link("ns/time"));

    // Holds the child before exec, which would enter the namespace in any case.
    let mut command = Command::new("true");
    own_root(&mut command).notify_release().kill_on_drop().final_steps(|writer| {
        writer.push(Step::Unshare { namespaces: Namespaces::TIME });
        writer.push(ON);
        Ok(())
    });
    let held = Held::before_exec(&mut command);
    let child = command.spawn().unwrap();
    held.wait(&child);
    let link = |name| fs::read_link(format!("/proc/{}/ns/{name}", child.id())).unwrap();
    assert_eq!(link("time"), link("time_for_children"));
    assert_ne!(link("time"), fs::read_link("/proc/self/ns/time").unwrap());
    held.release();
}

fn namespace(observed: &Observed, name: &str) -> File {
    File::open(format!("/proc/{}/ns/{name}", observed.child.id())).unwrap()
}

#[test]
fn user_namespace_can_be_joined_together_with_any_other() {
    needs_namespaces!();
    let all = Namespaces::ALL;
    let other = observe(|command| own_root(command).new_namespaces(all));
    let pidfd = || other.child.as_fd().try_clone_to_owned().unwrap();
    let names = |kinds: Namespaces| {
        let names = Namespaces::NAMES.into_iter().filter(move |(kind, _)| kinds.contains(*kind));
        names.map(|(_, name)| format!("ns/{name}"))
    };
    let own = |name: &str| fs::read_link(PathBuf::from("/proc/self").join(name)).unwrap();

    let inside = observe(|command| command.join(pidfd(), all));
    for name in names(all) {
        assert_eq!(inside.link(&name), other.link(&name));
    }
    assert_eq!(inside.child.id().to_string(), inside.status("NSpid").split(' ').next().unwrap());
    drop(inside);

    // New namespaces belong to the joined user namespace, so the program may do there what root may.
    let new = all.without(Namespaces::USER);
    let beside = observe(|command| {
        command.join(pidfd(), Namespaces::USER).new_namespaces(new).hostname("beside").uid(0)
    });
    assert_eq!(beside.link("ns/user"), other.link("ns/user"));
    for name in names(new) {
        assert_ne!(beside.link(&name), other.link(&name));
        assert_ne!(beside.link(&name), own(&name));
    }
    assert!(beside.status("NSpid").ends_with(" 1"));

    // Joins some kinds and creates others.
    let mixed = observe(|command| {
        command
            .join(pidfd(), Namespaces::USER | Namespaces::PID)
            .new_namespaces(Namespaces::NET)
            .new_session()
    });
    assert_eq!(mixed.link("ns/pid"), other.link("ns/pid"));
    assert_ne!(mixed.link("ns/net"), other.link("ns/net"));
    assert_eq!(mixed.stat(6), i64::from(mixed.child.id()), "the process leads its session");
}

#[test]
fn failure_in_a_joined_namespace_is_reported() {
    needs_namespaces!();
    let other = observe(|command| own_root(command).new_namespaces(Namespaces::PID));
    let mut command = Command::new("true");
    let pidfd = other.child.as_fd().try_clone_to_owned().unwrap();
    command.join(pidfd, Namespaces::USER | Namespaces::PID).current_dir("/no/such");
    for error in [command.spawn_and_exec().unwrap_err(), command.status().unwrap_err()] {
        assert_eq!(error.to_string(), "cwd /no/such: No such file or directory (os error 2)");
    }
}

/// A word of this process that a process in the container would want to change.
static LIVE: AtomicU64 = AtomicU64::new(0x5a5a);

/// Checks what a process that may trace the joining child finds in it. The child is held as soon as it is
/// visible.
fn seen_inside(kinds: Namespaces, other: &Observed) {
    let pipe = || pipe_with(PipeFlags::CLOEXEC).unwrap();
    let ((here, tells), (awaited, go_on)) = (pipe(), pipe());
    let (tells_at, awaited_at) = (Fd::new(60).unwrap(), Fd::new(61).unwrap());
    let pidfd = other.child.as_fd().try_clone_to_owned().unwrap();
    let _secret = File::open("/dev/null").unwrap();
    let mut command = Command::new("true");
    command.join(pidfd, kinds).fd(60, tells).fd(61, awaited).kill_on_drop();
    command.final_steps(move |writer| {
        writer.push(Step::Write { fd: tells_at.into(), bytes: b"." });
        writer.push(Step::Await { fd: awaited_at.into() });
        Ok(())
    });
    let mut child = command.spawn().unwrap();
    read(&here, &mut [0]).unwrap();
    let of = |name: &str| PathBuf::from(format!("/proc/{}/{name}", child.id()));
    assert_eq!(fs::read_link(of("ns/pid")).unwrap(), other.link("ns/pid"));

    let open = fs::read_dir(of("fd")).unwrap();
    let open: BTreeSet<i32> =
        open.map(|fd| fd.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
    let passed = BTreeSet::from([0, 1, 2, 60, 61]);
    let socket: Vec<_> =
        open.difference(&passed).map(|fd| fs::read_link(of(&format!("fd/{fd}"))).unwrap()).collect();
    assert!(passed.is_subset(&open), "{open:?}");
    assert!(is_socket(&socket), "{socket:?}");

    if !is_root() {
        // The `/proc` files of an undumpable process belong to root.
        assert_eq!(fs::metadata(of("environ")).unwrap().uid(), 0, "the process is dumpable");
    } else {
        let memory = File::options().write(true).open(of("mem")).unwrap();
        memory.write_all_at(&7_u64.to_ne_bytes(), LIVE.as_ptr().addr() as u64).unwrap();
        assert_eq!(LIVE.load(Ordering::Relaxed), 0x5a5a, "memory was shared");
    }
    drop(go_on);
    assert!(child.wait().unwrap().success());
}

fn is_socket(links: &[PathBuf]) -> bool {
    matches!(links, [one] if one.to_string_lossy().starts_with("socket:"))
}

#[test]
fn process_in_a_joined_pid_namespace_has_copied_memory_and_no_other_descriptors() {
    needs_root!();
    let kinds = Namespaces::PID | Namespaces::MOUNT;
    let other = observe(|command| command.new_namespaces(kinds));
    seen_inside(kinds, &other);
}

#[test]
fn process_in_a_joined_user_namespace_exposes_nothing_of_the_caller() {
    needs_namespaces!();
    let kinds = Namespaces::USER | Namespaces::PID | Namespaces::MOUNT;
    let other = observe(|command| own_root(command).new_namespaces(kinds));
    seen_inside(kinds, &other);
}

#[test]
fn child_that_dies_with_an_unread_answer_is_reported_as_killed() {
    let mut child = ending("true", &[Step::Request { what: Request::Hooks }]).spawn().unwrap();
    assert_eq!(child.next_request().unwrap(), Some(Request::Hooks));
    child.signal(Signal::STOP).unwrap();
    let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
    waitid(WaitId::PidFd(child.as_fd()), stopped).unwrap().unwrap();
    child.go_on().unwrap();
    child.kill().unwrap();
    assert_eq!(child.next_request().unwrap(), None);
    let error = child.wait_for_exec().unwrap_err();
    assert!(error.to_string().ends_with("killed by signal 9 before exec"), "{error}");
}
