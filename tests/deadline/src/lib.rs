//! Kills tests that hang, and reports where they hang.
//!
//! libtest runs each test in a thread and waits for it without a limit. One test that hangs stops the whole run, and
//! its name is never printed. The helpers that tests call first call [`watch`]. From then on the watchdog, a thread of
//! the test binary, knows which tests run and for how long:
//!
//! 1. The watchdog reports a test that exceeds its limit on standard error: its name, and what its thread and the
//!    processes that it started are doing (`report.rs`).
//! 2. It kills those processes. A test that waited for one of them continues, and fails by its assertions.
//! 3. A test that still runs after [`GRACE`] waits for something else, and a thread cannot be ended from outside. The
//!    watchdog kills the test binary and everything that it started.
//!
//! Threads that never called [`watch`] count as tests too, with the longest limit of all.

mod report;
mod task;

use report::report;
use rustix::thread::gettid;
use std::cell::Cell;
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use std::{env, thread};
use task::Task;

/// Time limit of a test that is in no list.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Time limit of every unregistered thread, and the most that a test may take unless a list allows it more.
pub const LONGEST: Duration = Duration::from_secs(900);

/// How long a test may take to end after everything that it started has been killed.
pub const GRACE: Duration = Duration::from_secs(15);

/// Environment variable: the limit of every test in seconds, in place of all other limits. 0 disables limits.
pub const VARIABLE: &str = "HUSK_TEST_LIMIT";

/// Limits of tests that may take longer, by prefixes of their names.
pub type Long = &'static [(&'static str, Duration)];

/// Watches the test that this thread runs, until the thread ends. Further calls have no effect.
pub fn watch(long: Long) {
    thread_local! {
        static WATCHED: Watched = const { Watched(Cell::new(None)) };
    }
    /// Tells the watchdog when its thread ends.
    struct Watched(Cell<Option<i32>>);
    impl Drop for Watched {
        fn drop(&mut self) {
            if let Some(thread) = self.0.get() {
                tell(Event::Ended(thread));
            }
        }
    }
    WATCHED.with(|watched| {
        if watched.0.get().is_none()
            && let Some(limits) = Limits::read()
        {
            let task = gettid().as_raw_pid();
            watched.0.set(Some(task));
            let name = thread::current().name().unwrap_or("a test").to_owned();
            let deadline = Instant::now() + limits.of(&name, long);
            tell(Event::Begun(Test { task, name, deadline, is_told: false }));
        }
    });
}

/// Limits of all tests.
#[derive(Clone, Copy)]
enum Limits {
    ByName,
    All(Duration),
}

impl Limits {
    /// Reads the limits from the environment. `None` means that no test may be killed.
    fn read() -> Option<Self> {
        let Some(said) = env::var_os(VARIABLE) else { return Some(Self::ByName) };
        match said.to_str().and_then(|said| said.parse().ok()) {
            Some(0) => None,
            Some(seconds) => Some(Self::All(Duration::from_secs(seconds))),
            None => Some(Self::ByName),
        }
    }

    fn of(self, name: &str, long: Long) -> Duration {
        match self {
            Self::ByName => {
                let long = long.iter().filter(|(beginning, _)| name.starts_with(beginning));
                long.map(|(_, limit)| *limit).max().unwrap_or(LIMIT)
            }
            Self::All(limit) => limit,
        }
    }

    fn longest(self) -> Duration {
        match self {
            Self::ByName => LONGEST,
            Self::All(limit) => limit,
        }
    }

    fn grace(self) -> Duration {
        self.longest().min(GRACE)
    }
}

enum Event {
    Begun(Test),
    /// The thread of this id, which ran a test, has ended.
    Ended(i32),
}

/// A running test.
struct Test {
    /// The id of its thread.
    task: i32,
    name: String,
    deadline: Instant,
    /// Whether the deadline has passed once, so that the test was reported and what it started was killed.
    is_told: bool,
}

fn tell(event: Event) {
    static WATCHDOG: OnceLock<Sender<Event>> = OnceLock::new();
    let watchdog = WATCHDOG.get_or_init(|| {
        let (sender, receiver) = channel();
        let limits = Limits::read().unwrap_or(Limits::ByName);
        let thread = thread::Builder::new().name("deadline".to_owned());
        let started = thread.spawn(move || Watchdog { limits, tests: Vec::new() }.run(&receiver));
        if let Err(error) = started {
            write(&format!("deadline: no test can be ended: {error}\n"));
        }
        sender
    });
    // Tolerated: if the watchdog could not be started, that was reported already.
    watchdog.send(event).unwrap_or(());
}

struct Watchdog {
    limits: Limits,
    tests: Vec<Test>,
}

impl Watchdog {
    fn run(mut self, events: &Receiver<Event>) {
        // The next time to look for unregistered threads.
        let mut look = Instant::now() + self.limits.longest();
        loop {
            let next = self.tests.iter().map(|test| test.deadline).chain([look]).min().unwrap_or(look);
            match events.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Event::Begun(test)) => self.tests.push(test),
                Ok(Event::Ended(task)) => self.tests.retain(|test| test.task != task),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    let now = Instant::now();
                    if look <= now {
                        look = now + self.limits.longest();
                        self.adopt(now);
                    }
                    self.end_overdue(now);
                }
            }
        }
    }

    /// Registers each unknown thread as a test if it has run for longer than the longest time limit.
    fn adopt(&mut self, now: Instant) {
        let (limit, main) = (self.limits.longest(), Task::main());
        for task in main.threads() {
            let is_known = self.tests.iter().any(|test| test.task == task.id()) || task.is_caller();
            if task != main && !is_known && task.age().is_some_and(|age| age >= limit) {
                let name = task.name();
                self.tests.push(Test { task: task.id(), name, deadline: now, is_told: false });
            }
        }
    }

    fn end_overdue(&mut self, now: Instant) {
        for test in self.tests.iter_mut().filter(|test| test.deadline <= now) {
            let thread = Task::of_this_process(test.task);
            if !thread.exists() {
                // The end of an unregistered thread is not reported, so only its absence shows it.
                test.deadline = now + LONGEST;
                continue;
            }
            let started = thread.started();
            let what = if test.is_told {
                "is still there. The run ends"
            } else {
                "takes too long. What it started is killed"
            };
            write(&report(&test.name, what, &thread, &started));
            if test.is_told {
                Task::main().kill_all();
            }
            started.iter().for_each(Task::kill);
            test.is_told = true;
            test.deadline = now + self.limits.grace();
        }
    }
}

/// Writes to standard error directly: libtest captures output and shows it only when a test ends.
fn write(text: &str) {
    // Tolerated: the error could be reported to no other stream.
    std::io::stderr().write_all(text.as_bytes()).unwrap_or(());
}

#[cfg(test)]
mod tests {
    use super::{LIMIT, Limits, Long};
    use std::time::Duration;

    #[test]
    fn longest_matching_limit_applies() {
        const MINUTE: Duration = Duration::from_secs(60);
        const LONG: Long = &[("a::", MINUTE.saturating_mul(5)), ("a::b", MINUTE.saturating_mul(9))];
        for (name, minutes) in [("a::c", 5), ("a::bc", 9), ("b::a::b", 2)] {
            assert_eq!(Limits::ByName.of(name, LONG), MINUTE * minutes, "{name}");
        }
        assert_eq!(LIMIT, MINUTE * 2);
        assert_eq!(Limits::All(MINUTE).of("a::b", LONG), MINUTE);
        assert_eq!(Limits::All(MINUTE).longest(), MINUTE);
    }
}
