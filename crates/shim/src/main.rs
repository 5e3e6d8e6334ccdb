//! `containerd-shim-husk-v1`: husk under containerd, Kubernetes and docker.
//!
//! containerd executes `start` once for each pod. That starts the daemon, which serves containerd's calls for all
//! containers of the pod in one thread: [`daemon`] is its loop, [`service`] the calls, [`streams`] the containers'
//! standard streams. Verbs of the runtime are performed in short-lived processes of their own ([`verbs`]). The shim
//! decides nothing about containers.

#![forbid(unsafe_code)]

mod bootstrap;
mod daemon;
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
use std::process::ExitCode;

/// The program's name, in `ps` and in messages.
pub(crate) const PROGRAM: &str = "containerd-shim-husk-v1";
/// The descriptor on which the daemon gets its socket.
const SOCKET: i32 = 3;

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    if arguments.len() == 1 && arguments.next().is_some_and(|argument| argument == verbs::ARGUMENT) {
        return verbs::perform();
    }
    husk_runtime::prepare_process();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Tolerated: there is nowhere else to report it.
            let _unwritten = write!(std::io::stderr(), "io.containerd.husk.v1: {error}").is_err();
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let arguments = env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    let mut flags = Flags::parse(arguments)?;
    if flags.version {
        let written = std::io::stdout().write_all(bootstrap::info::version().as_bytes());
        return written.map_err(|error| format!("print the version: {error}"));
    }
    if flags.info {
        return bootstrap::info::info();
    }
    if flags.namespace.is_empty() {
        return Err("shim namespace cannot be empty".to_owned());
    }
    flags.ttrpc_address = env::var("TTRPC_ADDRESS").unwrap_or_default();
    match &*flags.action {
        "start" => bootstrap::start::start(&flags),
        "delete" => bootstrap::delete::delete(&flags),
        "" => serve(flags),
        action => Err(format!("unknown action {action}")),
    }
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
