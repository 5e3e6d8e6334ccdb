//! `linux.intelRdt`.

use crate::container::{IntelRdt, Monitoring};
use crate::error::{Error, Field, Kind};
use oci_spec::runtime as oci;

pub(crate) fn resolve(linux: &oci::Linux, field: &Field) -> Result<Option<IntelRdt>, Error> {
    let Some(rdt) = linux.intel_rdt() else { return Ok(None) };
    let said = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let clos_id = said(rdt.clos_id());
    // The name of a directory, or "/", which is the group of all who are in no other.
    let is_path =
        |id: &str| id == "." || id == ".." || (id.len() > 1 && id.contains('/')) || id.contains('\0');
    if clos_id.as_deref().is_some_and(is_path) {
        return Err(field.key("closID").error(Kind::Conflict("is no name of a directory")));
    }
    Ok(Some(IntelRdt {
        clos_id,
        l3_cache_schema: said(rdt.l3_cache_schema()),
        mem_bw_schema: said(rdt.mem_bw_schema()),
        schemata: rdt.schemata().clone().unwrap_or_default(),
        monitoring: if *rdt.enable_monitoring() == Some(true) { Monitoring::Own } else { Monitoring::None },
    }))
}
