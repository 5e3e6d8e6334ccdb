//! `husk`: the command line.
//!
//! It parses arguments, calls one verb of the runtime, and prints. The result goes to standard output. An
//! error goes to standard error once, and to the log in the format that engines read. It must not decide
//! anything about containers. Start with [`args`] for the parser, then [`commands`], where almost every verb
//! has its own file.

#![cfg_attr(not(test), no_main)]
#![deny(unsafe_code)]

mod args;
mod commands;
mod each;
#[cfg(not(test))]
mod entry;
mod exit;
mod help;
mod image;
mod options;
mod output;
mod rare;
mod session;
mod verb;

use args::Asked;
use exit::Exit;
use options::Global;
use output::log::Log;
use output::{Unwritten, name};
use session::Session;

/// The allocator of musl asks the kernel for every larger block (docs/decisions/056-musl.md).
#[cfg(target_env = "musl")]
#[global_allocator]
static HEAP: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// Runs the program and returns its exit code.
fn run() -> Exit {
    match args::read(husk_runtime::arguments().iter().skip(1).cloned(), commands::VERBS) {
        Ok(Asked::Text(text)) => {
            let Err(error) = output::print(text) else { return Exit::Success };
            Log::standard(&Global::default()).failed(&error);
            Exit::Failed
        }
        Ok(Asked::Verb { verb, global, matches }) => {
            // Must be first, because re-execution repeats everything done before.
            let sealed = session::seal(verb.seal);
            // Leaks the log, because the logger must live until the process ends.
            let log: &'static Log = match Log::open(&global) {
                Ok(log) => Box::leak(Box::new(log)),
                Err(error) => {
                    Log::standard(&global).failed(&error);
                    return verb.failure;
                }
            };
            log.listen();
            let done = sealed
                .and_then(|sealed| Session::open(global, log, sealed))
                .and_then(|session| (verb.perform)(&matches, &session));
            if done.is_ok() {
                log.finish();
            }
            done.unwrap_or_else(|error| {
                let exit = if error.is::<Unwritten>() { Exit::Failed } else { verb.failure };
                log.failed(&name::as_runc(verb.name, error));
                exit
            })
        }
        Err(misuse) => {
            let log = Log::open(&misuse.global).unwrap_or_else(|_| Log::standard(&misuse.global));
            log.misused(&misuse);
            misuse.exit
        }
    }
}

#[cfg(test)]
fn main() -> std::process::ExitCode {
    u8::from(run()).into()
}
