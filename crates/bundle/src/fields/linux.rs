//! Resolves `linux`.

use crate::container::{
    Clock, Container, Device, DeviceKind, IdMapping, IntelRdt, Monitoring, Namespace, NamespaceKind,
    NetDevice, Propagation, PropagationKind, TimeOffset,
};
use crate::error::{Error, ErrorKind, Field, Warning};
use crate::fields::values::{absolute, id};
use crate::fields::{resources, seccomp};
use husk_sys::mount::Extent;
use oci_spec::runtime::{self as oci, LinuxDeviceType, LinuxNamespaceType, LinuxPersonalityDomain};
use std::collections::HashSet;
use std::path::PathBuf;

pub(crate) fn resolve(
    linux: &oci::Linux,
    unread: resources::Extra,
    container: &mut Container,
    warnings: &mut Vec<Warning>,
) -> Result<(), Error> {
    let field = Field::new("linux");
    container.namespaces = namespaces(linux, &field.key("namespaces"))?;
    container.uid_mappings = checked(mappings(linux.uid_mappings()), &field.key("uidMappings"))?;
    container.gid_mappings = checked(mappings(linux.gid_mappings()), &field.key("gidMappings"))?;
    container.time_offsets = time_offsets(linux, &field.key("timeOffsets"))?;
    container.devices = devices(linux, &field.key("devices"))?;
    // Keys are written in two ways: net/ipv4/conf and net.ipv4.conf.
    let sysctl = linux.sysctl().clone().unwrap_or_default();
    container.sysctl = sysctl.into_iter().map(|(key, value)| (dotted(&key), value)).collect();
    container.rootfs_propagation = propagation(linux, &field.key("rootfsPropagation"))?;
    // Masking a path once is enough.
    container.masked_paths = each_once(paths(linux.masked_paths(), &field.key("maskedPaths"))?);
    container.readonly_paths = paths(linux.readonly_paths(), &field.key("readonlyPaths"))?;
    container.mount_label = linux.mount_label().clone().filter(|label| !label.is_empty());
    let profile = linux.seccomp().as_ref();
    container.seccomp =
        profile.map(|profile| seccomp::resolve(profile, &field.key("seccomp"))).transpose()?;
    container.seccomp_listener =
        profile.map(|profile| seccomp::listener(profile, &field.key("seccomp"))).transpose()?.flatten();
    container.personality = personality(linux, &field.key("personality"), warnings);
    container.net_devices = net_devices(linux, &field.key("netDevices"))?;
    container.intel_rdt = intel_rdt(linux, &field.key("intelRdt"))?;
    let cgroups_path = linux.cgroups_path().as_ref().map(|path| path.display().to_string());
    container.cgroups_path = cgroups_path.filter(|path| !path.is_empty());
    if let Some(resources) = linux.resources() {
        container.resources = resources::resolve(resources, unread, warnings)?;
    }
    Ok(())
}

/// Returns a `PER_*` value of linux/personality.h. Flags are ignored, as in runc, because the specification
/// defines none.
fn personality(linux: &oci::Linux, field: &Field, warnings: &mut Vec<Warning>) -> Option<u32> {
    let personality = linux.personality().as_ref()?;
    if let Some(flags) = personality.flags().as_ref().filter(|flags| !flags.is_empty()) {
        let text = format!("{flags:?}: unknown flags are ignored");
        warnings.push(Warning::new(field.key("flags"), text));
    }
    Some(match personality.domain() {
        LinuxPersonalityDomain::PerLinux => 0,
        LinuxPersonalityDomain::PerLinux32 => 8,
    })
}

pub(crate) fn mappings(mappings: &Option<Vec<oci::LinuxIdMapping>>) -> Vec<IdMapping> {
    let mapping = |mapping: &oci::LinuxIdMapping| IdMapping {
        container_id: mapping.container_id(),
        host_id: mapping.host_id(),
        size: mapping.size(),
    };
    mappings.iter().flatten().map(mapping).collect()
}

/// The most lines in a map that the kernel accepts (include/linux/user_namespace.h, `UID_GID_MAP_MAX_EXTENTS`).
const MOST_MAPPINGS: usize = 340;

/// Refuses maps for which the kernel's error would give no reason.
fn checked(mappings: Vec<IdMapping>, field: &Field) -> Result<Vec<IdMapping>, Error> {
    if mappings.len() > MOST_MAPPINGS {
        return Err(
            field.error(ErrorKind::Conflict("has more than 340 entries, the most that the kernel accepts"))
        );
    }
    for (index, one) in mappings.iter().enumerate() {
        let field = field.index(index);
        if one.size == 0 {
            return Err(field.key("size").error(ErrorKind::Range(0)));
        }
        // The highest number means "no id".
        for (key, first) in [("containerID", one.container_id), ("hostID", one.host_id)] {
            let last = u64::from(first) + u64::from(one.size) - 1;
            if last >= u64::from(u32::MAX) {
                return Err(field.key(key).error(ErrorKind::Range(last.into())));
            }
        }
        let meet = |one: u32, other: u32, [size, others]: [u32; 2]| {
            u64::from(one) < u64::from(other) + u64::from(others)
                && u64::from(other) < u64::from(one) + u64::from(size)
        };
        for other in mappings.iter().take(index) {
            let sizes = [one.size, other.size];
            let overlaps =
                |key: &str| field.key(key).error(ErrorKind::Conflict("overlaps an earlier mapping"));
            if meet(one.container_id, other.container_id, sizes) {
                return Err(overlaps("containerID"));
            }
            if meet(one.host_id, other.host_id, sizes) {
                return Err(overlaps("hostID"));
            }
        }
    }
    Ok(mappings)
}

/// Every kind of namespace and its name in the specification.
pub(crate) const NAMESPACES: &[(&str, LinuxNamespaceType, NamespaceKind)] = &[
    ("cgroup", LinuxNamespaceType::Cgroup, NamespaceKind::Cgroup),
    ("ipc", LinuxNamespaceType::Ipc, NamespaceKind::Ipc),
    ("mount", LinuxNamespaceType::Mount, NamespaceKind::Mount),
    ("network", LinuxNamespaceType::Network, NamespaceKind::Network),
    ("pid", LinuxNamespaceType::Pid, NamespaceKind::Pid),
    ("time", LinuxNamespaceType::Time, NamespaceKind::Time),
    ("user", LinuxNamespaceType::User, NamespaceKind::User),
    ("uts", LinuxNamespaceType::Uts, NamespaceKind::Uts),
];

fn namespaces(linux: &oci::Linux, field: &Field) -> Result<Vec<Namespace>, Error> {
    let mut found: Vec<Namespace> = Vec::new();
    for (index, namespace) in linux.namespaces().iter().flatten().enumerate() {
        let field = field.index(index);
        let known = NAMESPACES.iter().copied().find(|(_, read, _)| *read == namespace.typ());
        let Some((name, _, kind)) = known else {
            return Err(field.key("type").error(ErrorKind::Unknown(namespace.typ().to_string())));
        };
        // config-linux.md: "If a `namespaces` field contains duplicated namespaces with same `type`, the runtime
        // MUST generate an error."
        if found.iter().any(|other| other.kind == kind) {
            return Err(field.key("type").error(ErrorKind::Twice(name.to_owned())));
        }
        let path = namespace.path().clone().filter(|path| !path.as_os_str().is_empty());
        if let Some(path) = &path {
            absolute(path, &field.key("path"))?;
        }
        found.push(Namespace { kind, path });
    }
    Ok(found)
}

fn time_offsets(linux: &oci::Linux, field: &Field) -> Result<Vec<TimeOffset>, Error> {
    let mut offsets = Vec::new();
    for (clock, offset) in linux.time_offsets().iter().flatten() {
        let clock = match clock.as_str() {
            "monotonic" => Clock::Monotonic,
            "boottime" => Clock::Boottime,
            other => return Err(field.error(ErrorKind::Unknown(other.to_owned()))),
        };
        let (secs, nanosecs) = (offset.secs().unwrap_or_default(), offset.nanosecs().unwrap_or_default());
        if nanosecs >= 1_000_000_000 {
            return Err(field.error(ErrorKind::Range(nanosecs.into())));
        }
        offsets.push(TimeOffset { clock, secs, nanosecs });
    }
    // A map has no order, but the same configuration must give the same plan.
    offsets.sort_by_key(|offset| offset.clock == Clock::Boottime);
    Ok(offsets)
}

/// The default permissions of a node, which every runtime uses. The umask is not applied. The specification does
/// not name a default (config-linux.md, "Devices").
const DEFAULT_DEVICE_MODE: u32 = 0o666;

fn devices(linux: &oci::Linux, field: &Field) -> Result<Vec<Device>, Error> {
    let mut found = Vec::new();
    for (index, device) in linux.devices().iter().flatten().enumerate() {
        let field = field.index(index);
        absolute(device.path(), &field.key("path"))?;
        let number = |number: i64, key| {
            u32::try_from(number).map_err(|_| field.key(key).error(ErrorKind::Range(number.into())))
        };
        let kind = match device.typ() {
            LinuxDeviceType::C | LinuxDeviceType::U => {
                DeviceKind::Character(number(device.major(), "major")?, number(device.minor(), "minor")?)
            }
            LinuxDeviceType::B => {
                DeviceKind::Block(number(device.major(), "major")?, number(device.minor(), "minor")?)
            }
            LinuxDeviceType::P => DeviceKind::Fifo,
            LinuxDeviceType::A => return Err(field.key("type").error(ErrorKind::Unknown("a".to_owned()))),
        };
        found.push(Device {
            path: device.path().clone(),
            kind,
            // Some engines pass the whole st_mode.
            mode: device.file_mode().unwrap_or(DEFAULT_DEVICE_MODE) & 0o7777,
            uid: id(device.uid().unwrap_or_default(), &field.key("uid"))?,
            gid: id(device.gid().unwrap_or_default(), &field.key("gid"))?,
        });
    }
    Ok(found)
}

fn dotted(key: &str) -> String {
    // As in sysctl(8), the first of the two characters is the separator. The other is part of a name, as in
    // net.ipv4.conf.eth0/1.forwarding.
    match key.find(['.', '/']).map(|index| key.as_bytes()[index]) {
        Some(b'/') => key
            .chars()
            .map(|char| match char {
                '/' => '.',
                '.' => '/',
                other => other,
            })
            .collect(),
        _ => key.to_owned(),
    }
}

fn propagation(linux: &oci::Linux, field: &Field) -> Result<Option<Propagation>, Error> {
    let Some(name) = linux.rootfs_propagation().as_deref().filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let (extent, kind) = match name.strip_prefix('r') {
        Some(kind) => (Extent::All, kind),
        None => (Extent::Top, name),
    };
    let kind = match kind {
        "shared" => PropagationKind::Shared,
        "slave" => PropagationKind::Slave,
        "private" => PropagationKind::Private,
        "unbindable" => PropagationKind::Unbindable,
        _ => return Err(field.error(ErrorKind::Unknown(name.to_owned()))),
    };
    Ok(Some(Propagation { kind, extent }))
}

fn paths(paths: &Option<Vec<String>>, field: &Field) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    for (index, path) in paths.iter().flatten().map(PathBuf::from).enumerate() {
        absolute(&path, &field.index(index))?;
        found.push(path);
    }
    Ok(found)
}

fn each_once(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut seen = HashSet::new();
    paths.into_iter().filter(|path| seen.insert(path.clone())).collect()
}

fn net_devices(linux: &oci::Linux, field: &Field) -> Result<Vec<NetDevice>, Error> {
    let mut devices = Vec::new();
    for (name, device) in linux.net_devices().iter().flatten() {
        let field = field.key(name);
        check_device_name(name, &field)?;
        let new_name = device.name().clone().filter(|name| !name.is_empty());
        if let Some(new_name) = &new_name {
            check_device_name(new_name, &field.key("name"))?;
        }
        devices.push(NetDevice { name: name.clone(), new_name: new_name.unwrap_or_else(|| name.clone()) });
    }
    // A map has no order, but the same configuration must give the same plan.
    devices.sort();
    Ok(devices)
}

/// Checks a device name by the kernel's rules (net/core/dev.c, `dev_valid_name`). It has at most 15 bytes, without
/// a slash, colon or white space, and is neither `.` nor `..`.
fn check_device_name(name: &str, field: &Field) -> Result<(), Error> {
    const MOST: usize = 15;
    let is_bad = |byte: u8| matches!(byte, b'/' | b':' | 0) || byte.is_ascii_whitespace() || byte == 0x0b;
    if name.is_empty() || name.len() > MOST || matches!(name, "." | "..") || name.bytes().any(is_bad) {
        return Err(field.error(ErrorKind::Conflict("is not a valid name for a network device")));
    }
    Ok(())
}

fn intel_rdt(linux: &oci::Linux, field: &Field) -> Result<Option<IntelRdt>, Error> {
    let Some(rdt) = linux.intel_rdt() else { return Ok(None) };
    let said = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let clos_id = said(rdt.clos_id());
    // closID is the name of a directory, or "/" for the default group of all tasks in no other group.
    let is_path =
        |id: &str| id == "." || id == ".." || (id.len() > 1 && id.contains('/')) || id.contains('\0');
    if clos_id.as_deref().is_some_and(is_path) {
        return Err(field.key("closID").error(ErrorKind::Conflict("is not a valid name for a directory")));
    }
    Ok(Some(IntelRdt {
        clos_id,
        l3_cache_schema: said(rdt.l3_cache_schema()),
        mem_bw_schema: said(rdt.mem_bw_schema()),
        schemata: rdt.schemata().clone().unwrap_or_default(),
        monitoring: if *rdt.enable_monitoring() == Some(true) { Monitoring::Own } else { Monitoring::None },
    }))
}
