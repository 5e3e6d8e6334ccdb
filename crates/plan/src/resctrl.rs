//! `linux.intelRdt`: whether this machine has what is asked for. The group itself is the parent's to make.

use crate::builder::{Builder, Error};
use crate::host::Host;
use husk_bundle::Container;

pub(crate) fn check(container: &Container, host: &Host, plan: &mut Builder<'_>) -> Result<(), Error> {
    let Some(asked) = &container.intel_rdt else { return Ok(()) };
    plan.at("linux.intelRdt");
    let Some(resctrl) = &host.resctrl else {
        return Err(plan.error("intelRdt is specified in config, but Intel RDT is not enabled"));
    };
    if asked.l3_cache_schema.is_some() && !resctrl.l3 {
        let reason = "intelRdt.l3CacheSchema is specified in config, but Intel RDT/CAT is not enabled";
        return Err(plan.at("linux.intelRdt.l3CacheSchema").error(reason));
    }
    if asked.mem_bw_schema.is_some() && !resctrl.mb {
        let reason = "intelRdt.memBwSchema is specified in config, but Intel RDT/MBA is not enabled";
        return Err(plan.at("linux.intelRdt.memBwSchema").error(reason));
    }
    Ok(())
}
