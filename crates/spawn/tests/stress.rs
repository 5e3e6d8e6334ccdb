//! Starts many children from many threads. Checks that every status is right, that nothing leaks, and that
//! the activity of other threads makes no difference.

mod support;

use husk_spawn::{Child, Command, Stdio};
use rustix::io::Errno;
use rustix::pipe::pipe;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use std::collections::VecDeque;
use std::hint::black_box;
use std::io::Read as _;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{fs, io, thread};
use support::{Dir, program};

const THREADS: usize = 8;
/// The number of children per thread; 100,000 in total.
const CHILDREN: usize = 12_500;
/// One program per status.
const STATUSES: u8 = 7;

/// The lock of each test, because the tests count resources of the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// Programs that exit with the statuses 0 to 6.
struct Programs {
    /// Programs that write nothing.
    quiet: Vec<PathBuf>,
    /// Programs that write one byte.
    writing: Vec<PathBuf>,
    _dir: Dir,
}

impl Programs {
    fn new() -> Self {
        let dir = Dir::new();
        let all = |name: &str, program: fn(u8) -> Vec<u8>| {
            (0..STATUSES).map(|status| dir.program(&format!("{name}-{status}"), program(status))).collect()
        };
        Self { quiet: all("quiet", program::exits), writing: all("writing", program::holds), _dir: dir }
    }

    /// Starts the child with this index in one of four ways, and waits for it.
    fn run(&self, index: usize) {
        let status = index % usize::from(STATUSES);
        let quiet = || Command::new(&self.quiet[status]);
        let ended = match index % 4 {
            0 => quiet().status().unwrap(),
            1 => quiet().spawn().unwrap().wait().unwrap(),
            2 => quiet().spawn_and_exec().unwrap().wait().unwrap(),
            _ => {
                let output = Command::new(&self.writing[status]).output().unwrap();
                assert_eq!((output.stdout.len(), output.stderr.len()), (1, 0));
                output.status
            }
        };
        assert_eq!(ended.code(), i32::try_from(status).ok());
    }

    /// Has every thread run this many children.
    fn run_in_threads(&self, children: usize) {
        thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || (0..children).for_each(|child| self.run(thread + child)));
            }
        });
    }
}

/// Resources of this process that could leak.
#[derive(Debug)]
struct Inventory {
    descriptors: usize,
    mappings: usize,
    resident_kilobytes: usize,
}

impl Inventory {
    fn take() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        Self {
            descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
            mappings: fs::read_to_string("/proc/self/maps").unwrap().lines().count(),
            resident_kilobytes: resident.split_whitespace().next().unwrap().parse().unwrap(),
        }
    }
}

/// Tells the other threads of a test that it is done, even if it panics.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn hundred_thousand_children_leave_nothing_behind() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let programs = Programs::new();
    // After this, the memory that is kept for later children exists.
    programs.run_in_threads(CHILDREN / 25);
    let before = Inventory::take();
    programs.run_in_threads(CHILDREN - CHILDREN / 25);
    let after = Inventory::take();

    let both = format!("{before:?}, then {after:?}");
    assert_eq!(before.descriptors, after.descriptors, "{both}");
    // One kilobyte per child would be 96 megabytes.
    assert!(after.resident_kilobytes < before.resident_kilobytes + (24 << 10), "{both}");
    // The allocator maps some memory for its threads, but none for a child.
    assert!(after.mappings < before.mappings + 100, "{both}");
    let children = waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    assert_eq!(children.unwrap_err(), Errno::CHILD, "no child is left");
}

#[test]
fn child_inherits_no_descriptor_of_another_thread() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let programs = Programs::new();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        // None of these is ever marked close-on-exec.
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                black_box([(); 20].map(|()| pipe().unwrap()));
            }
        });
        let _done = Done(&done);
        for index in 0..1000 {
            let mut command = Command::new(&programs.writing[index % 7]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            let numbers = fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
            let mut numbers: Vec<_> = numbers.map(|entry| entry.unwrap().file_name()).collect();
            numbers.sort();
            assert_eq!(numbers, ["0", "1", "2"]);
            assert_eq!(child.wait().unwrap().code(), i32::try_from(index % 7).ok());
        }
    });
}

#[test]
fn output_of_a_child_ends_while_others_run() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let programs = Programs::new();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        // Long-lived children. If one had a copy of the other thread's pipe, the reader of the pipe would
        // wait forever.
        scope.spawn(|| {
            let mut command = Command::new(&programs.writing[0]);
            command.stdin(Stdio::piped()).stdout(Stdio::null());
            let mut living: VecDeque<Child> = VecDeque::new();
            while !done.load(Ordering::Relaxed) {
                living.push_back(command.spawn().unwrap());
                if living.len() > 50 {
                    assert!(living.pop_front().unwrap().wait().unwrap().success());
                }
            }
            living.into_iter().for_each(|mut child| assert!(child.wait().unwrap().success()));
        });
        // One child in four: those whose output is read.
        let _done = Done(&done);
        (0..1000).for_each(|index| programs.run(index * 4 + 3));
    });
}

#[test]
fn child_is_unaffected_by_other_threads() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let programs = Programs::new();
    let done = AtomicBool::new(false);
    let busy = |work: &dyn Fn()| {
        while !done.load(Ordering::Relaxed) {
            work();
        }
    };
    thread::scope(|scope| {
        // Allocates in all sizes.
        scope.spawn(|| {
            busy(&|| drop(black_box((0..20).map(|size| vec![0_u8; 1 << size]).collect::<Vec<_>>())))
        });
        // Holds a lock of std, for which a child that printed would wait.
        scope.spawn(|| {
            let _stdout = io::stdout().lock();
            busy(&thread::yield_now);
        });
        // Panics again and again, in new threads.
        scope.spawn(|| busy(&|| drop(thread::spawn(|| resume_unwind(Box::new("on purpose"))).join())));
        let _done = Done(&done);
        (0..2000).for_each(|index| programs.run(index));
    });
}
