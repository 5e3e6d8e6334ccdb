//! `husk`: the command line.
//!
//! It reads arguments, calls one verb of the runtime, and prints: the result to standard output, an
//! error once to standard error, and to the log in the form that engines read.

#![forbid(unsafe_code)]

mod args;
mod exit;
mod list;
mod log;

use anyhow::{Context as _, Result};
use args::{Args, Creation, ListFormat, Verb};
use clap::Parser as _;
use exit::Exit;
use husk_runtime::{Keyring, NewRoot, Request, Store, Warning};
use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return exit::usage(&error),
    };
    let log = log::Log::new(&args);
    // Before anything else: what follows is done twice.
    match protect(&args).and_then(|()| perform(&args, &log)) {
        Ok(exit) => exit.into(),
        Err(error) => {
            log.error(&error);
            Exit::Failed.into()
        }
    }
}

/// Keeps our own binary from containers that are root on the host. Those of a user have a user
/// namespace, in which nobody owns it.
fn protect(args: &Args) -> Result<()> {
    let makes_container = matches!(args.verb, Verb::Create(_) | Verb::Run { .. });
    if makes_container && rustix::process::geteuid().is_root() {
        husk_runtime::seal()?;
    }
    Ok(())
}

fn perform(args: &Args, log: &log::Log) -> Result<Exit> {
    let store = store(args)?;
    match &args.verb {
        Verb::Create(creation) => {
            husk_runtime::create(&store, &request(creation)?, |warnings| warn(log, warnings))?;
        }
        Verb::Run { creation, detach, keep } => {
            anyhow::ensure!(!detach && !keep, "--detach and --keep are not supported yet");
            let status = husk_runtime::run(&store, &request(creation)?, |warnings| warn(log, warnings))?;
            return Ok(Exit::Program(status));
        }
        Verb::Start { id } => husk_runtime::start(&store, id)?,
        Verb::State { id } => {
            // As runc: no newline at the end.
            print!("{}", serde_json::to_string_pretty(&husk_runtime::state(&store, id)?)?);
        }
        Verb::List { format, quiet } => {
            let mut states = Vec::new();
            for found in husk_runtime::list(&store)? {
                match found {
                    Ok(state) => states.push(state),
                    Err((id, error)) => log.warning(&format!("{id}: {error}")),
                }
            }
            match (quiet, format) {
                (true, _) => states.iter().for_each(|state| println!("{}", state.id)),
                (false, ListFormat::Json) => print!("{}", list::json(&states)?),
                (false, ListFormat::Table) => print!("{}", list::table(&states)),
            }
        }
        Verb::Kill { id, signal } => {
            let signal =
                husk_runtime::signal(signal).with_context(|| format!("unknown signal {signal:?}"))?;
            husk_runtime::kill(&store, id, signal)?;
        }
        Verb::Delete { force: true, id } => {
            husk_runtime::force_delete(&store, id, |warnings| warn(log, warnings))?;
        }
        Verb::Delete { force: false, id } => {
            husk_runtime::delete(&store, id, |warnings| warn(log, warnings))?;
        }
        Verb::Plan { bundle } => {
            let (listing, warnings) = husk_runtime::plan(&absolute(bundle)?)?;
            warn(log, &warnings);
            print!("{listing}");
        }
    }
    Ok(Exit::Success)
}

fn warn(log: &log::Log, warnings: &[Warning]) {
    warnings.iter().for_each(|warning| log.warning(warning));
}

fn request(creation: &Creation) -> Result<Request> {
    let path = |path: &Option<PathBuf>| path.as_deref().map(absolute).transpose();
    Ok(Request {
        id: creation.id.clone(),
        bundle: absolute(&creation.bundle)?,
        pid_file: path(&creation.pid_file)?,
        console_socket: path(&creation.console_socket)?,
        new_root: if creation.no_pivot { NewRoot::Move } else { NewRoot::Pivot },
        keyring: if creation.no_new_keyring { Keyring::Callers } else { Keyring::New },
        preserve_fds: creation.preserve_fds,
    })
}

/// Where containers are known: what was said, else root's place or the user's.
fn store(args: &Args) -> Result<Store> {
    let root = match &args.root {
        Some(root) => absolute(root)?,
        None => match env::var_os("XDG_RUNTIME_DIR") {
            Some(directory) if !rustix::process::geteuid().is_root() => Path::new(&directory).join("husk"),
            _ => PathBuf::from("/run/husk"),
        },
    };
    Ok(Store::new(root))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| path.display().to_string())
}
