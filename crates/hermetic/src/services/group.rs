//! The services of a test: how they start, become ready, and end.

use super::log::Log;
use super::network::Network;
use super::ready::Readiness;
use super::{Ready, Service, ServiceReport};
use crate::error::{Error, MissingIsolation};
use crate::host::JoinedNetwork;
use crate::plan::layers::Streams;
use crate::profile::{Net, Profile};
use crate::sandbox::ended::Ended;
use crate::sandbox::watch::{Fault, Sandbox};
use crate::sandbox::{Machine, explain};
use husk_script::sys::{Fd, tolerate};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Running services that share a network.
pub(crate) struct OwnServices {
    pub(super) services: Vec<Service>,
    network: Network,
    members: Vec<Member>,
    /// Why the services will never be ready.
    failure: Option<String>,
}

/// One service.
struct Member {
    service: Service,
    machine: Machine,
    log: Log,
    since: Instant,
    readiness: Readiness,
    /// The running service; `None` once it has ended.
    sandbox: Option<Sandbox>,
    /// How it ended, unless it was killed for the sake of another one.
    end: Option<String>,
    is_killed: bool,
}

impl OwnServices {
    /// Fails if a profile's program cannot join a network.
    pub(super) fn check(profile: &Profile) -> Result<(), Error> {
        if profile.net != Net::Loopback {
            let name = profile.services.first().map(|service| service.name.as_str()).unwrap_or_default();
            let what = "needs the private network with a loopback device (--net loopback)";
            return Err(Error::Setting(format!("service {name}: the test {what}")));
        }
        Ok(())
    }

    /// Starts all services of a profile at the same time.
    pub(super) fn start(profile: &Profile, machine: &mut Machine) -> Result<Self, Error> {
        let network = Network::new(machine)?;
        let joined = network.joined();
        let members = profile.services.iter().map(|service| Member::start(service, machine, joined));
        let members = members.collect::<Result<_, _>>()?;
        Ok(Self { services: profile.services.clone(), network, members, failure: None })
    }

    pub(crate) fn joined(&self) -> JoinedNetwork {
        self.network.joined()
    }

    /// Returns the sandboxes to watch, and the descriptors on which output arrives.
    pub(crate) fn watched(&mut self) -> (Vec<&mut Sandbox>, Vec<BorrowedFd<'_>>) {
        let mut watched = (Vec::new(), Vec::new());
        for member in &mut self.members {
            watched.0.extend(member.sandbox.iter_mut().chain(member.readiness.sandbox()));
            watched.1.push(member.log.arriving());
        }
        watched
    }

    /// Returns the time until something must be looked at again.
    pub(crate) fn wake(&self) -> Option<Duration> {
        if self.failure.is_some() {
            return None;
        }
        self.members.iter().filter_map(Member::wake).min()
    }

    /// Takes the ends of sandboxes, by their indices among those that are [`watched`](Self::watched), in rising order.
    pub(crate) fn ended(&mut self, ended: Vec<(usize, Result<Ended, Fault>)>) -> Result<(), Error> {
        // Which member and which of its sandboxes each index means, before any is removed.
        let mut places = Vec::new();
        for (index, member) in self.members.iter_mut().enumerate() {
            places.extend(member.sandbox.iter().map(|_| (index, true)));
            places.extend(member.readiness.sandbox().map(|_| (index, false)));
        }
        let joined = self.network.joined();
        for (place, ended) in ended {
            let Some((index, is_service)) = places.get(place).copied() else { continue };
            let Some(member) = self.members.get_mut(index) else { continue };
            match is_service {
                true => member.has_ended(ended, joined)?,
                false => member.readiness.has_ended(ended),
            }
        }
        Ok(())
    }

    /// Reads output and looks whether the services are ready.
    pub(crate) fn turn(&mut self) -> Result<(), Error> {
        let joined = self.network.joined();
        for member in &mut self.members {
            member.log.read();
            if self.failure.is_none() {
                self.failure = member.turn(joined)?;
            }
        }
        if self.failure.is_some() {
            self.kill();
        }
        Ok(())
    }

    pub(crate) fn are_ready(&self) -> bool {
        self.failure.is_none() && self.members.iter().all(|member| member.readiness.is_ready())
    }

    /// Returns why the services will never be ready.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Returns the isolation that the services lack.
    pub(crate) fn losses(&self) -> impl Iterator<Item = &MissingIsolation> {
        self.members.iter().flat_map(|member| &member.machine.losses)
    }

    /// Kills all services for this reason.
    pub(super) fn fail(&mut self, why: &Error) {
        self.failure.get_or_insert_with(|| why.to_string());
        for member in &mut self.members {
            // Each report names the reason, because no husk has seen the error.
            member.end.get_or_insert_with(|| format!("could not be run: {why}"));
        }
        self.kill();
    }

    /// Returns the descriptors of the user namespace, if there is one, and of the network.
    pub(super) fn network_descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.network.descriptors()
    }

    /// Returns the positions in the logs, to be passed to `reports` later.
    pub(crate) fn positions(&self) -> Vec<u64> {
        self.members.iter().map(|member| member.log.position()).collect()
    }

    /// Returns what the services wrote since then, and how they ended if they did.
    pub(crate) fn reports(&mut self, since: &[u64]) -> Vec<ServiceReport> {
        let joined = self.network.joined();
        let members = self.members.iter_mut().zip(since.iter().copied().chain(std::iter::repeat(0)));
        let report = |(member, since): (&mut Member, u64)| {
            member.settle(joined);
            member.log.read();
            let (name, end) = (member.service.name.clone(), member.end.clone());
            ServiceReport { name, end, log: member.log.since(since) }
        };
        members.map(report).collect()
    }

    /// Kills all services, without waiting for their ends.
    pub(crate) fn kill(&mut self) {
        self.members.iter_mut().for_each(|member| member.is_killed = true);
        for sandbox in self.watched().0 {
            tolerate(sandbox.kill(), "a sandbox that has ended needs no signal");
        }
    }
}

impl Drop for OwnServices {
    fn drop(&mut self) {
        // All of them at first, because dropping a sandbox waits for its end.
        self.kill();
    }
}

impl Member {
    fn start(service: &Service, machine: &mut Machine, network: JoinedNetwork) -> Result<Self, Error> {
        let wanted = match &service.ready {
            Ready::Log(text) => Some(text.as_str()),
            _ => None,
        };
        let mut member = Self {
            machine: machine.like(&service.profile)?,
            service: service.clone(),
            log: Log::new(wanted)?,
            since: Instant::now(),
            readiness: Readiness::new(&service.ready),
            sandbox: None,
            end: None,
            is_killed: false,
        };
        member.launch(network)?;
        Ok(member)
    }

    fn launch(&mut self, network: JoinedNetwork) -> Result<(), Error> {
        self.sandbox = Some(begin(&self.service.profile, &mut self.machine, &self.log, network)?);
        Ok(())
    }

    /// Takes its end. Starts it again if the machine cannot isolate it completely.
    fn has_ended(&mut self, ended: Result<Ended, Fault>, network: JoinedNetwork) -> Result<(), Error> {
        let Some(sandbox) = self.sandbox.take() else { return Ok(()) };
        match ended {
            Ok(ended) => {
                let limits = ended.limits();
                let limits =
                    if limits.is_empty() { String::new() } else { format!(" ({})", limits.join("; ")) };
                let when = if self.readiness.is_ready() { "" } else { " before it was ready" };
                if !self.is_killed {
                    self.end = Some(format!("ended{when}: {}{limits}", ended.status));
                }
            }
            Err(fault) => {
                let plan = sandbox.into_plan();
                if self.machine.does_without(&fault, &plan)? {
                    return self.launch(network);
                }
                return Err(match explain(fault, &plan) {
                    error @ Error::Program { .. } => {
                        Error::Setting(format!("service {}: {error}", self.service.name))
                    }
                    error => error,
                });
            }
        }
        Ok(())
    }

    /// Looks whether it is ready. Returns why it never will be.
    fn turn(&mut self, network: JoinedNetwork) -> Result<Option<String>, Error> {
        if self.readiness.is_ready() {
            return Ok(None);
        }
        let failed = |why: &str| Some(format!("service {} {why}", self.service.name));
        if let Some(end) = &self.end {
            return Ok(failed(end));
        }
        let waited = self.since.elapsed();
        if self.log.has_found() {
            self.readiness = Readiness::Ready;
        } else if waited >= self.service.timeout {
            let missing = self.readiness.missing(&self.service.ready);
            self.end =
                Some(format!("was not ready after {} s: {missing}", self.service.timeout.as_secs_f64()));
            return Ok(self.end.as_deref().and_then(failed));
        } else if let Some(sandbox) = &self.sandbox {
            self.readiness.turn(&self.service, sandbox, &mut self.machine, &self.log, network)?;
        }
        Ok(None)
    }

    /// Returns the time until its turn, if it is not ready.
    fn wake(&self) -> Option<Duration> {
        if self.readiness.is_ready() || self.end.is_some() {
            return None;
        }
        let left = self.service.timeout.saturating_sub(self.since.elapsed());
        Some(self.readiness.wake().map_or(left, |wake| wake.min(left)))
    }

    /// Finds out whether its program has ended, although the kernel still tears down its sandbox.
    fn settle(&mut self, network: JoinedNetwork) {
        let Some(sandbox) = &mut self.sandbox else { return };
        let is_over = match sandbox.program() {
            Some(program) => program.has_ended(),
            None => self.readiness.is_ready(),
        };
        if !is_over {
            return;
        }
        let ended = sandbox.end();
        tolerate(self.has_ended(ended, network), "the service is over, whatever the reason");
    }
}

/// Starts a program with the log as its output.
pub(super) fn begin(
    profile: &Profile,
    machine: &mut Machine,
    log: &Log,
    network: JoinedNetwork,
) -> Result<Sandbox, Error> {
    let output = Fd::of(log.theirs());
    let home = machine.home(profile)?;
    let plan = machine.plan(profile.clone(), Streams::Captured { output, errors: output }, Some(network));
    let started = Sandbox::start(plan, home).map(Sandbox::without_signals);
    started.map_err(|failed| explain(failed.error, &failed.plan))
}
