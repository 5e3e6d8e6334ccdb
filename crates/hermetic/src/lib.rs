//! Runs a program, such as a test, in a sandbox. Nothing around the program can change what it does, and it leaves
//! nothing behind. A sandbox needs neither root nor any setup.
//!
//! The request ([`Profile`]) and the facts about machine and caller ([`Host`]) become a list of steps ([`plan`]), as
//! for a container. [`run`] performs the steps and supervises the program.
//!
//! The program sees the host's files read-only. Its `/tmp`, `/var/tmp`, `/run`, `/dev` and home directory are its own,
//! all in one file system in memory. It has its own processes, network, host name and IPC, the caller's ids and no
//! privileges. Only environment variables on a list are passed on. When it ends, every process that it started is
//! killed.
//!
//! A sandbox does not stop a program that attacks the kernel. The program may read every file that its user may read on
//! the host, except hidden ones.

#![forbid(unsafe_code)]

mod adapters;
mod bundle;
mod cache;
mod error;
mod explain;
mod host;
mod libtest;
mod outputs;
mod plan;
mod profile;
mod report;
mod runner;
mod sandbox;
mod services;
mod shell;
mod tools;
mod trust;

pub use adapters::{Each, Suite};
pub use bundle::{ImageProgram, bundle, image};
pub use cache::view::View;
pub use cache::{Cache, Mode};
pub use error::{Error, Hint, MissingIsolation};
pub use explain::judge::{Denial, Denied, Grant};
pub use explain::words::quoted;
pub use explain::{Explain, Explanation, explain};
pub use host::{Host, HostFile, JoinedNetwork, Landlock, Procfs, Sysfs};
pub use libtest::cargo::{BinaryKind, binary_kind, is_in_first_shard, show};
pub use outputs::{create_outputs, show_outputs};
pub use plan::layers::Streams;
pub use plan::plan;
pub use profile::{Image, Limits, Net, OwnFile, PathAccess, Profile, Root, Show, ToolPath, Variable};
pub use report::html;
pub use report::join;
pub use report::junit;
pub use report::record;
pub use report::row::{Row, Topic, Try};
pub use report::tested::{Attempt, Screen, Tested, Verdict};
pub use report::xml::Escaped;
pub use runner::{
    Choice, Division, Durations, Event, FailedUnit, Listed, Setting, TestPlan, Tests, digest, run_suite,
    run_tests, suite_plans, test_plans,
};
pub use sandbox::ended::{DiskLimit, Ended, NotRun, Reached, Recalled, RemainingProcess};
pub use sandbox::kept::{KeepDirectory, Kept, OwnFiles};
pub use sandbox::probe::probe;
pub use sandbox::{Isolation, end_alike, listing, run};
pub use services::{Per, Ready, Run, Service, ServiceReport, keep_services};
pub use shell::open_shell;
pub use tools::{Caches, Caller, Link, Tools};
pub use trust::distrust;
