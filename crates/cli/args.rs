//! The command line as a type.

use clap::{Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// An OCI container runtime: small, static, fast.
#[derive(Debug, Parser)]
#[command(name = "husk", version, max_term_width = 100)]
pub(crate) struct Args {
    /// Where containers are known
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) root: Option<PathBuf>,
    /// Also write errors and warnings to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// How to write them there
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListFormat {
    Table,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Create a container: everything up to its program, which waits for `start`
    Create(Creation),
    /// Start the program of a created container
    Start {
        /// The container's name
        id: String,
    },
    /// Create a container, start it, wait for its end and delete it
    Run {
        #[command(flatten)]
        creation: Creation,
        /// Do not wait for its end
        #[arg(short, long)]
        detach: bool,
        /// Do not delete it when it has ended
        #[arg(long)]
        keep: bool,
    },
    /// Print what a container is
    State {
        /// The container's name
        id: String,
    },
    /// Print what every container is
    List {
        /// For people, or for programs
        #[arg(short, long, value_name = "FORMAT", default_value = "table")]
        format: ListFormat,
        /// Names only
        #[arg(short, long)]
        quiet: bool,
    },
    /// Send a signal to a container's process
    Kill {
        /// The container's name
        id: String,
        /// A number or a name
        #[arg(default_value = "SIGTERM")]
        signal: String,
    },
    /// Delete a container that has stopped
    Delete {
        /// Whatever it does; one that is not there is no error
        #[arg(short, long)]
        force: bool,
        /// The container's name
        id: String,
    },
    /// Print what `create` would do, a line a step, and do nothing
    Plan {
        /// The bundle's directory
        #[arg(value_name = "BUNDLE", default_value = ".")]
        bundle: PathBuf,
    },
}

/// What `create` and `run` have in common.
#[derive(Debug, clap::Args)]
pub(crate) struct Creation {
    /// The bundle's directory
    #[arg(short, long, value_name = "DIRECTORY", default_value = ".")]
    pub(crate) bundle: PathBuf,
    /// Write the pid of the container's process there
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,
    /// Send the terminal to whoever listens there
    #[arg(long, value_name = "SOCKET")]
    pub(crate) console_socket: Option<PathBuf>,
    /// Move the root file system onto / instead of pivoting, as a root on a ramdisk needs it
    #[arg(long)]
    pub(crate) no_pivot: bool,
    /// Leave the container in the caller's session keyring
    #[arg(long)]
    pub(crate) no_new_keyring: bool,
    /// Pass this many descriptors on to the program, from 3 (and LISTEN_FDS) upwards
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) preserve_fds: u32,
    /// The container's name
    pub(crate) id: String,
}
