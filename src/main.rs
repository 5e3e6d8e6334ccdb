//! `husk`: the command line.
//!
//! It reads arguments, calls one verb of the runtime, and prints: the result to standard output, an
//! error once to standard error, and to the log in the form that engines read. What it must not do is
//! decide anything about containers. Read [`args`] for how arguments are understood, then
//! [`commands`], where almost every verb has a file of its own.

#![cfg_attr(all(target_env = "gnu", not(test)), no_main)]
#![deny(unsafe_code)]

mod args;
mod commands;
mod each;
mod entry;
mod exit;
mod help;
mod options;
mod output;
mod session;
mod verb;

use args::Asked;
use exit::Exit;
use options::Global;
use output::log::Log;
use output::{Unwritten, name};
use session::Session;

/// What the program does.
fn run() -> Exit {
    match args::read(std::env::args_os().skip(1), commands::VERBS) {
        Ok(Asked::Text(text)) => {
            let Err(error) = output::print(text) else { return Exit::Success };
            Log::standard(&Global::default()).failed(&error);
            Exit::Failed
        }
        Ok(Asked::Verb { verb, global, matches }) => {
            // Before anything else: what follows is done twice.
            let sealed = session::seal(verb.seal);
            // For as long as there is somebody to tell.
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

#[cfg(any(not(target_env = "gnu"), test))]
fn main() -> std::process::ExitCode {
    entry::begin()
}
