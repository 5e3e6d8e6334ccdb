//! The steps of services as text.

use crate::error::Error;
use crate::host::{Host, JoinedNetwork};
use crate::plan::layers::Streams;
use crate::plan::{network, plan};
use crate::profile::Profile;
use crate::sandbox::probe::probe;
use bumpalo::Bump;
use husk_script::sys::Fd;

/// Returns the network that a program with services joins, with numbers that stand for descriptors.
pub(crate) fn planned_network(profile: &Profile) -> Option<JoinedNetwork> {
    let (user, net) = (Some(Fd::FIRST_EXTRA), Fd::FIRST_EXTRA);
    (!profile.services.is_empty()).then_some(JoinedNetwork { user, net })
}

/// Lists the steps that create the network and the services of a program, one a line.
pub(crate) fn services_listing(profile: &Profile) -> Result<String, Error> {
    let network = planned_network(profile);
    if network.is_none() {
        return Ok(String::new());
    }
    let mut text = format!("network\n{}\n", network::plan(&probe(profile)?, &Bump::new())?);
    for service in &profile.services {
        let host = Host { network, ..probe(&service.profile)? };
        let memory = Bump::new();
        let steps = plan(&service.profile, &host, Streams::Callers, &memory)?;
        let (name, per, ready) = (&service.name, service.per, &service.ready);
        text += &format!("service {name} ({per}; ready when {ready})\n{steps}\n");
    }
    Ok(text + "program\n")
}
