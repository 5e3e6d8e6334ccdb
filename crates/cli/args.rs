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
    Create {
        /// The bundle's directory
        #[arg(short, long, value_name = "DIRECTORY", default_value = ".")]
        bundle: PathBuf,
        /// Write the pid of the container's process there
        #[arg(long, value_name = "FILE")]
        pid_file: Option<PathBuf>,
        /// The container's name
        id: String,
    },
    /// Start the program of a created container
    Start {
        /// The container's name
        id: String,
    },
    /// Create a container, start it, wait for its end and delete it
    Run {
        /// The bundle's directory
        #[arg(short, long, value_name = "DIRECTORY", default_value = ".")]
        bundle: PathBuf,
        /// Write the pid of the container's process there
        #[arg(long, value_name = "FILE")]
        pid_file: Option<PathBuf>,
        /// The container's name
        id: String,
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
