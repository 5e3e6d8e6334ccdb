//! How a service is found to be ready.

use super::group::begin;
use super::log::Log;
use super::{Ready, Service, port};
use crate::error::Error;
use crate::explain::words::quoted;
use crate::host::JoinedNetwork;
use crate::profile::Profile;
use crate::sandbox::Machine;
use crate::sandbox::ended::{Ended, RemainingProcess};
use crate::sandbox::watch::{Fault, Sandbox};
use std::time::{Duration, Instant};

/// The kernel tells nobody when a socket begins to listen. The pause between two looks grows from the first to the second
/// of these.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

pub(super) enum Readiness {
    Ready,
    /// Output is awaited.
    Log,
    /// Something is looked at from time to time.
    Looked(Look),
}

pub(super) struct Look {
    next: Instant,
    pause: Duration,
    /// The running command.
    command: Option<Box<Sandbox>>,
    /// How the last command failed.
    last: Option<String>,
}

impl Readiness {
    pub(super) fn new(ready: &Ready) -> Self {
        match ready {
            Ready::Log(_) => Self::Log,
            Ready::Port(_) | Ready::Command(_) => {
                Self::Looked(Look { next: Instant::now(), pause: PAUSES.0, command: None, last: None })
            }
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(self, Self::Ready)
    }

    /// Returns the sandbox of a running command.
    pub(super) fn sandbox(&mut self) -> Option<&mut Sandbox> {
        match self {
            Self::Looked(look) => look.command.as_deref_mut(),
            _ => None,
        }
    }

    /// Takes the end of a command.
    pub(super) fn has_ended(&mut self, ended: Result<Ended, Fault>) {
        let Self::Looked(look) = self else { return };
        look.command = None;
        match ended {
            Ok(ended) if ended.status.success() => *self = Self::Ready,
            Ok(ended) => look.postpone(format!("fails ({})", ended.status)),
            Err(_) => look.postpone("cannot be run".to_owned()),
        }
    }

    /// Returns the time until the next look.
    pub(super) fn wake(&self) -> Option<Duration> {
        match self {
            Self::Looked(look) if look.command.is_none() => {
                Some(look.next.saturating_duration_since(Instant::now()))
            }
            _ => None,
        }
    }

    /// Looks again if it is time.
    pub(super) fn turn(
        &mut self,
        service: &Service,
        sandbox: &Sandbox,
        machine: &mut Machine,
        log: &Log,
        network: JoinedNetwork,
    ) -> Result<(), Error> {
        let Self::Looked(look) = self else { return Ok(()) };
        if look.command.is_some() || look.next > Instant::now() {
            return Ok(());
        }
        match &service.ready {
            // Only the program is certain to be in the network: the first process may not have joined it yet.
            Ready::Port(port) => {
                let listens = |program: &RemainingProcess| port::listens(program.pid, *port);
                // Asked again after the look: if the program still runs, its pid was not that of another process meanwhile.
                let program = sandbox.program().filter(listens);
                match program.is_some() && program == sandbox.program() {
                    true => *self = Self::Ready,
                    false => look.postpone(String::new()),
                }
            }
            Ready::Command(args) => {
                let profile = Profile { args: args.clone(), ..service.profile.clone() };
                look.command = Some(Box::new(begin(&profile, machine, log, network)?));
            }
            Ready::Log(_) => {}
        }
        Ok(())
    }

    /// Says what a service that is not ready lacks.
    pub(super) fn missing(&self, ready: &Ready) -> String {
        let last = match self {
            Self::Looked(look) => look.last.as_deref().unwrap_or("has not ended"),
            _ => "",
        };
        match ready {
            Ready::Port(port) => format!("nothing listens on port {port}"),
            Ready::Log(text) => format!("its output does not contain {text:?}"),
            Ready::Command(args) => {
                let words: Vec<_> = args.iter().map(|word| quoted(word)).collect();
                format!("{} {last}", words.join(" "))
            }
        }
    }
}

impl Look {
    fn postpone(&mut self, why: String) {
        self.last = Some(why);
        self.next = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSES.1);
    }
}
