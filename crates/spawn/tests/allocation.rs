//! Checks that a child allocates nothing in the memory it shares, whatever steps it performs.
//!
//! # Safety
//!
//! The allocator passes every call to the system's unchanged. One child is started by hand in order to
//! allocate. The thread that starts it is suspended meanwhile. So the child's changes to the heap and
//! thread-local storage are as if that thread made them.

#![allow(unsafe_code, clippy::allow_attributes, reason = "an allocator, and a child that allocates")]

mod support;

use core::ffi::c_void;
use husk_script::sys::clone::{CloneArgs, clone3, flags};
use husk_script::sys::process::exit_group;
use husk_script::sys::signal::{SignalSet, rt_sigprocmask};
use husk_spawn::{Command, IdMap, Namespaces, Resource, Signal, Stdio, Step};
use rustix::process::{WaitId, WaitIdOptions, getpid, waitid};
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use support::{has_namespaces, is_root, own_root, tell_skipped};

/// Counts calls from processes other than the first caller's.
struct Counting;

static OURSELVES: AtomicI32 = AtomicI32::new(0);
static FOREIGN: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static COUNTING: Counting = Counting;

impl Counting {
    fn count(&self) {
        // A system call, so it returns the caller's pid whatever memory the caller uses.
        let caller = getpid().as_raw_pid();
        let first = OURSELVES.compare_exchange(0, caller, Ordering::SeqCst, Ordering::SeqCst);
        if first.is_err_and(|ourselves| ourselves != caller) {
            FOREIGN.fetch_add(1, Ordering::SeqCst);
        }
    }
}

// SAFETY: the system's allocator meets the requirements.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.count();
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.count();
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.count();
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        self.count();
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[test]
fn child_never_allocates() {
    spawn_all_kinds();
    assert_eq!(FOREIGN.load(Ordering::SeqCst), 0);

    // Checks that an allocation would be counted.
    spawn_one_that_allocates();
    assert_eq!(FOREIGN.load(Ordering::SeqCst), 2, "one allocation and one deallocation");
}

fn spawn_all_kinds() {
    let plain = || Command::new("true");
    assert!(plain().status().unwrap().success());
    assert!(plain().spawn_and_exec().unwrap().wait().unwrap().success());
    assert!(plain().notify_release().status().unwrap().success());

    assert_eq!(Command::new("cat").output_with_input(b"piped").unwrap().stdout, b"piped");
    let mut many = plain();
    many.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    many.args((0..1000).map(|number| number.to_string())).env("NAME", "value").current_dir("/");
    many.new_session().umask(0o77).nice(1).no_new_privs().rlimit(Resource::Core, Some(0), Some(0));
    many.parent_death_signal(Signal::KILL).ignore_signal(Signal::HUP);
    assert!(many.status().unwrap().success());

    plain().step(Step::Chroot { path: c"/no/such" }).status().unwrap_err();
    plain().step(Step::Chroot { path: c"/no/such" }).spawn_and_exec().unwrap_err();
    Command::new("/no/such").status().unwrap_err();
    Command::new("/no/such").spawn_and_exec().unwrap_err();

    if has_namespaces() {
        let mut namespaces = plain();
        let kinds = Namespaces::PID | Namespaces::MOUNT | Namespaces::UTS | Namespaces::NET;
        own_root(&mut namespaces).new_namespaces(kinds).hostname("new").uid(0).gid(0);
        assert!(namespaces.status().unwrap().success());
    } else {
        tell_skipped(format_args!("a child in namespaces, which are not to be had"));
    }

    if is_root() {
        let two = [IdMap { inside: 0, outside: 0, count: 2 }];
        let mut mapped = plain();
        mapped.new_namespaces(Namespaces::USER).uid_map(&two).gid_map(&two).uid(1).gid(1).groups(&[1]);
        assert!(mapped.status().unwrap().success());
        assert!(plain().uid(1).gid(1).groups(&[2, 3]).status().unwrap().success());
    } else {
        tell_skipped(format_args!("children with other ids, which need root"));
    }
}

fn spawn_one_that_allocates() {
    extern "C" fn allocate(_: *const c_void) -> ! {
        drop(black_box(Box::new(1_u64)));
        exit_group(0)
    }
    let mut stack = vec![0_u128; 4096];
    let args = CloneArgs {
        flags: flags::VM | flags::VFORK | flags::CLEAR_SIGHAND,
        pidfd: 0,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: 0,
        stack: stack.as_mut_ptr().addr() as u64,
        stack_size: size_of_val(&*stack) as u64,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: 0,
    };
    let mask = rt_sigprocmask(SignalSet::FULL).unwrap();
    // SAFETY: only the child uses the stack, which is aligned, and every signal is blocked. The child
    // allocates, which breaks the rule; see the module documentation for why that is sound here.
    let child = unsafe { clone3(&args, allocate, std::ptr::null()) };
    rt_sigprocmask(mask).unwrap();
    waitid(WaitId::Pid(child.unwrap()), WaitIdOptions::EXITED).unwrap();
}
