//! `linux.netDevices`: moved by the parent, who is in the namespace that they are in.

use crate::builder::{Builder, Error};
use crate::host::Host;
use husk_bundle::Container;
use husk_bundle::container::NamespaceKind;
use husk_script::{Request, Step};

pub(crate) fn devices(container: &Container, host: &Host, plan: &mut Builder<'_>) -> Result<(), Error> {
    if container.net_devices.is_empty() {
        return Ok(());
    }
    plan.at("linux.netDevices");
    if !container.namespaces.iter().any(|namespace| namespace.kind == NamespaceKind::Network) {
        return Err(plan.error("unable to move network devices without a NET namespace"));
    }
    if host.euid != 0 {
        return Err(plan.error("network devices are not supported for rootless containers"));
    }
    plan.push(Step::Request { what: Request::NetDevices });
    Ok(())
}
