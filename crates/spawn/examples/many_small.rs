//! Runs thousands of small commands from a large process with many threads, as an indexer runs its filters. No memory
//! is copied, and no descriptor of one thread leaks into a child of another.
//!
//!     cargo run --release -p husk-spawn --example many_small -- 12500 8

#![expect(clippy::disallowed_macros, reason = "an example prints as programs do")]

use husk_spawn::{Command, Error};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().expect("a number"));
    let commands = arguments.next().unwrap_or(1000);
    let threads = arguments.next().unwrap_or(8);
    // Memory in use makes fork slow.
    let ballast = vec![1_u8; 100 << 20];

    let next = AtomicUsize::new(0);
    let start = Instant::now();
    let bytes = thread::scope(|scope| {
        let work = || {
            let mut bytes = 0;
            while next.fetch_add(1, Ordering::Relaxed) < commands {
                bytes += Command::new("printf").arg("text of a document").output()?.stdout.len();
            }
            Ok::<usize, Error>(bytes)
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).sum::<Result<usize, _>>()
    })?;
    println!(
        "{commands} commands from {threads} threads of a process of {} MB in {:.2?}: {bytes} bytes read",
        ballast.len() >> 20,
        start.elapsed(),
    );
    Ok(())
}
