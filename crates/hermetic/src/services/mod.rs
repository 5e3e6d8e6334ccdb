//! Services: programs that a test needs beside it, such as a database.
//!
//! Each service runs in a sandbox of its own, made like that of a test, with its own files and processes. It shares
//! only the network namespace with the test and with the test's other services. The test starts when all of them are
//! ready, and ends with all of them killed.

mod group;
mod keeper;
pub(crate) mod listing;
mod log;
mod network;
mod port;
mod ready;
mod run;
pub(crate) mod served;
mod shared;

use crate::explain::words::quoted;
use crate::profile::Profile;
pub use keeper::keep as keep_services;
pub use run::Run;
pub(crate) use shared::Services;
use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

/// A program that runs beside a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub name: String,
    /// Its sandbox. The profile's own services do not count.
    pub profile: Profile,
    pub per: Per,
    pub ready: Ready,
    /// How long it may take to become ready.
    pub timeout: Duration,
    /// The run, if several husks share the service. All services of a test then have the same.
    pub run: Option<Run>,
}

/// The tests that share a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// Each run of a test has the service for itself.
    Test,
    /// All tests that one husk runs share the service, and so a network.
    Binary,
    /// All tests that the husks of one run share the service, and so a network.
    Run,
}

/// When a service is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ready {
    /// When a socket listens on this TCP port.
    Port(u16),
    /// When this program succeeds. It runs in a sandbox like that of the service, with the same network.
    Command(Vec<OsString>),
    /// When a line of the service's output contains this text.
    Log(String),
}

impl Display for Per {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Test => "one for each test",
            Self::Binary => "one for all tests",
            Self::Run => "one for the whole run",
        })
    }
}

impl Display for Ready {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => write!(f, "a socket listens on port {port}"),
            Self::Log(text) => write!(f, "its output contains {text:?}"),
            Self::Command(args) => {
                let words: Vec<_> = args.iter().map(|word| quoted(word)).collect();
                write!(f, "{} succeeds", words.join(" "))
            }
        }
    }
}

/// The output of a service and how it ended, as of the end of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceReport {
    pub name: String,
    /// How it ended before the test did, or why it did not become ready.
    pub end: Option<String>,
    /// The end of what it wrote while the test ran.
    pub log: String,
}

impl ServiceReport {
    /// Returns one line if the service ended before the test.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        self.end.as_ref().map(|end| format!("service {} {end}", self.name))
    }
}

/// Returns the text that a failed test's output gets about its services.
pub(crate) fn service_output(reports: &[ServiceReport]) -> String {
    let text = |report: &ServiceReport| {
        let ServiceReport { name, end, log } = report;
        let end = end.as_ref().map(|end| format!(", which {end}")).unwrap_or_default();
        match log.as_str() {
            "" => format!("service {name}{end}, wrote nothing\n"),
            log => format!("output of service {name}{end}:\n{}\n", log.trim_end_matches('\n')),
        }
    };
    reports.iter().map(text).collect()
}
