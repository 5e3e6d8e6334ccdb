//! `containerd-shim-husk-v1`: husk under containerd, Kubernetes and docker.
//!
//! containerd executes `start` once for each pod, and `start` executes the daemon. The daemon serves containerd's calls
//! for all containers of the pod in one thread: [`daemon`] is its loop, [`service`] has the calls, and [`streams`] the
//! containers' standard streams. Verbs of the runtime are performed in short-lived processes of their own ([`verbs`]).
//! The shim decides nothing about containers.

#![cfg_attr(not(test), no_main)]
#![deny(unsafe_code)]

mod bootstrap;
mod daemon;
#[cfg(not(test))]
mod entry;
mod failure;
mod flags;
mod log;
mod metrics;
mod poll;
mod rpc;
mod service;
mod streams;
mod verbs;
mod wire;

use daemon::Daemon;
use flags::Flags;
use std::env;
use std::io::Write as _;
use std::os::unix::net::UnixListener;

/// The program's name, in `ps` and in messages.
pub(crate) const PROGRAM: &str = "containerd-shim-husk-v1";
/// The descriptor on which the daemon gets its socket.
const SOCKET: i32 = 3;

/// The allocator of musl asks the kernel for every larger block (docs/decisions/056-musl.md).
#[cfg(target_env = "musl")]
#[global_allocator]
static HEAP: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// Runs the program and returns its exit code.
fn program() -> u8 {
    if husk_runtime::arguments().get(1..).is_some_and(|arguments| arguments == [verbs::ARGUMENT]) {
        return verbs::perform();
    }
    match run() {
        Ok(()) => 0,
        Err(error) => {
            let written = write!(std::io::stderr(), "io.containerd.husk.v1: {error}");
            husk_runtime::tolerate(written, "there is nowhere else to report it");
            1
        }
    }
}

#[cfg(test)]
fn main() -> std::process::ExitCode {
    program().into()
}

fn run() -> Result<(), String> {
    let arguments = husk_runtime::arguments().iter().skip(1);
    let arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
    let mut flags = Flags::parse(arguments)?;
    if flags.version {
        return print(bootstrap::info::version().as_bytes());
    }
    if flags.info {
        return bootstrap::info::info();
    }
    if flags.namespace.is_empty() {
        return Err("shim namespace cannot be empty".to_owned());
    }
    flags.ttrpc_address = env::var(bootstrap::start::TTRPC_ADDRESS).unwrap_or_default();
    match &*flags.action {
        "start" => bootstrap::start::start(&flags),
        "delete" => bootstrap::delete::delete(&flags),
        "" => serve(flags),
        action => Err(format!("unknown action {action}")),
    }
}

/// Writes to standard output, which is not flushed when a program ends that has its own entry point.
pub(crate) fn print(bytes: &[u8]) -> Result<(), String> {
    let mut output = std::io::stdout();
    let written = output.write_all(bytes).and_then(|()| output.flush());
    written.map_err(|error| format!("write to standard output: {error}"))
}

/// Runs the daemon.
fn serve(flags: Flags) -> Result<(), String> {
    let listener = husk_spawn::inherited(SOCKET).map(UnixListener::from);
    let listener =
        listener.ok_or(format!("descriptor {SOCKET} is not open; only 'start' starts the daemon"))?;
    // The kernel keeps 15 characters.
    rustix::thread::set_name(c"containerd-shim").map_err(|errno| format!("name the process: {errno}"))?;
    Daemon::new(flags, listener).and_then(Daemon::run).map_err(|error| error.to_string())
}
