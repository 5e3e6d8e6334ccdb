//! Runs a program so that it sees nothing of its surroundings that could change what it does, and leaves
//! nothing behind: a sandbox for tests, for which nobody needs to be root and nothing needs to be set up.
//!
//! What is asked ([`Profile`]) and what this machine and its caller are ([`Host`]) become a list of steps
//! ([`plan`]), as for a container; [`run`] has it performed and watches what comes of it.
//!
//! The program has the host's files, read-only; its own `/tmp`, `/var/tmp`, `/run`, `/dev` and home directory, all of
//! them in one file system in memory; its own processes, network, host name and IPC; the caller's ids and no
//! privileges; and an environment in which only what is on a list is the caller's. When it ends, everything
//! that it started ends.
//!
//! It is no boundary against a program that attacks the kernel, and what an ordinary user may read on the host
//! the program may read too, but for what is hidden.

#![forbid(unsafe_code)]

mod bundle;
mod error;
mod host;
mod libtest;
mod plan;
mod profile;
mod report;
mod runner;
mod sandbox;

pub use bundle::bundle;
pub use error::{Error, Hint, Loss};
pub use host::{Found, Host, Landlock, Procfs};
pub use libtest::cargo::{BinaryKind, binary_kind, show};
pub use plan::layers::Streams;
pub use plan::plan;
pub use profile::{Access, Image, Limits, Net, Profile, Show, Variable};
pub use report::junit;
pub use report::tested::{Attempt, Screen, Tested, Verdict};
pub use runner::{Choice, Setting, Tests, run_tests};
pub use sandbox::ended::{Ended, Reached, RemainingProcess};
pub use sandbox::probe::probe;
pub use sandbox::{Run, end_alike, listing, run};
