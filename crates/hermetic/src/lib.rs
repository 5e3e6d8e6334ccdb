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
mod cargo;
mod cgroup;
mod ended;
mod environment;
mod error;
mod filter;
mod host;
mod image;
pub mod junit;
mod landlock;
mod layers;
mod leftovers;
mod libtest;
mod output;
mod plan;
mod probe;
mod profile;
mod progress;
mod results;
mod run;
mod runner;
mod said;
mod sandbox;
mod terminal;
mod tested;
mod view;

pub use bundle::bundle;
pub use cargo::{Kind, kind, show};
pub use ended::{Ended, Reached};
pub use error::{Error, Hint, Loss};
pub use host::{Found, Host, Landlock, Procfs};
pub use layers::Streams;
pub use leftovers::Process;
pub use plan::plan;
pub use probe::probe;
pub use profile::{Access, Image, Limits, Net, Profile, Show, Variable};
pub use run::{Run, end_alike, listing, run};
pub use runner::{Choice, Setting, Tests, run_tests};
pub use tested::{Attempt, Screen, Tested, Verdict};
