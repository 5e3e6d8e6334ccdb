//! `linux.netDevices`.

use crate::container::NetDevice;
use crate::error::{Error, Field, Kind};
use oci_spec::runtime as oci;

pub(crate) fn devices(linux: &oci::Linux, field: &Field) -> Result<Vec<NetDevice>, Error> {
    let mut devices = Vec::new();
    for (name, device) in linux.net_devices().iter().flatten() {
        let field = field.key(name);
        check(name, &field)?;
        let new_name = device.name().clone().filter(|name| !name.is_empty());
        if let Some(new_name) = &new_name {
            check(new_name, &field.key("name"))?;
        }
        devices.push(NetDevice { name: name.clone(), new_name: new_name.unwrap_or_else(|| name.clone()) });
    }
    // A map has no order; the same configuration gives the same plan.
    devices.sort();
    Ok(devices)
}

/// What the kernel takes for a name (net/core/dev.c, `dev_valid_name`): 15 bytes that are no path and
/// have no blank in them.
fn check(name: &str, field: &Field) -> Result<(), Error> {
    const MOST: usize = 15;
    let is_bad = |byte: u8| matches!(byte, b'/' | b':' | 0) || byte.is_ascii_whitespace() || byte == 0x0b;
    if name.is_empty() || name.len() > MOST || matches!(name, "." | "..") || name.bytes().any(is_bad) {
        return Err(field.error(Kind::Conflict("is no name for a network device")));
    }
    Ok(())
}
