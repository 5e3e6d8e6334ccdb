//! Ends tests that hang, and says where they hang.
//!
//! libtest runs each test in a thread and waits for it as long as it takes: one test that hangs takes the whole run
//! with it, and its name. The helpers that tests begin with call [`watch`]. From then on a thread of the test binary,
//! the watchdog, knows which tests run, and for how long:
//!
//! 1. A test that takes longer than its limit is told of on standard error: its name, and what its thread and the
//!    processes that it started are doing (`report.rs`).
//! 2. Those processes are killed. A test that waited for one of them goes on, and fails by what it asserts.
//! 3. A test that is still there after [`GRACE`] waits for something else, and no thread can be ended from outside.
//!    The test binary is killed, with everything that it started.
//!
//! Threads that nobody registered are tests too. They have the longest limit of all.

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

/// How long a test may take that is in no list.
pub const LIMIT: Duration = Duration::from_secs(120);

/// How long any test may take, unless a list says more, and every thread that nobody registered.
pub const LONGEST: Duration = Duration::from_secs(900);

/// How long a test may take to end when everything that it started has been killed.
pub const GRACE: Duration = Duration::from_secs(15);

/// The number of seconds that every test may take, in place of all other limits. 0 is for no limit.
pub const VARIABLE: &str = "HUSK_TEST_LIMIT";

/// Tests that may take longer, by the beginnings of their names.
pub type Long = &'static [(&'static str, Duration)];

/// Watches the test that this thread runs, until the thread ends. Calling it again makes no difference.
pub fn watch(long: Long) {
    thread_local! {
        static WATCHED: Watched = const { Watched(Cell::new(None)) };
    }
    /// What the watchdog is told of a thread when it ends.
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

/// How long tests may take.
#[derive(Clone, Copy)]
enum Limits {
    ByName,
    All(Duration),
}

impl Limits {
    /// As the environment has it. `None` if nothing is to be ended.
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
    /// The thread that ran a test ends.
    Ended(i32),
}

/// A test that runs.
struct Test {
    /// Its thread.
    task: i32,
    name: String,
    deadline: Instant,
    /// Whether the deadline has passed once, and what the test started has been killed.
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
    // Tolerated: a watchdog that could not be started hears nothing, which was said.
    watchdog.send(event).unwrap_or(());
}

struct Watchdog {
    limits: Limits,
    tests: Vec<Test>,
}

impl Watchdog {
    fn run(mut self, events: &Receiver<Event>) {
        // When threads that nobody registered are looked for.
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

    /// Takes threads for tests that are older than any test may be.
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
                // One that nobody registered ends without a word.
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

/// Past the capture of output, which is for tests that end.
fn write(text: &str) {
    // Tolerated: there is nobody else to tell.
    std::io::stderr().write_all(text.as_bytes()).unwrap_or(());
}

#[cfg(test)]
mod tests {
    use super::{LIMIT, Limits, Long};
    use std::time::Duration;

    #[test]
    fn a_limit_is_the_longest_of_those_for_a_name() {
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
