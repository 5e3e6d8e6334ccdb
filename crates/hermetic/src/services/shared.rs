//! The services of a test, whichever process runs them.

use super::group::OwnServices;
use super::run::RunServices;
use super::{Per, ServiceReport};
use crate::error::{Error, MissingIsolation};
use crate::host::JoinedNetwork;
use crate::profile::Profile;
use crate::sandbox::Machine;
use crate::sandbox::ended::Ended;
use crate::sandbox::watch::{Fault, Sandbox};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Running services that share a network.
pub(crate) enum Services {
    /// Those of this process.
    Own(OwnServices),
    /// Those of a run, which another process keeps.
    Run(RunServices),
}

impl Services {
    /// Starts the services of a profile, or joins those of the run.
    pub(crate) fn of(profile: &Profile, machine: &mut Machine) -> Result<Self, Error> {
        OwnServices::check(profile)?;
        match profile.services.first().and_then(|service| service.run.as_ref()) {
            Some(run) => RunServices::join(&profile.services, run).map(Self::Run),
            None => OwnServices::start(profile, machine).map(Self::Own),
        }
    }

    pub(crate) fn joined(&self) -> JoinedNetwork {
        match self {
            Self::Own(own) => own.joined(),
            Self::Run(run) => run.joined(),
        }
    }

    /// Returns the sandboxes to watch, and the descriptors on which output or news arrive.
    pub(crate) fn watched(&mut self) -> (Vec<&mut Sandbox>, Vec<BorrowedFd<'_>>) {
        match self {
            Self::Own(own) => own.watched(),
            Self::Run(run) => (Vec::new(), run.arriving().into_iter().collect()),
        }
    }

    /// Returns the time until something must be looked at again.
    pub(crate) fn wake(&self) -> Option<Duration> {
        match self {
            Self::Own(own) => own.wake(),
            Self::Run(run) => run.wake(),
        }
    }

    /// Takes the ends of sandboxes, by their indices among those that are [`watched`](Self::watched), in rising order.
    pub(crate) fn ended(&mut self, ended: Vec<(usize, Result<Ended, Fault>)>) -> Result<(), Error> {
        match self {
            Self::Own(own) => own.ended(ended),
            Self::Run(_) => Ok(()),
        }
    }

    /// Reads output or news, and looks whether the services are ready.
    pub(crate) fn turn(&mut self) -> Result<(), Error> {
        match self {
            Self::Own(own) => own.turn(),
            Self::Run(run) => {
                run.turn();
                Ok(())
            }
        }
    }

    pub(crate) fn are_ready(&self) -> bool {
        match self {
            Self::Own(own) => own.are_ready(),
            Self::Run(run) => run.is_ready(),
        }
    }

    /// Returns why the services will never be ready.
    pub(crate) fn failure(&self) -> Option<&str> {
        match self {
            Self::Own(own) => own.failure(),
            Self::Run(run) => run.failure(),
        }
    }

    /// Returns the isolation that the services lack.
    pub(crate) fn losses(&self) -> Vec<MissingIsolation> {
        match self {
            Self::Own(own) => own.losses().cloned().collect(),
            Self::Run(run) => run.losses().to_vec(),
        }
    }

    /// Returns whether a test with this profile shares them.
    pub(crate) fn are_for(&self, profile: &Profile) -> bool {
        let services = match self {
            Self::Own(own) => &own.services,
            Self::Run(run) => &run.services,
        };
        !self.are_of_one_test() && *services == profile.services
    }

    /// Returns whether only one test uses them.
    pub(crate) fn are_of_one_test(&self) -> bool {
        match self {
            Self::Own(own) => own.services.iter().all(|service| service.per == Per::Test),
            Self::Run(_) => false,
        }
    }

    /// Returns the positions in the logs, to be passed to `reports` later.
    pub(crate) fn positions(&mut self) -> Vec<u64> {
        match self {
            Self::Own(own) => own.positions(),
            Self::Run(run) => run.positions(),
        }
    }

    /// Returns what the services wrote since then, and how they ended if they did.
    pub(crate) fn reports(&mut self, since: &[u64]) -> Vec<ServiceReport> {
        match self {
            Self::Own(own) => own.reports(since),
            Self::Run(run) => run.reports(since),
        }
    }

    /// Kills all services of this process, without waiting for their ends.
    pub(crate) fn kill(&mut self) {
        if let Self::Own(own) = self {
            own.kill();
        }
    }
}
